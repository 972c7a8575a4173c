# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows a staging that runs on a node by itself: says how far it is, finds out that it ended, or that it is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.progress import Progress, line, parse


class LostError(Exception):
    """The process on the node is gone without a result; its text is the message for the user."""


@dataclass(frozen=True)
class Node:
    """How to ask a node. progress: text of its progress file, empty when there is none. status: what async_status says.

    wanted: whether anybody waits for the result.
    """

    name: str
    progress: Callable[[], str]
    status: Callable[[], Mapping[str, Any]]
    wanted: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Pace:
    """Seconds. look: between looks. say: between lines at least. repeat: until a line without news. lost: without any sign."""

    look: float = 2.0
    say: float = 5.0
    repeat: float = 30.0
    lost: float = 120.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Follower:
    """say: shows a line, or None to be quiet."""

    def __init__(self, node: Node, say: Callable[[str], None] | None, pace: Pace | None = None) -> None:
        self._node, self._say, self._pace = node, say, pace or Pace()
        self._seen: Progress | None = None
        self._said: Progress | None = None
        self._said_at = self._sign_at = self._pace.clock()

    def wait(self) -> Mapping[str, Any]:
        """The result of the process. Raises LostError."""
        while True:
            self._pace.sleep(self._pace.look)
            if not self._node.wanted():
                raise LostError(f"{self._node.name}: the run that wanted the result is gone")
            found = parse(self._node.progress())
            if found and (self._seen is None or found.tick != self._seen.tick):
                self._seen, self._sign_at = found, self._pace.clock()
                self._tell(found)
                continue
            status = self._node.status()
            if status.get("finished"):
                return status
            silent = self._pace.clock() - self._sign_at
            if silent > self._pace.lost:
                raise LostError(self._lost(silent))

    def _tell(self, found: Progress) -> None:
        since = self._pace.clock() - self._said_at
        if self._say is None or since < self._pace.say:
            return
        before = self._said.done_bytes if self._said else 0
        if found.done_bytes - before < found.total_bytes / 100 and since < self._pace.repeat:
            return
        self._said, self._said_at = found, self._pace.clock()
        self._say(line(self._node.name, found))

    def _lost(self, silent: float) -> str:
        last = line(self._node.name, self._seen) if self._seen else f"{self._node.name}: nothing was heard of it"
        return (
            f"{self._node.name}: the staging process gave no sign for {silent:.0f} s (limit {self._pace.lost:.0f} s); it was "
            f"killed, or the node hangs. Last: {last}. Run again: what has come is kept"
        )
