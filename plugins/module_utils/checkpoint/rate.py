# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A limit to the bytes a second that all connections of a staging take together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_MOST = 4 << 20


class Bucket:
    """Bytes are paid for after they were taken: who took more than there was waits until it would have been there.

    rate: bytes a second, 0 for no limit. clock and sleep are there to be replaced in tests.
    """

    def __init__(
        self,
        rate: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rate = rate
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._paid_until = clock()

    @property
    def slice(self) -> int:
        """Bytes to take at a time, so that a low limit does not come in bursts."""
        return _MOST if not self.rate else max(16 << 10, min(_MOST, self.rate // 16))

    def took(self, count: int) -> None:
        if not self.rate:
            return
        with self._lock:
            now = self._clock()
            # Nothing is saved up while the network is idle, or the pause would be followed by a burst.
            self._paid_until = max(self._paid_until, now) + count / self.rate
            wait = self._paid_until - now
        if wait > 0:
            self._sleep(wait)
