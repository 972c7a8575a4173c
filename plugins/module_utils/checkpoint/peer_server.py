# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives finished files of a staging to neighbours: read only, behind a token, on given addresses, for as long as they come.

200 and 206: a file that was verified. 404: not here yet, ask again. 410: not here, and the staging that would bring it has
ended, or has given it up. Run as a program by peer_unit.py, with a file of settings that it deletes.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from .layout import Layout
from .shelf import Shelf

_SLICE = 4 << 20
_CONNECTIONS = 128
_IP_FREEBIND = 15


@dataclass
class Staging:
    """Whether the staging of this node goes on, as its progress file says, which is written once a second.

    begin_s: how long it may take to begin. pause_s: without news until it counts as ended. Called by many threads.
    """

    progress: Path
    begin_s: float = 300.0
    pause_s: float = 120.0
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)
    seen: int = field(init=False, default=0)
    seen_at: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def goes_on(self) -> bool:
        now = self.clock()
        with contextlib.suppress(OSError):
            stamp = self.progress.stat().st_mtime_ns
            if stamp != self.seen:
                self.seen, self.seen_at = stamp, now
        if self.seen:
            return now - self.seen_at < self.pause_s
        return now - self.started < self.begin_s


@dataclass(kw_only=True)
class Door:
    """What all connections to a server share. asked_at: when somebody with the token was there last."""

    token: str = field(repr=False)
    asked_at: float = field(default_factory=time.monotonic)
    places: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(_CONNECTIONS))

    def path(self, target: str) -> str | None:
        """The path below the token, or None when the token is another one."""
        token, _slash, path = target.lstrip("/").partition("/")
        return unquote(path) if hmac.compare_digest(token.encode(), self.token.encode()) else None


@dataclass
class Room(Door):
    """What this server gives away."""

    shelf: Shelf
    staging: Staging


def wanted(header: str, size: int) -> tuple[int, int] | None:
    """First byte and the one behind the last of what a Range header asks for, or None when there are no such bytes."""
    if not header:
        return 0, size
    match = re.fullmatch(r"bytes=(\d{1,19})-(\d{0,19})", header)
    if not match:
        return None
    start, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
    return (start, end) if start < end else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "gb10-ring", ""
    timeout = 60.0
    room: Room

    def do_GET(self) -> None:
        self._give(body=True)

    def do_HEAD(self) -> None:
        self._give(body=False)

    def _give(self, body: bool) -> None:
        path = self.room.path(self.path)
        if path is None:
            return self._empty(403)
        self.room.asked_at = time.monotonic()
        found = self.room.shelf.open(path)
        if found is None:
            coming = self.room.staging.goes_on() and not self.room.shelf.failed(path)
            return self._empty(404 if coming else 410)
        with found as file:
            size = os.fstat(file.fileno()).st_size
            part = wanted(self.headers.get("Range", ""), size)
            if part is None:
                return self._empty(416)
            self._head(part, size)
            if body:
                self._send(file, *part)
        return None

    def _head(self, part: tuple[int, int], size: int) -> None:
        start, end = part
        ranged = "Range" in self.headers
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()

    def _send(self, file: BinaryIO, start: int, end: int) -> None:
        """The bytes, without a copy, and without leaving them in the page cache, which is the GPU's loss."""
        position = start
        while position < end:
            count = self.connection.sendfile(file, position, min(_SLICE, end - position))
            if not count:
                self.close_connection = True
                return
            position += count
            # From the start: pages that were still on their way when their slice had been sent can be dropped later only.
            os.posix_fadvise(file.fileno(), start, position - start, os.POSIX_FADV_DONTNEED)

    def _empty(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the token is in every request line."""


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """One address. netdev: the only one that packets may come by, so that the address answers on the fabric alone."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], netdev: str, room: Door, handler: type[BaseHTTPRequestHandler]
    ) -> None:
        self.room, self.netdev = room, netdev
        super().__init__(address, type("BoundHandler", (handler,), {"room": room}))

    def server_bind(self) -> None:
        if self.netdev:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.netdev.encode())
        # A cable that is out takes its address away for a while; the other ways are no worse for that.
        self.socket.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.room.places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a neighbour that hung up asks again, or somebody else."""


@contextlib.contextmanager
def serving(
    room: Door, listen: list[Mapping[str, str]], port: int, handler: type[BaseHTTPRequestHandler] = Handler
) -> Iterator[list[Server]]:
    """Listen on all addresses while the block runs. Raises OSError, with the address in its text."""
    servers: list[Server] = []
    threads = []
    try:
        for row in listen:
            try:
                servers.append(Server((row["address"], port), row["netdev"], room, handler))
            except OSError as error:
                raise OSError(error.errno, f"{row['address']}:{port} on {row['netdev']}: {error.strerror}") from error
        for server in servers:
            threads.append(threading.Thread(target=server.serve_forever, daemon=True))
            threads[-1].start()
        yield servers
    finally:
        for server in servers[: len(threads)]:
            server.shutdown()
        for server in servers:
            server.server_close()


def notify(text: str) -> None:
    """Tell systemd, where that is who started us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect("\0" + address[1:] if address.startswith("@") else address)
            sender.sendall(text.encode())


def wait(room: Room, stop: threading.Event, idle_s: float, pace_s: float = 5.0) -> None:
    """Until told to stop, or until nobody has asked for a while and this node's own staging has ended."""
    while not stop.wait(pace_s):
        if time.monotonic() - room.asked_at > idle_s and not room.staging.goes_on():
            return


def main(settings_path: str) -> None:
    path = Path(settings_path)
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    layout = Layout(settings["root"], settings["name"])
    shelf = Shelf(layout, settings["revision"], settings["digests"])
    room = Room(shelf, Staging(layout.progress(settings["revision"])), token=settings["token"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        with serving(room, settings["listen"], settings["port"]):
            notify("READY=1")
            wait(room, stop, settings["idle_s"])
    except OSError as error:
        raise SystemExit(f"cannot listen on {error.strerror}") from error  # the journal has it, the unit has failed
    finally:
        shelf.release()


if __name__ == "__main__":
    main(sys.argv[1])
