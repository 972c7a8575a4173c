# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a revision consists of: path, size, ETag and digest of every file, and the name that follows from them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Hexadecimal digits of a digest, by algorithm. ``gitblob`` is what git names a file by: SHA-1 of ``blob SIZE``, a zero byte
#: and the bytes. ``etag`` stands for "there is no checksum": only size and ETag hold.
DIGEST_LENGTH: dict[str, int | None] = {
    "crc64nvme": 16,
    "crc32c": 8,
    "crc32": 8,
    "sha256": 64,
    "md5": 32,
    "gitblob": 40,
    "etag": None,
}
#: Bytes that each of a file's chunk checksums stands for; the last chunk is what remains.
CHUNK = 16 << 20
_CHUNK_DIGITS = 16
#: How the mover names a file that is not whole yet; a file of the checkpoint may not look like one.
PARTIAL = ".partial"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_HEX = re.compile(r"[0-9a-f]+")


class ManifestError(ValueError):
    """A plan that cannot be used; its text is the message for the user."""


@dataclass(frozen=True)
class File:
    """path: relative, with ``/``. size: bytes. etag: as the store gives it, with quotes. digest: ``algorithm:hex``.

    digest_source: where the digest was found, for people. chunks: CRC-64/NVME of each CHUNK bytes as 16 hexadecimal
    digits, empty when they are not known.
    """

    path: str
    size: int
    etag: str
    digest: str
    digest_source: str = ""
    chunks: tuple[str, ...] = ()

    @property
    def algorithm(self) -> str:
        return self.digest.partition(":")[0]


@dataclass(frozen=True)
class Manifest:
    """One immutable state of a checkpoint. Files are in the order of their paths."""

    name: str
    revision: str
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    def by_path(self) -> dict[str, File]:
        return {file.path: file for file in self.files}

    def without(self, paths: Iterable[str]) -> Manifest:
        """The same state, less files that come in another way."""
        left = frozenset(paths)
        return Manifest(self.name, self.revision, tuple(file for file in self.files if file.path not in left))

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "revision": self.revision,
            "files": [_to_dict(file) for file in self.files],
            "bytes": self.bytes,
        }


def _to_dict(file: File) -> dict[str, Any]:
    """chunks are run together: as a list, 460 GB of them would be 27,000 values for Ansible to look into at every task."""
    row = {"path": file.path, "size": file.size, "etag": file.etag, "digest": file.digest}
    row["digest_source"] = file.digest_source
    return {**row, "chunks": "".join(file.chunks)} if file.chunks else row


def _from_dict(item: Mapping[str, Any]) -> File:
    text = str(item.get("chunks") or "")
    chunks = tuple(text[start : start + _CHUNK_DIGITS] for start in range(0, len(text), _CHUNK_DIGITS))
    return File(
        path=str(item["path"]),
        size=int(item["size"]),
        etag=str(item.get("etag", "")),
        digest=str(item["digest"]),
        digest_source=str(item.get("digest_source", "")),
        chunks=chunks,
    )


def chunk_count(size: int) -> int:
    """How many chunks a file of this many bytes has; an empty file has none."""
    return -(-size // CHUNK)


def chunks_problem(size: int, chunks: Sequence[str]) -> str:
    """Why these cannot be the chunk checksums of a file of this size, or an empty text."""
    if len(chunks) != chunk_count(size):
        return f"{len(chunks)} chunk checksums for {size} bytes instead of {chunk_count(size)}"
    wrong = next((chunk for chunk in chunks if len(chunk) != _CHUNK_DIGITS or not _HEX.fullmatch(chunk)), None)
    return "" if wrong is None else f"chunk checksum {wrong!r} is not {_CHUNK_DIGITS} hexadecimal digits"


def path_problem(path: str) -> str:
    """Why this path cannot be a file of a checkpoint, or an empty text."""
    if not path:
        return "is empty"
    if path.startswith("/"):
        return "is absolute"
    return _text_problem(path) or _parts_problem(path.split("/"))


def _text_problem(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold: no file can be named by it
        return "cannot be written as UTF-8"
    if any(ord(char) < 32 or ord(char) == 127 for char in path) or "\\" in path:
        return "has a control character or a backslash"
    return f"ends in {PARTIAL}, which marks files in transfer" if path.endswith(PARTIAL) else ""


def _parts_problem(parts: Sequence[str]) -> str:
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty, '.' or '..' component"
    if any(len(part.encode()) > 255 - len(PARTIAL) for part in parts):
        return "has a component longer than a file name may be"
    return ""


def set_problems(paths: Iterable[str]) -> list[str]:
    """What is wrong with these paths as one directory tree, one text a problem."""
    problems: list[str] = []
    seen: set[str] = set()
    for path in paths:
        reason = path_problem(path)
        if reason:
            problems.append(f"{path!r} {reason}")
        elif path in seen:
            problems.append(f"{path!r} is listed twice")
        seen.add(path)
    for path in sorted(seen):
        parent = path.rpartition("/")[0]
        while parent:
            if parent in seen:
                problems.append(f"{parent!r} is a file and the directory of {path!r}")
            parent = parent.rpartition("/")[0]
    return problems


def name_problem(value: str) -> str:
    """Why this cannot name a checkpoint or a revision (it becomes one directory), or an empty text."""
    if _NAME.fullmatch(value):
        return ""
    return f"{value!r} is not usable as a directory name: letters, digits, '.', '_' and '-', a letter or digit first, 200 at most"


def digest_problem(digest: str) -> str:
    """Why this is not a digest, or an empty text."""
    algorithm, _colon, value = digest.partition(":")
    if algorithm not in DIGEST_LENGTH:
        return f"{digest!r} names no known algorithm ({', '.join(DIGEST_LENGTH)})"
    length = DIGEST_LENGTH[algorithm]
    if length is None:
        return "" if value else f"{digest!r} is empty"
    return "" if len(value) == length and _HEX.fullmatch(value) else f"{digest!r} is not {length} hexadecimal digits"


def revision_of(files: Iterable[File]) -> str:
    """The name of a state: equal contents have equal names, wherever they were listed."""
    lines = "".join(f"{line}\n" for line in sorted(f"{file.path} {file.size} {file.digest}" for file in files))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def make(name: str, revision: str, files: Iterable[File]) -> Manifest:
    """The manifest of these files; an empty revision is computed. Raises ManifestError with every problem."""
    ordered = tuple(sorted(files, key=lambda file: file.path))
    problems = [problem for problem in (name_problem(name), name_problem(revision) if revision else "") if problem]
    problems += set_problems(file.path for file in ordered)
    for file in ordered:
        problem = digest_problem(file.digest)
        if problem:
            problems.append(f"{file.path}: {problem}")
        if file.size < 0:
            problems.append(f"{file.path}: {file.size} is not a size")
        problem = chunks_problem(file.size, file.chunks) if file.chunks else ""
        if problem:
            problems.append(f"{file.path}: {problem}")
    if not ordered:
        problems.append("no files")
    if problems:
        raise ManifestError(f"checkpoint {name}: {'; '.join(problems)}")
    return Manifest(name, revision or revision_of(ordered), ordered)


def parse(data: Mapping[str, Any]) -> Manifest:
    """The manifest that ``to_dict`` gave, with everything checked again: it came through a variable."""
    try:
        return make(str(data["name"]), str(data["revision"]), [_from_dict(item) for item in data["files"]])
    except (KeyError, TypeError, AttributeError) as error:
        raise ManifestError(
            "option plan is not what gb10.ring.checkpoint_plan returns (a dictionary with name, revision and files, "
            f"each file with path, size, etag and digest): {type(error).__name__} {error}"
        ) from error
