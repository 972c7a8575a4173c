# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows that a node has already: read, held to the digests that were recorded of them, and cut to what is wanted now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .crc64 import combine_all
from .parts import PART, Done, Part
from .piece import BUFFER
from .row_plan import Target
from .runtime import Crc
from .sink import Sink, buffer
from .stretches import on_grid, shared, without

_KEY = re.compile(r"(.+?)(?:\[([0-9]{1,19}):([0-9]{1,19})\])?")


@dataclass(frozen=True)
class Run:
    """Bytes of which a digest was recorded when they had been verified."""

    part: Part
    digest: str


def runs(target: Target, digests: Mapping[str, str]) -> list[Run]:
    """What was recorded of this file, by place. digests: by Extent.key, of rows that may be others than those of the target."""
    found = []
    for key, digest in digests.items():
        match = _KEY.fullmatch(key.removeprefix(f"{target.path}:")) if key.startswith(f"{target.path}:") else None
        part = _place(target, match[1], match[2], match[3]) if match else None
        if part:
            found.append(Run(part, digest))
    return sorted(found, key=lambda run: run.part.offset)


def _place(target: Target, tensor: str, low: str | None, high: str | None) -> Part | None:
    if low is None or high is None:
        extents = [extent for extent in target.extents if (extent.tensor or "header") == tensor]
        return Part(extents[0].target_offset, extents[0].length) if extents else None
    for extent in target.extents:
        if extent.tensor == tensor and tensor in target.row_bytes:
            width = target.row_bytes[tensor]
            start = extent.target_offset + (int(low) - extent.rows[0]) * width
            part = Part(start, (int(high) - int(low)) * width)
            return part if 0 <= start < part.end <= target.size else None
    return None


def kept(path: Path, recorded: Iterable[Run], wanted: Sequence[Part], crc: Crc, copy: Sink | None = None) -> list[Done]:
    """The bytes of this file that are wanted and are as they were recorded. Raises OSError.

    copy: where they are written too. A run that is not as recorded is not kept at all; its bytes in the copy mean nothing.
    """
    view = buffer(BUFFER)
    found: list[Done] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for run in recorded:
            pieces = _pieces(run.part, wanted)
            if not any(keep for _part, keep in pieces):
                continue
            read = [
                (Done(part, _read(descriptor, part, crc, view, copy if keep else None)), keep) for part, keep in pieces
            ]
            whole = combine_all((done.check, done.part.length) for done, _keep in read)
            if run.digest == f"crc64nvme:{whole:016x}":
                found += [done for done, keep in read if keep]
    finally:
        os.close(descriptor)
    return found


def _pieces(run: Part, wanted: Sequence[Part]) -> list[tuple[Part, bool]]:
    """The run in order, cut where wanted bytes begin and end, and into parts."""
    inside = [part for each in wanted for part in shared((each,), (run,))]
    cut = [(part, True) for part in inside] + [(part, False) for part in without((run,), inside)]
    return [
        (piece, keep) for part, keep in sorted(cut, key=lambda pair: pair[0].offset) for piece in on_grid(part, PART)
    ]


def _read(descriptor: int, part: Part, crc: Crc, view: memoryview, copy: Sink | None) -> int:
    """The checksum of a part. A file that is too short gives another one than was recorded."""
    value, position = 0, part.offset
    while position < part.end:
        count = os.preadv(descriptor, [view[: part.end - position]], position)
        if not count:
            break
        value = crc(view[:count], value)
        if copy:
            copy.write(view, count, position)
        position += count
    os.posix_fadvise(descriptor, part.offset, part.length, os.POSIX_FADV_DONTNEED)
    if copy:
        copy.release(part.offset, part.length)
    return value
