# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second, independent reading of rows whose checksums nobody published: fetched again and compared with what was written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from . import spans
from .parts import Part
from .piece import DamagedError
from .row_plan import Target
from .sink import Sink
from .stretches import of_spans, to_spans

#: Bytes of a sample: 4096 rows of values.
SAMPLE = 1 << 20


class Comparer(Sink):
    """Takes the place of the file that is written: compares instead."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size, self.direct, self.keep = path, size, False, None
        self._direct = -1
        self._buffered = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, view: memoryview, count: int, offset: int) -> None:
        if os.pread(self._buffered, count, offset) != bytes(view[:count]):
            raise DamagedError(f"bytes {offset}-{offset + count - 1} are not the same at a second reading")

    def release(self, offset: int, length: int) -> None:
        os.posix_fadvise(self._buffered, offset, length, os.POSIX_FADV_DONTNEED)

    def finish(self) -> None:
        """Nothing was written."""


def sample(target: Target, share: float, chance: Callable[[], float]) -> tuple[Part, ...]:
    """What to read again: of each extent its two ends, and so much of what is between them that share (0 to 1) of it is read.

    chance: gives numbers from 0 to 1.
    """
    found: list[spans.Span] = []
    for extent in target.extents:
        low, high = extent.span
        size = max(target.row_bytes.get(extent.tensor, 1), min(SAMPLE, int(extent.length * share)))
        count = max(1, round(extent.length * share / size))
        if share >= 1 or count * size >= extent.length:
            found.append((low, high))
            continue
        width = target.row_bytes.get(extent.tensor, 1)
        found += [(low, low + width), (high - width, high)]
        # One sample in each of so many equal stretches: by chance, but spread over all of it.
        step = extent.length / count
        starts = [low + int(step * index + chance() * max(0.0, step - size)) for index in range(count)]
        found += [(start, min(high, start + size)) for start in starts]
    return _within(target, found)


def _within(target: Target, found: Sequence[spans.Span]) -> tuple[Part, ...]:
    """Cut to the extents again: samples of neighbours may touch."""
    every = spans.merged(found)
    return tuple(part for extent in target.extents for part in of_spans(spans.common([extent.span], every)))


def size_of(parts: Sequence[Part]) -> int:
    return spans.total(to_spans(parts))
