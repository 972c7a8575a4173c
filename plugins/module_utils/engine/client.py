# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests to an OpenAI-compatible server: plain, direct (a proxy of the environment has no part in it), bounded in time."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .asking import Answer, Request
from .events import Assembly

_BODY_LIMIT = 32 << 20
_LINE_LIMIT = 1 << 20
_GET_TIMEOUT = 10.0  # s; pages that a healthy server answers at once


class Client:
    """One server. timeout in seconds, for a whole request; key: a bearer token, sent only when given."""

    def __init__(self, url: str, timeout: float, key: str = "") -> None:
        self.parts = urllib.parse.urlsplit(url)
        self.timeout = timeout
        self.headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}

    def send(self, request: Request) -> Answer:
        """The answer, or why there is none; raises nothing that a server can cause."""
        started = time.monotonic()
        kind = http.client.HTTPSConnection if self.parts.scheme == "https" else http.client.HTTPConnection
        timeout = min(self.timeout, _GET_TIMEOUT) if request.body is None else self.timeout
        connection = kind(self.parts.hostname or "", self.parts.port, timeout=timeout)
        try:
            body = None if request.body is None else json.dumps(request.body)
            path = self.parts.path.rstrip("/") + request.path
            connection.request("GET" if body is None else "POST", path, body, self.headers)
            reply = connection.getresponse()
            if request.stream and reply.status == 200:
                return self._stream(reply, started)
            text = reply.read(_BODY_LIMIT).decode("utf-8", "replace")
            return Answer(reply.status, text, seconds=time.monotonic() - started)
        except TimeoutError:
            return Answer(error=f"no answer within {timeout:g} s", seconds=time.monotonic() - started)
        except (OSError, http.client.HTTPException) as error:
            return Answer(error=getattr(error, "strerror", None) or str(error) or type(error).__name__)
        finally:
            connection.close()

    def _stream(self, reply: http.client.HTTPResponse, started: float) -> Answer:
        """The socket's timeout bounds each read, the clock the whole."""
        assembly, first = Assembly(), 0.0
        while not assembly.ended:
            line = reply.readline(_LINE_LIMIT)
            now = time.monotonic() - started
            if not line:
                break
            if now > self.timeout:
                return Answer(
                    200, assembly.body(), f"the stream did not end within {self.timeout:g} s", now, first, False
                )
            if assembly.take(line.decode("utf-8", "replace")) and not first:
                first = now
        return Answer(200, assembly.body(), assembly.error, time.monotonic() - started, first, assembly.ended)

    def send_all(self, requests: Sequence[Request], together: bool) -> list[Answer]:
        """One after the other, or all at the same time."""
        if not together:
            return [self.send(request) for request in requests]
        with ThreadPoolExecutor(max_workers=max(len(requests), 1)) as pool:
            return list(pool.map(self.send, requests))


def page(client: Client, path: str) -> str:
    """The text of a page such as /metrics; empty when the server has none."""
    answer = client.send(Request(path))
    return answer.body if answer.status == 200 else ""


def told(client: Client, path: str) -> Mapping[str, Any]:
    """The JSON of a page such as /version; empty when the server has none."""
    answer = client.send(Request(path))
    return answer.data() if answer.status == 200 else {}
