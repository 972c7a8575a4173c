# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends a staging that nobody follows any more: a controller that was interrupted cannot end what it started on nodes.

Two signs of it. Whoever reads the result has closed the other end of the output: seen at once. A transfer that runs by itself
has a reader on the node, so there the controller touches a file (the lease) whenever it looks how far the transfer is.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ..host import HostError

#: Seconds that the controller may be silent; it looks every few.
LEASE_S = 60
#: Seconds for transfers to end by themselves, after which the process ends as it is. Any state on the disk can be gone on from.
GRACE_S = 20.0
#: Age of a lease, in seconds, from which its controller seems to be gone.
_STALE_S = 15.0

Sign = Callable[[], str]


class Stop:
    """Ends all transfers of a run; the first reason stays."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason = ""

    def set(self, reason: str) -> None:
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


class Lease:
    """A file that the controller touches. How long ago is counted here, from the last change that was seen."""

    def __init__(self, path: Path, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._limit, self._clock = path, limit_s, clock
        try:
            path.touch()
        except OSError as error:
            raise HostError(f"cannot write {path}: {error.strerror}") from error
        self._seen = self._time()
        self._seen_at = clock()

    def _time(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0

    def __call__(self) -> str:
        """Why the run is to end, or an empty text."""
        seen, now = self._time(), self._clock()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        silent = now - self._seen_at
        if silent <= self._limit:
            return ""
        return f"the controller gave no sign for {silent:.0f} s (limit {self._limit:g} s)"


def unread(descriptor: int = 1) -> str:
    """Why the run is to end when the other end of this pipe or socket is closed, an empty text otherwise."""
    poll = select.poll()
    poll.register(descriptor, 0)  # POLLERR and POLLHUP are always told
    gone = any(event & (select.POLLERR | select.POLLHUP) for _descriptor, event in poll.poll(0))
    return "the controller is gone: nobody reads the result" if gone else ""


def followed(directory: Path) -> bool:
    """Whether a staging in this directory has a lease that was renewed of late."""
    now = time.time()  # beside the file's time, which is of the same clock
    for path in directory.glob("*.lease"):
        try:
            if now - path.stat().st_mtime <= _STALE_S:
                return True
        except OSError:
            continue
    return False


def lock_patience(directory: Path) -> float:
    """Seconds to wait for the lock of these stagings: as long as a run whose controller is gone may take to end.

    A lease that was new at first is that of a controller only when it still is after a while. A short transfer has none, and can outlive its
    controller too: what started it there, or the connection, may still be there.
    """
    return _STALE_S + 5 if followed(directory) else LEASE_S + GRACE_S + 10


class Watch:
    """Looks at the signs while a block runs. force: ends the process when the block does not end in the time of grace."""

    def __init__(
        self,
        stop: Stop,
        signs: Iterable[Sign],
        pace_s: float = 1.0,
        grace_s: float = GRACE_S,
        force: Callable[[], object] = lambda: os._exit(1),
    ) -> None:
        self._stop, self._signs, self._pace, self._grace, self._force = stop, tuple(signs), pace_s, grace_s, force
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._pace):
            reason = next((text for text in (sign() for sign in self._signs) if text), "")
            if reason:
                self._stop.set(reason)
                if not self._end.wait(self._grace):
                    self._force()
                return
