"""A forwarding HTTP proxy that flips one bit of one object on its way: what a bad cable, memory or disk does to a download."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


class FlipProxy:
    """Listens on address:port, forwards to upstream (host:port), damages bodies of GETs whose path ends with victim.

    The Host header passes unchanged, so addresses signed for the proxy stay valid at the server.
    """

    def __init__(self, address: str, port: int, upstream: str, victim: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.forward()

            def do_HEAD(self) -> None:
                self.forward()

            def forward(self) -> None:
                connection = http.client.HTTPConnection(upstream, timeout=30)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
                connection.request(self.command, self.path, headers=headers)
                response = connection.getresponse()
                body = bytearray(response.read())
                if self.command == "GET" and self.path.split("?")[0].endswith(victim) and body:
                    body[len(body) // 2] ^= 1
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                        self.send_header(name, value)
                length = response.getheader("Content-Length") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(body)
                connection.close()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer((address, port), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> FlipProxy:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
