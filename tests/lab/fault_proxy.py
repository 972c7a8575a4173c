# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A forwarding HTTP proxy between nodes and S3 that injects what networks and stores do, to the requests that a test names."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


@dataclass(frozen=True)
class Asked:
    """A request for bytes of a file. node: address of the client. number: how many of this node and file came before."""

    node: str
    file: str
    range: str
    number: int


@dataclass
class Reply:
    """What the store said; a fault may change it before it is sent."""

    status: int
    headers: dict[str, str]
    body: bytearray


class HangUpError(Exception):
    """End the connection after sending that many bytes of the body; reset: rudely."""

    def __init__(self, after: int, reset: bool) -> None:
        super().__init__()
        self.after, self.reset = after, reset


class SilenceError(Exception):
    """Send one byte of the body and nothing more, for as long as the client waits."""


#: Changes the reply, or raises one of the above.
Fault = Callable[[Asked, Reply], None]


def answer(status: int, code: str, message: str = "") -> Fault:
    def fault(asked: Asked, reply: Reply) -> None:
        reply.status = status
        reply.headers.clear()
        reply.body[:] = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

    return fault


def reset(asked: Asked, reply: Reply) -> None:
    raise HangUpError(len(reply.body) // 2, reset=True)


def truncate(asked: Asked, reply: Reply) -> None:
    raise HangUpError(len(reply.body) // 2, reset=False)


def flip(asked: Asked, reply: Reply) -> None:
    reply.body[len(reply.body) // 2] ^= 1


def silence(asked: Asked, reply: Reply) -> None:
    raise SilenceError


class FaultProxy:
    """Listens on address:port and forwards to upstream (host:port).

    The Host header passes unchanged, so addresses signed for the proxy stay valid at the server. faults: what to do to a
    request, None for nothing. whole: files of which the range of a request is not passed on. seen: all GETs. sent: bytes of objects by
    node and file.
    """

    def __init__(self, address: str, port: int, upstream: str, faults: Callable[[Asked], Fault | None]) -> None:
        self.upstream, self.faults = upstream, faults
        self.seen: list[Asked] = []
        self.hurt: list[Asked] = []
        self.sent: Counter[tuple[str, str]] = Counter()
        self.whole: Callable[[Asked], bool] = lambda _asked: False
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self.server = ThreadingHTTPServer((address, port), type("BoundHandler", (Handler,), {"proxy": self}))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def asked(self, node: str, path: str, range_: str) -> Asked:
        file = path.partition("?")[0].rpartition("/")[2]
        with self._lock:
            found = Asked(node, file, range_, self._counts[node, file])
            self._counts[node, file] += 1
            self.seen.append(found)
        return found

    def count(self, asked: Asked, sent: int) -> None:
        with self._lock:
            self.sent[asked.node, asked.file] += sent

    def __enter__(self) -> FaultProxy:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def do_HEAD(self) -> None:
        reply = self.forward(dict(self.headers.items()))
        self.start(reply)

    def do_GET(self) -> None:
        asked = self.proxy.asked(self.client_address[0], self.path, self.headers.get("Range", ""))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        if asked.range and self.proxy.whole(asked):
            headers.pop("Range")
            self.proxy.hurt.append(asked)
        # Only bytes are hurt: listings and the small reads of the controller have no Range.
        fault = self.proxy.faults(asked) if asked.range else None
        reply = self.forward(headers)
        with contextlib.suppress(OSError):
            self.send(asked, reply, fault)

    def send(self, asked: Asked, reply: Reply, fault: Fault | None) -> None:
        whole = len(reply.body)
        try:
            if fault:
                self.proxy.hurt.append(asked)
                fault(asked, reply)
            self.start(reply)
            self.wfile.write(reply.body)
            self.proxy.count(asked, len(reply.body))
        except HangUpError as end:
            self.start(reply, whole)
            self.wfile.write(reply.body[: end.after])
            self.wfile.flush()
            if end.reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
        except SilenceError:
            self.start(reply, whole)
            self.wfile.write(reply.body[:1])
            self.wfile.flush()
            self.connection.recv(1)
            self.close_connection = True

    def forward(self, headers: dict[str, str]) -> Reply:
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
        try:
            connection.request(self.command, self.path, headers=headers)
            response = connection.getresponse()
            kept = {
                name: value
                for name, value in response.getheaders()
                if name.lower() not in ("connection", "transfer-encoding", "date", "server")
            }
            return Reply(response.status, kept, bytearray(response.read()))
        finally:
            connection.close()

    def start(self, reply: Reply, length: int | None = None) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            if self.command == "HEAD" or name.lower() != "content-length":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(reply.body) if length is None else length))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Tests read ``FaultProxy.seen``."""
