# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Half-open byte ranges of a file: ordered, merged, taken from each other. Nothing is read."""

from __future__ import annotations

from collections.abc import Iterable

#: [start, end) in bytes.
Span = tuple[int, int]


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same bytes as few spans in order: those that overlap or touch become one, empty ones go."""
    result: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return tuple(result)


def without(spans: Iterable[Span], taken: Iterable[Span]) -> tuple[Span, ...]:
    """What of spans is not in taken."""
    result: list[Span] = []
    holes = merged(taken)
    for start, end in merged(spans):
        at = start
        for low, high in holes:
            if high <= at or low >= end:
                continue
            if low > at:
                result.append((at, low))
            at = high
        if at < end:
            result.append((at, end))
    return tuple(result)


def common(spans: Iterable[Span], others: Iterable[Span]) -> tuple[Span, ...]:
    """What is in both."""
    first = merged(spans)
    return without(first, without(first, others))


def total(spans: Iterable[Span]) -> int:
    """Bytes in spans, each counted once."""
    return sum(end - start for start, end in merged(spans))


def blocks(spans: Iterable[Span], block: int) -> int:
    """Bytes that a file system of this block size allocates for a file with data in spans only."""
    return total((start // block * block, -(-end // block) * block) for start, end in spans if end > start)
