# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""checkpoint-manifest.json: what publishing writes into a prefix, last, and what a plan reads first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .manifest import CHUNK, File, chunks_problem, digest_problem, revision_of, set_problems

#: The object's name below the prefix. It is about the checkpoint, not a file of it.
NAME = "checkpoint-manifest.json"
FORMAT = "gb10.ring checkpoint manifest"
VERSION = 1


class PublishedError(ValueError):
    """A manifest that cannot be used; its text is the message for the user."""


@dataclass(frozen=True)
class Digests:
    """All that one reading of a file gave. sha256, crc64nvme, chunks: hexadecimal digits; chunks of CHUNK bytes each."""

    path: str
    size: int
    sha256: str
    crc64nvme: str
    chunks: tuple[str, ...]

    @property
    def digests(self) -> tuple[str, str]:
        """The CRC first: it is computed ten times as fast, and from parts in any order."""
        return f"crc64nvme:{self.crc64nvme}", f"sha256:{self.sha256}"


def render(name: str, files: Iterable[Digests]) -> str:
    """The same text for the same files, so that publishing again changes nothing."""
    ordered = sorted(files, key=lambda file: file.path)
    data = {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "revision": revision_of(File(file.path, file.size, "", file.digests[0]) for file in ordered),
        "bytes": sum(file.size for file in ordered),
        "chunk_size": CHUNK,
        "files": [_row(file) for file in ordered],
    }
    return json.dumps(data, indent=1) + "\n"


def _row(file: Digests) -> dict[str, Any]:
    return {
        "path": file.path,
        "size": file.size,
        "sha256": file.sha256,
        "crc64nvme": file.crc64nvme,
        "chunks": list(file.chunks),
    }


def parse(content: bytes, where: str) -> dict[str, Digests]:
    """The files of this manifest by path. where: what to call it. Raises PublishedError with everything that is wrong."""
    try:
        data = json.loads(content.decode("utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}")
        version, chunk_size = data["version"], data["chunk_size"]
        files = [_parsed(item) for item in data["files"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PublishedError(f"{where} is not a manifest of gb10.ring ({type(error).__name__}: {error})") from error
    if version != VERSION or chunk_size != CHUNK:
        raise PublishedError(
            f"{where} is of version {version} with chunks of {chunk_size} bytes, this release reads version {VERSION} "
            f"with chunks of {CHUNK}"
        )
    problems = set_problems(file.path for file in files) + [problem for file in files for problem in _problems(file)]
    if problems:
        raise PublishedError(f"{where}: {'; '.join(problems)}")
    return {file.path: file for file in files}


def _parsed(item: Mapping[str, Any]) -> Digests:
    chunks = tuple(str(chunk) for chunk in item["chunks"])
    return Digests(str(item["path"]), int(item["size"]), str(item["sha256"]), str(item["crc64nvme"]), chunks)


def _problems(file: Digests) -> list[str]:
    found = [digest_problem(digest) for digest in file.digests]
    found.append("" if file.size >= 0 else f"{file.size} is not a size")
    found.append(chunks_problem(file.size, file.chunks))
    return [f"{file.path}: {problem}" for problem in found if problem]
