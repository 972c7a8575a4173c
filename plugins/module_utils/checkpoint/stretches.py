# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of which only some bytes are wanted, as parts: what of it is there, what to ask for. Values in, values out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from . import spans
from .manifest import CHUNK
from .parts import Done, Part


def of_spans(found: Iterable[spans.Span]) -> tuple[Part, ...]:
    return tuple(Part(start, end - start) for start, end in found)


def to_spans(parts: Iterable[Part]) -> list[spans.Span]:
    return [(part.offset, part.end) for part in parts]


def shared(one: Iterable[Part], other: Iterable[Part]) -> tuple[Part, ...]:
    """The bytes that are in both."""
    return of_spans(spans.common(to_spans(one), to_spans(other)))


def without(wanted: Iterable[Part], there: Iterable[Part]) -> tuple[Part, ...]:
    """The bytes that are wanted and not there."""
    return of_spans(spans.without(to_spans(wanted), to_spans(there)))


def total(parts: Iterable[Part]) -> int:
    return sum(part.length for part in parts)


def usable(wanted: Iterable[Part], found: Iterable[Done]) -> list[Done]:
    """Those parts of a journal that lie wholly in one of those wanted, none overlapping another."""
    stretches = to_spans(wanted)
    kept: list[Done] = []
    for done in sorted(found, key=lambda done: done.part.offset):
        start = kept[-1].part.end if kept else 0
        inside = any(low <= done.part.offset and done.part.end <= high for low, high in stretches)
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
    whole = spans.merged(_widened(part, size) for part in missing)
    return [piece for part in of_spans(whole) for piece in on_grid(part, step)]


def _widened(part: Part, size: int) -> spans.Span:
    return part.offset // CHUNK * CHUNK, min(size, -(-part.end // CHUNK) * CHUNK)


def on_grid(part: Part, step: int) -> list[Part]:
    """The part cut at the file's multiples of step."""
    cuts = [part.offset, *range((part.offset // step + 1) * step, part.end, step), part.end]
    return [Part(low, high - low) for low, high in itertools.pairwise(cuts)]
