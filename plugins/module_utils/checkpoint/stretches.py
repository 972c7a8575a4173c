# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stretches of a file of which only some bytes are wanted: what is kept, what is missing, what to ask for. Values in, values out.

A list of stretches is in order, and none of it is empty, overlaps another, or touches it.
"""

from __future__ import annotations

from collections.abc import Iterable

from .manifest import CHUNK
from .parts import Done, Part


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The bytes of all these parts as stretches."""
    found: list[Part] = []
    for part in sorted((part for part in parts if part.length > 0), key=lambda part: part.offset):
        if found and part.offset <= found[-1].end:
            last = found.pop()
            part = Part(last.offset, max(last.end, part.end) - last.offset)
        found.append(part)
    return tuple(found)


def shared(one: Iterable[Part], other: Iterable[Part]) -> tuple[Part, ...]:
    """The bytes that are in both."""
    mine, theirs = merged(one), merged(other)
    found: list[Part] = []
    first = second = 0
    while first < len(mine) and second < len(theirs):
        low = max(mine[first].offset, theirs[second].offset)
        high = min(mine[first].end, theirs[second].end)
        if low < high:
            found.append(Part(low, high - low))
        if mine[first].end <= theirs[second].end:
            first += 1
        else:
            second += 1
    return tuple(found)


def gaps(size: int, kept: Iterable[Part]) -> tuple[Part, ...]:
    """The bytes of a file of this size that are in none of these parts."""
    found: list[Part] = []
    position = 0
    for part in merged(kept):
        if part.offset > position:
            found.append(Part(position, part.offset - position))
        position = part.end
    if position < size:
        found.append(Part(position, size - position))
    return tuple(found)


def without(size: int, wanted: Iterable[Part], there: Iterable[Part]) -> tuple[Part, ...]:
    """The bytes that are wanted and not there."""
    return shared(wanted, gaps(size, there))


def total(parts: Iterable[Part]) -> int:
    return sum(part.length for part in parts)


def usable(wanted: Iterable[Part], found: Iterable[Done]) -> list[Done]:
    """Those parts of a journal that lie wholly in what is wanted, none overlapping another."""
    stretches = merged(wanted)
    kept: list[Done] = []
    at = 0
    for done in sorted(found, key=lambda done: done.part.offset):
        start = kept[-1].part.end if kept else 0
        while at < len(stretches) and stretches[at].end <= done.part.offset:
            at += 1
        inside = at < len(stretches) and stretches[at].offset <= done.part.offset and done.part.end <= stretches[at].end
        if inside and done.part.offset >= start and done.part.length > 0:
            kept.append(done)
    return kept


def requests(size: int, missing: Iterable[Part], part_size: int, chunked: bool) -> list[Part]:
    """The parts to ask for so that these bytes come, cut at multiples of part_size.

    chunked: the published checksums are of whole chunks, so whole chunks are asked for, at most one more at each end.
    """
    if not chunked:
        return [piece for part in missing for piece in on_grid(part, part_size)]
    step = max(CHUNK, part_size // CHUNK * CHUNK)
    whole = merged(_widened(part, size) for part in missing)
    return [piece for part in whole for piece in on_grid(part, step)]


def _widened(part: Part, size: int) -> Part:
    start = part.offset // CHUNK * CHUNK
    return Part(start, min(size, -(-part.end // CHUNK) * CHUNK) - start)


def on_grid(part: Part, step: int) -> list[Part]:
    """The part cut at the file's multiples of step."""
    cuts = [part.offset, *range((part.offset // step + 1) * step, part.end, step), part.end]
    return [Part(low, high - low) for low, high in zip(cuts, cuts[1:], strict=False)]
