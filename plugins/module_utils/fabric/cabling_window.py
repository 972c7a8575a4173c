# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the cabling probe listens, and what it counts. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .frames import Hello, Received

LINGER = 2.0  # seconds to go on for a node that was heard for the first time, and after all nodes have started
ABANDONED = 120.0  # seconds after which nobody will ask for the result any more
STRANGERS = 8  # addresses of other senders that are kept for a port; more say nothing more

# None as long as nobody asks for the result, then how many seconds ago all nodes had started.
Wanted = Callable[[], "float | None"]


@dataclass(frozen=True)
class Timing:
    """Seconds. duration: of the probe where every port has carrier. carrier_timeout: how long to wait for those that have none."""

    duration: float
    carrier_timeout: float


class Window:
    """When to stop: some time after all nodes have started, which this node knows when its result is asked for.

    Ports that others set up gain their carrier late: that moves the end too, within a limit.
    """

    def __init__(self, start: float, timing: Timing) -> None:
        self._patience = start + timing.carrier_timeout
        self._limit = self._patience + timing.duration
        self._duration = timing.duration
        self._end = start + timing.duration
        self._abandoned = start + ABANDONED
        self._wanted = False

    def wanted(self, now: float, since: float = 0.0) -> None:
        """The result is asked for, and so all nodes had started, since seconds ago; called again it changes nothing."""
        if not self._wanted:
            self._wanted = True
            self._end = max(self._end, now - since + LINGER)

    def gained(self, now: float) -> None:
        """A port has got carrier: both its ends need the whole duration from here."""
        self._end = max(self._end, min(now + self._duration, self._limit))

    def met(self, now: float) -> None:
        """A sender was heard for the first time: it has just started, and must hear us too."""
        self._end = max(self._end, min(now + LINGER, self._limit))

    def closed(self, now: float, waiting: bool) -> bool:
        """waiting: a port has no carrier yet."""
        if not self._wanted:
            return now >= self._abandoned
        return now >= self._end and not (waiting and now < self._patience)


@dataclass
class Tally:
    """What one port has sent and heard; senders in the order in which they were heard first."""

    sent: int = 0
    heard: dict[Hello, int] = field(default_factory=dict)
    strangers: dict[str, int] = field(default_factory=dict)

    def add(self, received: Received) -> bool:
        """Count a frame; whether its sender is a new one of the probe."""
        if received.hello is None:
            if received.mac in self.strangers or len(self.strangers) < STRANGERS:
                self.strangers[received.mac] = self.strangers.get(received.mac, 0) + 1
            return False
        new = received.hello not in self.heard
        if new and len(self.heard) >= 64:  # 8 nodes of 4 netdevs each, and room for strangers
            return False
        self.heard[received.hello] = self.heard.get(received.hello, 0) + 1
        return new

    def listing(self) -> list[dict[str, Any]]:
        return [{**hello.__dict__, "count": count} for hello, count in self.heard.items()]
