# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the supervisors of a group talk: words of the kinds below, each proved and acknowledged as memory/guard_notice.py has it.

A copy runs on the nodes without Ansible, so this file imports the standard library and its siblings only.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..memory import guard_notice
from ..memory.guard_machine import WARNING, say

STATE, ORDER, TAIL = "state", "order", "tail"
STATE_EVERY_S = 1.0
WORD_LIMIT = 1200  # characters: with quotes and the proof it still fits a packet
RECEIVE = 4096
_IP_FREEBIND = 15  # the address may come up after the supervisor


class Heard(NamedTuple):
    """A neighbour's word."""

    node: str
    kind: str
    text: str


class Outbox:
    """What one neighbour is to be told, in the order of its urgency: orders, then the own state, then logs."""

    def __init__(self) -> None:
        self.orders: deque[str] = deque()
        self.tails: deque[str] = deque()
        self.said = ""
        self.said_at = float("-inf")

    def next(self, state: str, now: float) -> tuple[str, str] | None:
        if self.orders:
            return ORDER, self.orders.popleft()
        if changed(state, self.said) or now - self.said_at >= STATE_EVERY_S:
            self.said, self.said_at = state, now
            return STATE, state
        return (TAIL, self.tails.popleft()) if self.tails else None


def changed(state: str, said: str) -> bool:
    """Whether a state says something new; its age alone does not."""
    if not said:
        return True
    one, other = json.loads(state), json.loads(said)
    return {**one, "age": 0} != {**other, "age": 0}


class Channel:
    """One socket on the management plane. names: node by address. state: what the own node says of itself now."""

    def __init__(self, node: str, place: tuple[str, int], names: Mapping[str, str], state: Callable[[], str]) -> None:
        self.place = place
        self.names = dict(names)
        self._state = state
        self._teller = guard_notice.Teller(node, limit=WORD_LIMIT)
        self._listeners = {address: guard_notice.Listener(kinds=(STATE, ORDER, TAIL)) for address in names}
        self._boxes = {name: Outbox() for name in names.values()}
        self._socket: socket.socket | None = None
        self._warned = False

    @property
    def listening(self) -> bool:
        return self._socket is not None

    def order(self, node: str, values: Mapping[str, Any]) -> None:
        self._boxes[node].orders.append(json.dumps(values))

    def tail(self, words: list[str]) -> None:
        """Send a log to everybody, in place of one that is not sent yet."""
        for box in self._boxes.values():
            box.tails = deque(words)

    def open(self) -> None:
        if self._socket is not None:
            return
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            made.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
            made.setblocking(False)
            made.bind(self.place)
        except OSError as error:
            made.close()
            if not self._warned:
                say(WARNING, f"the other ranks are not heard: {self.place[0]}:{self.place[1]}: {error.strerror}")
            self._warned = True
            return
        self._socket, self._warned = made, False

    def talk(self, seconds: float, token: str) -> list[Heard]:
        """Say what is due and listen, for so long or until there is something to act upon."""
        heard: list[Heard] = []
        end = time.monotonic() + seconds
        while True:
            self._send_due(token)
            left = end - time.monotonic()
            if left <= 0 or any(word.kind != TAIL for word in heard):
                return heard
            if self._socket is None:
                time.sleep(left)
            elif select.select([self._socket], [], [], min(left, guard_notice.REPEAT_S))[0]:
                heard += self._receive(token)

    def _send_due(self, token: str) -> None:
        now, state = time.monotonic(), self._state()
        for address, name in self.names.items():
            if address not in self._teller.words:
                word = self._boxes[name].next(state, now)
                if word:
                    self._teller.tell(address, *word, now)
            self._teller.refresh(address, STATE, state)
        self._teller.given_up(now)
        for address, message in self._teller.due(now, token):
            self._send(address, message)

    def _send(self, address: str, message: guard_notice.Message) -> None:
        if not message or self._socket is None:
            return
        try:
            self._socket.sendto(guard_notice.encode(message), (address, self.place[1]))
        except OSError:
            return  # no route, full buffer: it is sent again

    def _receive(self, token: str) -> list[Heard]:
        if self._socket is None:
            return []
        try:
            data, (address, _port) = self._socket.recvfrom(RECEIVE)
        except OSError:
            return []  # a neighbour's port was closed when the last datagram came
        if address not in self.names:
            return []
        message = guard_notice.decode(data)
        self._teller.refresh(address, STATE, self._state())
        reply, _stopped = self._teller.hear(address, message, token, time.monotonic())
        if reply:
            self._send(address, reply)
            return []
        taken = self._listeners[address].take(message, token)
        self._send(address, taken.reply)
        return [Heard(self.names[address], taken.kind, taken.text)] if taken.kind else []
