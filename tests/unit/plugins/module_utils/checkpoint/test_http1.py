# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection against a server that says what a test wants, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.http1 import BrokenError, Connection


@contextlib.contextmanager
def saying(*answers, close=True):
    """A server for one connection: each answer is sent when a request has come. Gives the address and the requests."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            client, _address = server.accept()
            with client, contextlib.suppress(OSError):
                for text in answers:
                    heard.append(client.recv(65536))
                    client.sendall(text)
                if not close:
                    client.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield urlsplit(f"http://127.0.0.1:{server.getsockname()[1]}"), heard
        thread.join(5)


def connect(origin, timeout_s=2):
    return Connection(origin, None, 2, timeout_s)


def body(connection, size):
    view = memoryview(bytearray(size))
    done = 0
    while done < size:
        done += connection.some(view[done:])
    return bytes(view)


def test_two_requests_over_one_connection():
    first = b'HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nETag: "e"\r\n\r\nhello'
    second = b"HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nyou"
    with saying(first, second) as (origin, heard):
        connection = connect(origin)
        answer = connection.get("/a?b", {"Range": "bytes=0-4"})
        assert (answer.status, answer.length, answer.headers["etag"]) == (206, 5, '"e"')
        assert body(connection, 5) == b"hello" and connection.reusable
        assert connection.get("/c", {}).status == 200
        assert body(connection, 3) == b"you"
        connection.close()
    assert heard[0].startswith(b"GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:") and b"\r\nRange: bytes=0-4\r\n" in heard[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "closed the connection instead of answering"),
        (b"HTTP/1.1 200 OK\r\nContent-", "closed the connection instead of answering"),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "does not speak HTTP/1.1"),
        (b"HTTP/1.1 OK\r\n\r\n", "does not speak HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * (70 << 10), "the head of the answer has more than"),
    ],
)
def test_what_is_no_answer(text, said):
    with saying(text) as (origin, _heard):
        connection = connect(origin)
        with pytest.raises(BrokenError, match=said):
            connection.get("/", {})
        connection.close()


def test_a_short_body():
    with saying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel") as (origin, _heard):
        connection = connect(origin)
        connection.get("/", {})
        with pytest.raises(BrokenError, match="closed the connection 2 bytes before the end"):
            body(connection, 5)


def test_more_than_was_announced_is_not_taken():
    with saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello") as (origin, _heard):
        connection = connect(origin)
        connection.get("/", {})
        assert body(connection, 3) == b"hel"
        with pytest.raises(BrokenError, match="shorter than it should be"):
            connection.some(memoryview(bytearray(1)))


def test_silence_has_a_limit():
    with saying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", close=False) as (origin, _heard):
        connection = connect(origin, 0.2)
        connection.get("/", {})
        with pytest.raises(BrokenError, match="silent for too long"):
            body(connection, 5)
        connection.close()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 0",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
    ],
)
def test_connections_that_end_are_not_used_again(head):
    with saying(head + b"\r\n\r\n") as (origin, _heard):
        connection = connect(origin)
        connection.get("/", {})
        assert not connection.reusable


def test_the_text_of_an_error_is_read_as_far_as_it_comes():
    with saying(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n<Code>X</Code>") as (origin, _heard):
        connection = connect(origin)
        connection.get("/", {})
        assert connection.text() == b"<Code>X</Code>" and not connection.reusable


def test_a_port_where_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BrokenError, match=rf"127\.0\.0\.1:{port}: Connection refused"):
        connect(urlsplit(f"http://127.0.0.1:{port}"))
