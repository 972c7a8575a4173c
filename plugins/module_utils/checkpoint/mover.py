# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves files from object store and peers into partial files: a bounded number of connections, parts of all files in one order.

A file ends verified, durable and renamed, or in an error; parts that came stay in its partial file for the next run.
"""

from __future__ import annotations

import random
import ssl
import threading
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .answers import AbsentError, GoneError, MoveError, RangeIgnoredError, StoppedError
from .disk import DiskReader
from .hashing import Hasher, hasher
from .http1 import BrokenError, Connection, TrustError
from .journal import Journal
from .moving import Moving, Task, Wanted
from .parts import PART, Done, Part, expected_check, in_order
from .piece import DamagedError, Lane, Limits, Link, Patience, Piece, stalled
from .progress import Meter
from .rate import Bucket
from .receipt import Entry
from .runtime import Crc
from .sink import Sink, disk_error
from .source import Source
from .watch import Stop

#: Failures after which a peer is not asked any more by any file of the run.
_STRIKES = 2


@dataclass(frozen=True)
class Transfer:
    """What all files of a run share. sleep and chance are there to be replaced in tests."""

    context: ssl.SSLContext | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int = 8
    part_size: int = PART
    direct: bool = True
    bucket: Bucket = field(default_factory=Bucket)
    crc: Crc | None = None
    stop: Stop = field(default_factory=Stop)
    sleep: Callable[[float], None] | None = None
    chance: Callable[[], float] = random.random

    @property
    def check(self) -> str:
        """Algorithm of the checksums of parts."""
        return "crc64nvme" if self.crc else "crc32"


@dataclass(frozen=True)
class Outcome:
    """By path. What failed may be an ExpiredError or a ChangedError, which the controller can mend.

    stored: the parts of each file that came, in order, with the checksums of what was written. changed: the doubtful ones that were read back
    as others than they were written, and fetched again.
    """

    entries: dict[str, Entry]
    failures: dict[str, MoveError]
    stored: dict[str, tuple[Done, ...]] = field(default_factory=dict)
    changed: dict[str, tuple[Part, ...]] = field(default_factory=dict)


class Mover:
    """One run over some files."""

    def __init__(self, transfer: Transfer, journal: Journal, meter: Meter) -> None:
        self._transfer, self._journal, self._meter = transfer, journal, meter
        self._limits, self._clock = transfer.limits, transfer.limits.clock
        self._sleep = transfer.sleep or self._wait
        self._ready = threading.Condition()
        self._movings: list[Moving] = []
        self._open: list[Moving] = []
        self._dead: set[str] = set()
        self._strikes: dict[str, int] = {}

    def run(self, files: Iterable[Wanted]) -> Outcome:
        """Fetch all files; an error of one does not end the others, except for a full disk."""
        wanted = {one.file.path: one for one in files}
        order = in_order((one.file for one in wanted.values()), self._transfer.part_size)
        self._movings = [self._moving(wanted[file.path]) for file in order]
        self._open = list(self._movings)
        with ThreadPoolExecutor(max_workers=self._transfer.workers) as pool:
            for future in [pool.submit(self._work) for _index in range(self._transfer.workers)]:
                future.result()
        return Outcome(
            {moving.file.path: moving.entry for moving in self._movings if moving.entry},
            {moving.file.path: moving.error for moving in self._movings if moving.error},
            {moving.file.path: moving.stored for moving in self._movings if moving.entry},
            {moving.file.path: tuple(moving.changed) for moving in self._movings if moving.changed},
        )

    def _moving(self, wanted: Wanted) -> Moving:
        moving = Moving(wanted, self._chain(wanted), self._transfer.part_size)
        self._meter.resumed(wanted.bytes - moving.left)
        return moving

    def _chain(self, wanted: Wanted) -> Hasher | None:
        if wanted.keep is not None or wanted.file.algorithm in ("etag", self._transfer.check):
            return None
        return hasher(wanted.file.digest, self._transfer.crc, wanted.file.size)

    def _wait(self, seconds: float) -> None:
        self._transfer.stop.wait(seconds)

    # --- workers ------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        lane = Lane(self._connect)
        try:
            while (claimed := self._next()) is not None:
                self._do(lane, *claimed)
        finally:
            lane.close()

    def _connect(self, source: Source) -> Link:
        if source.kind == "disk":
            return DiskReader()
        return Connection(urlsplit(source.url), self._transfer.context, self._limits.connect, self._limits.read)

    def _next(self) -> tuple[Moving, Task] | None:
        """The next thing to do; waits while others may still give something. None: all is done."""
        with self._ready:
            while True:
                self._open = [moving for moving in self._open if not moving.over]
                now = self._clock()
                for moving in self._open:
                    task = moving.claim(now)
                    if task:
                        return moving, task
                if not self._open:
                    self._ready.notify_all()
                    return None
                self._ready.wait(0.2)

    def _do(self, lane: Lane, moving: Moving, task: Task) -> None:
        error: MoveError | None = MoveError("it was given up by a fault of the program; see the error of the task")
        try:
            if task.kind != "finish":
                self._go_on(moving)
            sink = self._sink(moving)
            actions = {"fetch": self._fetch, "check": self._check, "hash": self._hash, "finish": self._finish}
            actions[task.kind](lane, moving, sink, task)
            error = None
        except MoveError as failed:
            error = failed
        except OSError as failed:
            error = disk_error(moving.wanted.partial, moving.file.size, failed)
        finally:
            if error and error.disk_full:
                self._transfer.stop.set("the disk is full")
            with self._ready:
                moving.error = moving.error or error
                moving.returned()
                if moving.over and moving.sink:
                    moving.sink.close()
                self._ready.notify_all()
            if error:
                self._journal.failed(moving.file.path)

    def _sink(self, moving: Moving) -> Sink:
        """The partial file, opened by the first who needs it."""
        with moving.opening:
            if moving.sink is None:
                moving.wanted.target.parent.mkdir(parents=True, exist_ok=True)
                moving.sink = moving.wanted.open(self._transfer.direct and not moving.hasher)
                moving.moved_at = self._clock()
                if not moving.resumed:
                    self._journal.begin(moving.file, self._transfer.check)
            return moving.sink

    def _crc(self) -> Crc:
        return self._transfer.crc or zlib.crc32

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _check(self, lane: Lane, moving: Moving, sink: Sink, task: Task) -> None:
        """Read a part back that was written before the machine went down."""
        part, value = task.part, 0
        for view in sink.pieces(lane.view, part.offset, part.length):
            value = self._crc()(view, value)
        sink.release(part.offset, part.length)
        with self._ready:
            good = moving.checked(part, value)
        if good:
            self._journal.part(moving.file.path, Done(part, value))
        else:
            self._meter.lost(part.length)
        moving.moved_at = self._clock()

    def _hash(self, lane: Lane, moving: Moving, sink: Sink, task: Task) -> None:
        part = task.part
        for view in sink.pieces(lane.view, part.offset, part.length):
            if moving.hasher:
                moving.hasher.update(view)
        sink.release(part.offset, part.length)
        with self._ready:
            moving.hashed(part)

    def _finish(self, _lane: Lane, moving: Moving, sink: Sink, _task: Task) -> None:
        """Verify, make durable, write the journal's line, rename. A slice is only made durable: see Wanted.keep."""
        file = moving.file
        if moving.wanted.keep is not None:
            sink.finish()
            self._meter.file()
            with self._ready:
                moving.entry = Entry(file.path, file.size, file.digest, sink.mtime_ns())
            return None
        digest = moving.digest(self._transfer.check)
        if digest != file.digest:
            return self._wrong(moving, digest)
        sink.finish()
        entry = Entry(file.path, file.size, file.digest, sink.mtime_ns())
        self._journal.file(entry)
        moving.wanted.partial.replace(moving.wanted.target)
        self._meter.file()
        with self._ready:
            moving.entry = entry
        return None

    def _wrong(self, moving: Moving, digest: str) -> None:
        self._journal.begin(moving.file, self._transfer.check)
        if moving.from_peers:
            with self._ready:
                self._dead.update(urlsplit(url).netloc for url in moving.from_peers.values())
                self._meter.lost(moving.distrust(self._chain(moving.wanted)))
            for done in moving.done.values():
                self._journal.part(moving.file.path, done)
            return
        moving.wanted.partial.unlink(missing_ok=True)
        raise MoveError(
            f"expected {moving.file.digest}, got {digest}; the bytes were thrown away. Run again; if it stays so, the "
            "object is damaged in the store: upload it anew"
        )

    def _fetch(self, lane: Lane, moving: Moving, sink: Sink, task: Task) -> None:
        """One part, over as many tries and sources as it takes."""
        expected = expected_check(moving.file, task.part) if self._transfer.crc else None
        piece = Piece(moving.file, task.part, expected, self._crc(), task.stored)
        waits = Patience(self._limits.first_wait, self._limits.longest_wait, self._transfer.chance)
        odd = 0
        while True:
            source = self._source(moving)
            self._meter.lost(piece.begin_from(source))
            before = piece.taken
            try:
                self._pull(lane, moving, piece, source, sink)
                return
            except (BrokenError, TrustError, MoveError) as error:
                mine = isinstance(error, StoppedError) or getattr(error, "disk_full", False)
                if source.kind != "s3" and not mine:
                    if self._put_off(moving, source, error, task, piece):
                        return
                    continue
                odd += isinstance(error, (DamagedError, RangeIgnoredError))
                self._judge(moving, piece, error, odd)
                self._sleep(waits.next_wait(piece.taken > before))

    def _pull(self, lane: Lane, moving: Moving, piece: Piece, source: Source, sink: Sink) -> None:
        began, before = self._clock(), piece.taken

        def took(count: int) -> None:
            moving.moved_at = self._clock()
            self._meter.moved(source.kind, count)
            self._transfer.bucket.took(count)
            self._go_on(moving)
            limited = self._transfer.bucket.rate or source.kind != "peer"
            if not limited and self._limits.too_slow(piece.taken - before, moving.moved_at - began):
                raise BrokenError(f"{source.place} is too slow")

        self._go_on(moving)
        try:
            piece.pull(lane, source, sink, self._transfer.bucket.slice, took)
            piece.verify()
        except DamagedError:
            self._meter.lost(piece.taken)
            piece.restart()
            raise
        except BrokenError:
            lane.drop(source)
            raise
        for done in piece.written_parts():
            if not moving.hasher:
                sink.release(done.part.offset, done.part.length)
            self._journal.part(moving.file.path, done)
            if piece.expected is not None and moving.wanted.keep is not None:
                self._journal.proved(moving.file.path, done.part)
        with self._ready:
            moving.fetched(piece.written_parts(), source)

    def _go_on(self, moving: Moving) -> None:
        if self._transfer.stop.is_set():
            raise StoppedError(f"stopped, because {self._transfer.stop.reason}")
        if moving.error:
            raise StoppedError("stopped, because another part of it failed")

    def _source(self, moving: Moving) -> Source:
        with self._ready:
            source = moving.source(self._dead)
        if source is None:
            raise MoveError("no address was given for it; run the task through its action plugin, not the bare module")
        return source

    def _judge(self, moving: Moving, piece: Piece, error: Exception, odd: int) -> None:
        """Whether the store is to be asked again. Raises MoveError when not."""
        if isinstance(error, MoveError):
            raise error
        if isinstance(error, TrustError) or odd >= self._limits.tries:
            raise MoveError(f"{error}. {_ODD.get(type(error), '')}".strip()) from error
        silent = self._clock() - moving.moved_at
        if silent > self._limits.stall:
            raise stalled(self._limits, silent, piece, error) from error

    def _put_off(self, moving: Moving, source: Source, error: Exception, task: Task, piece: Piece) -> bool:
        """A peer did not give the part: whether it is to be asked later. Otherwise it is not asked again for this file."""
        absent = isinstance(error, AbsentError)
        unreachable = isinstance(error, BrokenError) and not piece.taken
        # A peer that answers is at work on what it has not got yet; one that does not is given a moment to come back.
        patience = source.patience_s if absent else min(source.patience_s, self._limits.unreachable)
        now = self._clock()
        with self._ready:
            since = moving.waiting_since.setdefault((source.url, absent), now)
            if (absent or unreachable) and not isinstance(error, GoneError) and now - since < patience:
                moving.put_back(task, now + min(1.0, patience / 20))
                return True
            moving.given_up.add(source.url)
            moving.moved_at = now
            if not absent:
                self._strikes[source.place] = self._strikes.get(source.place, 0) + 1
                if self._strikes[source.place] >= _STRIKES:
                    self._dead.add(source.place)
        return False


_ODD: dict[type, str] = {
    DamagedError: "It stays so: the object is damaged in the store, or something on the way changes it. Upload it anew",
    RangeIgnoredError: "It stays so: something between store and node does not know ranges; take it out of the way",
}
