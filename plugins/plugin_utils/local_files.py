# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the files of a checkpoint in a directory of the controller: a plain one, or one of a Hugging Face cache."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import objects, published
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import PARTIAL, set_problems
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.publish import Local

#: How downloads name what is not whole yet.
_UNFINISHED = (PARTIAL, ".incomplete", ".aria2", ".part", ".crdownload")
#: The Hugging Face cache names the blob of a large file by its SHA-256.
_SHA256 = re.compile(r"[0-9a-f]{64}")


class LocalError(Exception):
    """A directory that cannot be published; its text is the message for the user."""


def find(source: str, revision: str = "", files: Sequence[str] = ()) -> list[Local]:
    """The files below source, links resolved, hidden ones left out. Raises LocalError with everything that is wrong.

    source: a plain directory, a snapshot of a Hugging Face cache, or the ``models--OWNER--NAME`` above it; then revision
    names the snapshot. files: relative paths, empty for everything.
    """
    directory = _directory(source, revision)
    problems: list[str] = []
    found = {local.path: local for local in _walk(directory, problems)}
    if files:
        problems = [problem for problem in problems if problem.partition(" ")[0] in files]
        problems += [f"{path} is not there" for path in files if path not in found and not _named(path, problems)]
        found = {path: local for path, local in found.items() if path in files}
    problems += set_problems(found) + _holes(found)
    if not found and not problems:
        problems.append("it holds no files")
    if problems:
        raise LocalError(
            f"source {directory} cannot be published: {'; '.join(problems)}. Cure: finish the download, or list the wanted "
            "files in files (checkpoint_files)"
        )
    return [found[path] for path in sorted(found)]


def _named(path: str, problems: Sequence[str]) -> bool:
    return any(problem.partition(" ")[0] == path for problem in problems)


def _directory(source: str, revision: str) -> Path:
    """Where the files are: the snapshot that is meant, of a repository in a Hugging Face cache."""
    top = Path(source)
    if not top.is_dir():
        raise LocalError(f"source (checkpoint_publish_source) {source} is not a directory on the controller")
    snapshots = top / "snapshots"
    if not snapshots.is_dir() or not (top / "blobs").is_dir():
        if revision:
            raise LocalError(
                f"source_revision (checkpoint_publish_source_revision) is {revision}, but {source} is no repository of a "
                "Hugging Face cache: it has no directories snapshots and blobs"
            )
        return top
    names = sorted(path.name for path in snapshots.iterdir() if path.is_dir())
    wanted = revision or _main(top) or (names[0] if len(names) == 1 else "")
    if wanted in names:
        return snapshots / wanted
    found = ", ".join(names) or "none"
    raise LocalError(
        f"{source} has {'no snapshot ' + wanted if wanted else 'no refs/main'}, its snapshots are: {found}. "
        "Cure: name one in source_revision (checkpoint_publish_source_revision)"
    )


def _main(repository: Path) -> str:
    try:
        return (repository / "refs/main").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _walk(directory: Path, problems: list[str]) -> Iterator[Local]:
    seen: set[tuple[int, int]] = set()
    for place, names, files in os.walk(directory, followlinks=True):
        here = os.stat(place)
        if (here.st_dev, here.st_ino) in seen:
            problems.append(f"{_relative(Path(place), directory)} is a link into its own tree")
            names.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield from _local(Path(place) / name, directory, problems)


def _local(path: Path, directory: Path, problems: list[str]) -> Iterator[Local]:
    relative = _relative(path, directory)
    if relative == published.NAME:
        return
    if path.name.endswith(_UNFINISHED):
        problems.append(f"{relative} is an unfinished download")
        return
    try:
        place = path.resolve(strict=True)
        status = place.stat()
    except (OSError, RuntimeError):
        problems.append(f"{relative} is a link to {os.readlink(path)}, which is not there")
        return
    if not stat.S_ISREG(status.st_mode):
        problems.append(f"{relative} is not a file")
        return
    local = Local(relative, str(place), status.st_size)
    blob = path.is_symlink() and place.parent.name == "blobs" and _SHA256.fullmatch(place.name)
    yield replace(local, sha256=place.name) if blob else local


def _relative(path: Path, directory: Path) -> str:
    return path.relative_to(directory).as_posix()


def _holes(found: dict[str, Local]) -> list[str]:
    """Every shard that an index names has to be there: an interrupted download is never seen otherwise."""
    problems = []
    for path, local in found.items():
        if path.rpartition("/")[2] != objects.INDEX:
            continue
        try:
            missing = sorted(set(objects.indexed_shards(path, Path(local.place).read_bytes())) - set(found))
        except (OSError, ValueError) as error:
            problems.append(str(error))
            continue
        if missing:
            problems.append(f"{path} names {len(missing)} files that are not there: {', '.join(missing)}")
    return problems
