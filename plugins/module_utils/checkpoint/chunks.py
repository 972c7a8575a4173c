# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chunks of a wanted file an older state of it has at the same place. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .manifest import CHUNK, File
from .parts import Done, Part
from .spans import Span, merged


@dataclass(frozen=True)
class Base:
    """A file that a wanted one is made from. source: ``REVISION/PATH``. parts: the chunks that they share."""

    source: str = ""
    parts: tuple[Done, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(done.part.length for done in self.parts)


def equal(file: File, size: int, chunks: Sequence[str]) -> tuple[Done, ...]:
    """The chunks of the wanted file that one of this size with these chunk checksums has at the same offset."""
    shared = []
    for index, (wanted, have) in enumerate(zip(file.chunks, chunks, strict=False)):
        offset = index * CHUNK
        length = min(CHUNK, file.size - offset)
        if wanted == have and length == min(CHUNK, size - offset):
            shared.append(Done(Part(offset, length), int(wanted, 16)))
    return tuple(shared)


def alike(file: File, size: int, chunks: Sequence[str]) -> tuple[Span, ...]:
    """The same as byte ranges."""
    return merged((done.part.offset, done.part.end) for done in equal(file, size, chunks))


def best(file: File, candidates: Iterable[tuple[str, int, Sequence[str]]]) -> Base:
    """The candidate (source, size, chunk checksums) with most bytes in common, the first of equals; empty when none has any."""
    found = Base()
    for source, size, chunks in candidates:
        base = Base(source, equal(file, size, chunks))
        if base.bytes > found.bytes:
            found = base
    return found


def outside(parts: Iterable[Done], there: Iterable[Done]) -> tuple[Done, ...]:
    """Those parts that none of the others overlaps."""
    taken = [done.part for done in there]
    return tuple(
        done for done in parts if not any(done.part.offset < part.end and part.offset < done.part.end for part in taken)
    )
