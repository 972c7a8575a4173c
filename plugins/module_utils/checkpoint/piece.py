# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A part on its way from one connection into the sink: the bytes so far, their checksum, where to go on after a break."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol
from urllib.parse import urlsplit

from .answers import Asked, MoveError, judge
from .http1 import Answer, BrokenError
from .manifest import File
from .parts import Done, Part
from .runtime import Crc
from .sink import Sink, buffer, disk_error
from .source import Source

#: Bytes of one write. Larger ones cost memory for each connection, smaller ones keep the disk from its best.
BUFFER = 4 << 20


class DamagedError(BrokenError):
    """The bytes of a part are not those that were published."""


class Link(Protocol):
    """What bytes come from: http1.Connection, or disk.DiskReader."""

    reusable: bool

    def get(self, target: str, headers: Mapping[str, str]) -> Answer: ...

    def some(self, view: memoryview) -> int: ...

    def text(self) -> bytes: ...

    def close(self) -> None: ...


@dataclass
class Lane:
    """What one worker has to itself: memory, and an open connection to each place it has asked."""

    connect: Callable[[Source], Link]
    view: memoryview = field(default_factory=lambda: buffer(BUFFER))
    connections: dict[str, Link] = field(default_factory=dict)

    def connection(self, source: Source) -> Link:
        kept = self.connections.pop(source.place, None)
        if kept and not kept.reusable:
            kept.close()
            kept = None
        self.connections[source.place] = kept or self.connect(source)
        return self.connections[source.place]

    def drop(self, source: Source) -> None:
        broken = self.connections.pop(source.place, None)
        if broken:
            broken.close()

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()


@dataclass
class Piece:
    """written: bytes of the part in the sink. held: bytes behind those in the lane's memory. check: checksum of both.

    stored: the stretches of the part that go into the sink. sums: checksum of what went there, by offset of the stretch.
    """

    file: File
    part: Part
    expected: int | None
    crc: Crc
    stored: tuple[Part, ...]
    source: Source | None = None
    written: int = 0
    held: int = 0
    check: int = 0
    sums: dict[int, int] = field(default_factory=dict)

    @property
    def taken(self) -> int:
        return self.written + self.held

    def begin_from(self, source: Source) -> int:
        """Where the bytes come from now. Those of another place are not gone on from; how many that were."""
        lost = self.taken if self.source is not None and self.source != source else 0
        if lost:
            self.restart()
        self.source = source
        return lost

    def restart(self) -> None:
        self.written = self.held = self.check = 0
        self.sums.clear()

    def pull(self, lane: Lane, source: Source, sink: Sink, slice_size: int, took: Callable[[int], None]) -> None:
        """One request, from where the piece stands to its end. took: told of bytes as they come. Raises as judge() does."""
        connection = lane.connection(source)
        asked = Asked(source, self.part.offset + self.taken, self.part.end, self.file.size, self.file.etag)
        address = urlsplit(source.url)
        target = f"{address.path}?{address.query}" if address.query else address.path
        answer = connection.get(target, asked.headers())
        judge(asked, answer, connection.text, datetime.now(timezone.utc))
        while self.taken < self.part.length:
            room = min(slice_size, len(lane.view) - self.held, self.part.length - self.taken)
            count = connection.some(lane.view[self.held : self.held + room])
            self.check = self.crc(lane.view[self.held : self.held + count], self.check)
            self.held += count
            took(count)
            if self.held == len(lane.view) or self.taken == self.part.length:
                self._write(sink, lane.view)

    def _write(self, sink: Sink, view: memoryview) -> None:
        start = self.part.offset + self.written
        try:
            for stretch in self.stored:
                low, high = max(stretch.offset, start), min(stretch.end, start + self.held)
                if low < high:
                    sink.write(view[low - start :], high - low, low)
                    if not self._whole:
                        data = view[low - start : high - start]
                        self.sums[stretch.offset] = self.crc(data, self.sums.get(stretch.offset, 0))
        except OSError as error:
            raise disk_error(sink.path, sink.size, error) from error
        self.written += self.held
        self.held = 0

    @property
    def _whole(self) -> bool:
        return self.stored == (self.part,)

    def written_parts(self) -> list[Done]:
        """What is in the sink when all has come, with its checksums."""
        if self._whole:
            return [Done(self.part, self.check)]
        return [Done(stretch, self.sums.get(stretch.offset, 0)) for stretch in self.stored]

    def verify(self) -> None:
        """Compare with the published checksum, where there is one."""
        if self.expected is not None and self.check != self.expected:
            raise DamagedError(
                f"bytes {self.part.offset}-{self.part.end - 1}: expected crc64nvme:{self.expected:016x}, "
                f"got crc64nvme:{self.check:016x}"
            )


@dataclass
class Patience:
    """Waits between tries of one part: doubling, with some chance in them so that connections do not return all at once."""

    first: float
    longest: float
    chance: Callable[[], float]
    wait: float = 0.0

    def next_wait(self, progressed: bool) -> float:
        self.wait = self.first if progressed or not self.wait else min(2 * self.wait, self.longest)
        return self.wait * (0.5 + self.chance() / 2)


@dataclass(frozen=True)
class Limits:
    """Seconds. connect: until a connection stands. read: silence on one connection. stall: no byte of a file, over all its tries. Waits between tries double.

    tries: how often an answer that should not be (wrong bytes, a range that was ignored) is asked for again.
    unreachable: how long a peer may refuse connections. slow, slow_rate: a peer's answer is given up when it has fewer bytes
    a second than that after so many seconds.
    """

    connect: float = 5.0
    read: float = 30.0
    stall: float = 300.0
    first_wait: float = 0.5
    longest_wait: float = 15.0
    tries: int = 3
    unreachable: float = 15.0
    slow: float = 15.0
    slow_rate: int = 1 << 20
    clock: Callable[[], float] = time.monotonic

    def too_slow(self, count: int, seconds: float) -> bool:
        """Whether a peer that gave so many bytes in that time is no help."""
        return seconds > self.slow and count < self.slow_rate * seconds


def stalled(limits: Limits, silent: float, piece: Piece, last: Exception) -> MoveError:
    return MoveError(
        f"no byte arrived for {silent:.0f} s (limit {limits.stall:.0f} s), stopped in bytes {piece.part.offset}-"
        f"{piece.part.end - 1} of {piece.file.size}; last: {last}. Check the store and the way to it, then run again"
    )
