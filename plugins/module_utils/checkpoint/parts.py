# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How files are cut into parts, in which order they go, and what the checksums of parts say. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .crc64 import combine_all
from .manifest import CHUNK, File

#: Bytes of a part unless told otherwise. A part is what is fetched again after a crash, and one request.
PART = 32 << 20
#: Parts begin at multiples of this, which is a block of every file system in use.
STEP = 4096


@dataclass(frozen=True)
class Part:
    """A piece of a file."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True)
class Done:
    """A part that is on the disk, with the checksum of its bytes: CRC-64/NVME, or CRC-32 where there is no awscrt."""

    part: Part
    check: int


def cut(size: int, part_size: int = PART) -> list[Part]:
    """The parts of a file. An empty file has none."""
    return [Part(offset, min(part_size, size - offset)) for offset in range(0, size, part_size)]


def missing(size: int, done: Iterable[Done], part_size: int = PART) -> list[Part]:
    """What is left to fetch beside the parts that are done, whatever size those were cut to."""
    left = []
    position = 0
    for piece in sorted((found.part for found in done), key=lambda part: part.offset):
        left += _between(position, piece.offset, part_size)
        position = piece.end
    return left + _between(position, size, part_size)


def _between(start: int, end: int, part_size: int) -> list[Part]:
    return [Part(start + piece.offset, piece.length) for piece in cut(end - start, part_size)]


def usable(size: int, found: Iterable[Done]) -> list[Done]:
    """Those parts of a journal that can be parts of this file, none overlapping another."""
    kept: list[Done] = []
    for done in sorted(found, key=lambda done: done.part.offset):
        start = kept[-1].part.end if kept else 0
        aligned = done.part.offset % STEP == 0 and (done.part.length % STEP == 0 or done.part.end == size)
        if done.part.offset >= start and done.part.length > 0 and done.part.end <= size and aligned:
            kept.append(done)
    return kept


def in_order(files: Iterable[File], part_size: int = PART) -> list[File]:
    """Small files first, so that most are finished early; then the largest, for the one that starts last decides the end."""
    return sorted(files, key=lambda file: (file.size > part_size, -file.size if file.size > part_size else file.size))


def expected_check(file: File, part: Part) -> int | None:
    """The CRC-64/NVME of a part from the chunks of the manifest, or None when they do not say."""
    if not file.chunks or part.offset % CHUNK or (part.length % CHUNK and part.end != file.size):
        return None
    first, last = part.offset // CHUNK, -(-part.end // CHUNK)
    lengths = (min(CHUNK, file.size - index * CHUNK) for index in range(first, last))
    return combine_all(zip((int(chunk, 16) for chunk in file.chunks[first:last]), lengths, strict=True))


def whole_check(done: Mapping[int, Done]) -> int:
    """The CRC-64/NVME of a file, from all its parts by their offsets."""
    return combine_all((piece.check, piece.part.length) for _offset, piece in sorted(done.items()))
