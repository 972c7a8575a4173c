"""A forwarding TCP proxy that counts: how many bytes a server sent to each client address."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections import Counter
from types import TracebackType

_CHUNK = 1 << 18


class CountProxy:
    """Listens on address:port and passes everything to upstream (host, port) and back, unchanged."""

    def __init__(self, address: str, port: int, upstream: tuple[str, int]) -> None:
        self.sent: Counter[str] = Counter()
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError), socket.create_connection(upstream, timeout=30) as server:
                    server.settimeout(None)
                    back = threading.Thread(target=self.pump, args=(server, self.request, True), daemon=True)
                    back.start()
                    self.pump(self.request, server, False)
                    back.join()

            def pump(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
                with contextlib.suppress(OSError):
                    while data := source.recv(_CHUNK):
                        target.sendall(data)
                        if counted:
                            with proxy.lock:
                                proxy.sent[self.client_address[0]] += len(data)
                with contextlib.suppress(OSError):
                    target.shutdown(socket.SHUT_WR)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 128

        self.lock = threading.Lock()
        self.server = Server((address, port), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def bytes(self) -> int:
        with self.lock:
            return sum(self.sent.values())

    def __enter__(self) -> CountProxy:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
