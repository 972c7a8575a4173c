# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP/1.1 connection that reads bodies straight into the caller's memory, with and without TLS.

http.client copies bodies through buffers of its own in small reads; most of a fast transfer's processor time went there.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult

_HEAD_LIMIT = 64 << 10
_FIRST_READ = 16 << 10
_MOMENT = 0.5


class BrokenError(Exception):
    """The connection or the store failed in a way that the next try may mend."""


class TrustError(Exception):
    """The server's certificate is not trusted."""


@dataclass(frozen=True)
class Answer:
    """The head of a response. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def length(self) -> int | None:
        text = self.headers.get("content-length", "")
        return int(text) if text.isascii() and text.isdigit() else None


class Connection:
    """Requests one after another over one socket. connect_s, timeout_s: until it stands, of silence. Raises BrokenError and TrustError, never OSError."""

    def __init__(self, origin: SplitResult, context: ssl.SSLContext | None, connect_s: float, timeout_s: float) -> None:
        self._netloc = origin.netloc
        self._left = 0
        self._ahead = b""
        self.reusable = False
        host = origin.hostname or ""
        port = origin.port or (443 if origin.scheme == "https" else 80)
        try:
            self._socket = socket.create_connection((host, port), timeout=connect_s)
        except OSError as error:
            raise BrokenError(f"{self._netloc}: {_said(error)}") from error
        # A blocking socket with the kernel's own time limit, so that one call can wait for a whole buffer (MSG_WAITALL).
        self._flags: int = socket.MSG_WAITALL
        if origin.scheme == "https":
            self._socket.settimeout(timeout_s)
            self._socket = self._wrapped(context or ssl.create_default_context(), host)
            self._flags = 0
        else:
            self._socket.settimeout(None)
            limit = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1_000_000))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def _wrapped(self, context: ssl.SSLContext, host: str) -> socket.socket:
        try:
            return context.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise TrustError(
                f"the certificate of {self._netloc} is not trusted ({error.verify_message}); "
                "name its authority in ca_bundle (checkpoint_ca_bundle)"
            ) from error
        except OSError as error:
            self.close()
            raise BrokenError(f"{self._netloc}: {_said(error)}") from error

    def close(self) -> None:
        self.reusable = False
        self._socket.close()

    def get(self, target: str, headers: Mapping[str, str]) -> Answer:
        """Send a request and read the head of its answer."""
        lines = [f"GET {target} HTTP/1.1", f"Host: {self._netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.reusable = False
        try:
            self._socket.sendall("\r\n".join([*lines, "Accept-Encoding: identity", "", ""]).encode("latin-1"))
            answer = self._parsed(self._head())
        except (OSError, UnicodeError) as error:
            raise BrokenError(f"{self._netloc}: {_said(error)}") from error
        self._left = answer.length or 0
        self._ahead = self._ahead[: self._left]
        return answer

    def _head(self) -> bytes:
        """Bytes up to the empty line; what came behind them belongs to the body."""
        seen = b""
        while (end := seen.find(b"\r\n\r\n")) < 0:
            more = self._socket.recv(_FIRST_READ)
            if not more:
                raise BrokenError(f"{self._netloc}: closed the connection instead of answering")
            seen += more
            if len(seen) > _HEAD_LIMIT:
                raise BrokenError(f"{self._netloc}: the head of the answer has more than {_HEAD_LIMIT} bytes")
        self._ahead = seen[end + 4 :]
        return seen[:end]

    def _parsed(self, head: bytes) -> Answer:
        first, *rest = head.decode("latin-1").split("\r\n")
        version, _space, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdigit():
            raise BrokenError(f"{self._netloc}: does not speak HTTP/1.1")
        pairs = (line.partition(":") for line in rest)
        headers = {name.strip().lower(): value.strip() for name, _colon, value in pairs}
        self.reusable = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        if "transfer-encoding" in headers:
            self.reusable = False  # no body of ours comes in chunks; what such an answer says is in its status
        return Answer(int(status[:3]), headers)

    def some(self, view: memoryview) -> int:
        """Bytes of the body into the view, as many as there is room for unless the network pauses; at least one."""
        if self._ahead:
            count = min(len(view), len(self._ahead))
            view[:count] = self._ahead[:count]
            self._ahead = self._ahead[count:]
            self._left -= count
            return count
        wanted = min(len(view), self._left)
        if not wanted:
            raise BrokenError(f"{self._netloc}: the answer is shorter than it should be")
        count = self._received(view[:wanted])
        self._left -= count
        return count

    def _received(self, view: memoryview) -> int:
        """TLS gives 16 KiB at a time, so it is asked again, for a moment; the kernel fills plain reads by itself."""
        count, until = 0, time.monotonic() + _MOMENT
        while count < len(view):
            try:
                got = self._socket.recv_into(view[count:], len(view) - count, self._flags)
            except OSError as error:
                if count:
                    break  # these bytes are good; the next call meets the error again
                raise BrokenError(f"{self._netloc}: {_said(error)}") from error
            count += got
            if self._flags or not got or time.monotonic() > until:
                break
        if not count:
            raise BrokenError(f"{self._netloc}: closed the connection {self._left} bytes before the end of its answer")
        return count

    def text(self, limit: int = 8192) -> bytes:
        """The beginning of a small body, for the code of an error; the connection is of no use after it."""
        self.reusable = False
        view = memoryview(bytearray(min(limit, self._left)))
        done = 0
        try:
            while done < len(view):
                done += self.some(view[done:])
        except BrokenError:
            pass  # what came is enough, or nothing is
        return bytes(view[:done])


def _said(error: Exception) -> str:
    if isinstance(error, (BlockingIOError, TimeoutError)):
        return "silent for too long"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
