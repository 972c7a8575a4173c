# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ranks find each other at the head's rendezvous port, agree on the model, and notice when one of them goes.

Unlike vLLM 0.32, where nothing watches the other nodes, a rank here ends within two seconds of the loss of any other, which makes
the loss visible on every node. With GB10_LAB_BLIND it is as blind as vLLM: what ends it then is somebody else's doing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from . import EngineError

BEAT = 0.4  # s between signs of life
SILENCE = 2.0  # s without one until the peer counts as dead
BLIND = "GB10_LAB_BLIND"
_RETRY = 0.2
_HELLO = 2.0

Log = Callable[[str], None]


@dataclass(frozen=True)
class Hello:
    """What a rank says first. model: fingerprint of config.json and the index."""

    rank: int
    tensor_parallel: int
    model: str


class Link:
    """One connection to another rank: beats in both directions; its loss is put into the queue as (link, text)."""

    def __init__(self, connection: socket.socket, peer: str, events: queue.SimpleQueue[tuple[Link, str]]) -> None:
        self.peer = peer
        self.started = threading.Event()
        self.lost = ""
        self._connection = connection
        self._events = events
        self._sending = threading.Lock()
        for work in (self._read, self._beat):
            threading.Thread(target=work, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        with self._sending:
            send(self._connection, message)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _beat(self) -> None:
        with contextlib.suppress(OSError):
            while not self.lost:
                self.send({"beat": True})
                time.sleep(BEAT)

    def _read(self) -> None:
        self._connection.settimeout(SILENCE)
        reason = "closed the connection"
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if "start" in message:
                        self.started.set()
                    if "down" in message:
                        reason = message["down"]
                        break
        except TimeoutError:
            reason = f"has been silent for {SILENCE:g} s"
        except (OSError, ValueError) as error:
            reason = f"was lost: {error}"
        self.lost = reason if reason.startswith("rank ") else f"{self.peer} {reason}"
        self._events.put((self, self.lost))


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket) -> dict[str, Any]:
    """One message, read byte by byte so that nothing of the next one is taken."""
    data = b""
    while not data.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte or len(data) > 4096:
            raise ValueError("no message")
        data += byte
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("no message")
    return message


class Group:
    """The ranks of one engine, as one of them sees it."""

    def __init__(self, me: Hello, address: str, port: int, log: Log) -> None:
        self.me = me
        self.address = address
        self.port = port
        self.links: dict[int, Link] = {}
        self._events: queue.SimpleQueue[tuple[Link, str]] = queue.SimpleQueue()
        self._log = log

    def join(self, timeout: float) -> None:
        """Come together with all other ranks within timeout seconds. Raises EngineError."""
        deadline = time.monotonic() + timeout
        if self.me.tensor_parallel == 1:
            return
        if self.me.rank == 0:
            self._lead(deadline, timeout)
        else:
            self._follow(deadline, timeout)

    def watch(self) -> None:
        """Wait until another rank is lost, tell the rest, and raise EngineError with the reason."""
        while True:
            link, reason = self._events.get()
            if BLIND in os.environ:
                self._log(f"{reason}; this rank goes on, as vLLM would")
            elif link in self.links.values():
                break
        for other in self.links.values():
            if other is not link:
                with contextlib.suppress(OSError):
                    other.send({"down": reason})
        raise EngineError(f"{reason}; the group is broken, rank {self.me.rank} ends too")

    def leave(self, reason: str) -> None:
        """Tell the others why this rank goes, and close."""
        for link in self.links.values():
            with contextlib.suppress(OSError):
                link.send({"down": f"rank {self.me.rank} {reason}"})
            link.close()

    def _listen(self, deadline: float, timeout: float) -> socket.socket:
        """Listen at the master address; retried like vLLM's store does, until the timeout."""
        while True:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((self.address, self.port))
                listener.listen(16)
                return listener
            except OSError as error:
                listener.close()
                why = error.strerror or str(error)
                if error.errno == errno.EADDRNOTAVAIL:
                    why = "not an address of this machine"
                if time.monotonic() > deadline:
                    raise EngineError(
                        f"cannot listen at {self.address}:{self.port}: {why} (gave up after {timeout:g} s)"
                    ) from error
            time.sleep(_RETRY)

    def _lead(self, deadline: float, timeout: float) -> None:
        wanted = set(range(1, self.me.tensor_parallel))
        with self._listen(deadline, timeout) as listener:
            listener.settimeout(_RETRY)
            self._log(f"rendezvous at {self.address}:{self.port}: waiting for ranks {sorted(wanted)}")
            while self.links.keys() != wanted:
                if time.monotonic() > deadline:
                    missing = ", ".join(str(rank) for rank in sorted(wanted - self.links.keys()))
                    raise EngineError(f"rank {missing} did not join at {self.address}:{self.port} within {timeout:g} s")
                for rank in [rank for rank, link in self.links.items() if link.lost]:
                    self._log(f"{self.links.pop(rank).lost} before the start; waiting for it again")
                with contextlib.suppress(TimeoutError):
                    self._welcome(*listener.accept())
        for link in self.links.values():
            with contextlib.suppress(OSError):  # a loss at this moment is seen by watch
                link.send({"start": True})

    def _welcome(self, connection: socket.socket, origin: tuple[str, int]) -> None:
        connection.settimeout(_HELLO)
        try:
            hello = Hello(**_receive(connection))
        except (OSError, ValueError, TypeError):
            connection.close()  # not a rank: a port scan, say
            return
        refusal = self._refusal(hello, origin[0])
        if refusal:
            with contextlib.suppress(OSError):
                send(connection, {"refused": refusal})
            connection.close()
            raise EngineError(refusal)
        send(connection, {"welcome": True})
        self.links[hello.rank] = Link(connection, f"rank {hello.rank} ({origin[0]})", self._events)
        self._log(f"rank {hello.rank} joined from {origin[0]}")

    def _refusal(self, hello: Hello, origin: str) -> str:
        who = f"rank {hello.rank} ({origin})"
        if hello.tensor_parallel != self.me.tensor_parallel:
            return f"{who} runs tensor parallel size {hello.tensor_parallel}, rank 0 runs {self.me.tensor_parallel}"
        if not 0 < hello.rank < self.me.tensor_parallel:
            return f"{who} is no worker of a group of {self.me.tensor_parallel}"
        if hello.model != self.me.model:
            return f"{who} has another model: its config.json or index differs from rank 0's ({hello.model[:12]}, not {self.me.model[:12]})"
        link = self.links.get(hello.rank)
        return f"{who} joined twice: two nodes have this rank" if link and not link.lost else ""

    def _follow(self, deadline: float, timeout: float) -> None:
        connection = self._connect(deadline, timeout)
        connection.settimeout(max(1.0, deadline - time.monotonic()))
        try:
            send(connection, asdict(self.me))
            answer = _receive(connection)
        except (OSError, ValueError) as error:
            raise EngineError(f"rank 0 at {self.address}:{self.port} did not answer: {error}") from error
        if "refused" in answer:
            raise EngineError(f"rank 0 refused this rank: {answer['refused']}")
        link = self.links[0] = Link(connection, f"rank 0 ({self.address})", self._events)
        while not link.started.wait(_RETRY):
            if link.lost:
                raise EngineError(f"{link.lost} before the group was complete")
            if time.monotonic() > deadline:
                raise EngineError(f"the group was not complete within {timeout:g} s")

    def _connect(self, deadline: float, timeout: float) -> socket.socket:
        announced = False
        while True:
            try:
                return socket.create_connection(
                    (self.address, self.port), timeout=min(5.0, max(0.5, deadline - time.monotonic()))
                )
            except OSError as error:
                why = error.strerror or str(error)
            if not announced:
                self._log(f"rank 0 at {self.address}:{self.port} is not there yet ({why}): retrying for {timeout:g} s")
                announced = True
            if time.monotonic() > deadline:
                raise EngineError(f"could not reach rank 0 at {self.address}:{self.port} within {timeout:g} s: {why}")
            time.sleep(_RETRY)
