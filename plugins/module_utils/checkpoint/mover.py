# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves one object into one file: a presigned GET, the digest on the way, resumed after a broken connection."""

from __future__ import annotations

import errno
import http.client
import os
import re
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from . import units
from .hashing import BUFFER, WINDOW, Hasher
from .manifest import PARTIAL, File
from .receipt import Entry


class MoveError(Exception):
    """This file did not arrive; the text says why and what to do. disk_full: no other file will fit either."""

    def __init__(self, text: str, disk_full: bool = False) -> None:
        super().__init__(text)
        self.disk_full = disk_full


class StoppedError(MoveError):
    """This file was given up because another one had filled the disk."""


class BrokenError(Exception):
    """The connection or the store failed in a way that the next try may mend."""


@dataclass(frozen=True)
class Limits:
    """Seconds. read: silence on one connection. stall: no byte of a file, over all its tries. Waits between tries double."""

    read: float = 30.0
    stall: float = 300.0
    first_wait: float = 0.5
    longest_wait: float = 15.0


@dataclass(frozen=True)
class Transfer:
    """What all files of a run share. sleep and clock are there to be replaced in tests."""

    context: ssl.SSLContext | None = None
    limits: Limits = field(default_factory=Limits)
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def move(file: File, url: str, target: Path, new_hasher: Callable[[], Hasher], transfer: Transfer) -> Entry:
    """Fetch file from url to target, verified and durable. Raises MoveError; no partial file stays behind."""
    partial = target.with_name(target.name + PARTIAL)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _Sink(partial, file, new_hasher, transfer.clock) as sink:
            _fill(file, url, sink, transfer)
            sink.finish()
        partial.replace(target)
        return Entry(file.path, file.size, file.digest, target.stat().st_mtime_ns)
    except OSError as error:
        raise _disk_error(partial, file, error) from error
    finally:
        partial.unlink(missing_ok=True)


def _disk_error(path: Path, file: File, error: OSError) -> MoveError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    cure = f"; {units.human(file.size)} were wanted: free space and run again" if full else ""
    return MoveError(f"cannot write {path}: {error.strerror}{cure}", disk_full=full)


class _Sink:
    """The partial file: preallocated, hashed as it fills, its pages dropped behind the writes."""

    def __init__(self, path: Path, file: File, new_hasher: Callable[[], Hasher], clock: Callable[[], float]) -> None:
        self._path, self._file, self._new_hasher, self._clock = path, file, new_hasher, clock
        self._descriptor = -1
        self._durable = 0
        self._hasher = new_hasher()
        self.offset = 0
        self.moved_at = clock()

    def __enter__(self) -> _Sink:
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        os.fchmod(self._descriptor, 0o644)
        if self._file.size:
            os.posix_fallocate(self._descriptor, 0, self._file.size)
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self._descriptor)

    def write(self, data: memoryview) -> None:
        """Append; an error of the disk is told apart here from one of the network, both being OSError."""
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], self.offset + done)
            self.offset += done
            if self.offset - self._durable >= WINDOW:
                os.fdatasync(self._descriptor)
                os.posix_fadvise(self._descriptor, self._durable, self.offset - self._durable, os.POSIX_FADV_DONTNEED)
                self._durable = self.offset
        except OSError as error:
            raise _disk_error(self._path, self._file, error) from error
        self._hasher.update(data)
        self.moved_at = self._clock()

    def restart(self) -> None:
        """Begin again: the server sends the whole object."""
        self.offset = self._durable = 0
        self._hasher = self._new_hasher()

    def finish(self) -> None:
        os.fsync(self._descriptor)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        got = self._hasher.digest()
        if got != self._file.digest:
            raise MoveError(
                f"expected {self._file.digest}, got {got}; the bytes were thrown away. Run again; if it stays so, the "
                "object is damaged in the store: upload it anew"
            )


def _fill(file: File, url: str, sink: _Sink, transfer: Transfer) -> None:
    """Streams until the file is whole, over as many connections as it takes."""
    limits = transfer.limits
    wait = limits.first_wait
    while sink.offset < file.size:
        before = sink.offset
        _go_on(file, sink, transfer.stop)
        try:
            _stream(file, url, sink, transfer)
        except BrokenError as broken:
            silent = transfer.clock() - sink.moved_at
            if silent + wait > limits.stall:
                raise MoveError(
                    f"no byte arrived for {silent:.0f} s (limit {limits.stall:.0f} s), stopped at {sink.offset} of "
                    f"{file.size} bytes; last: {broken}. Check the store and the way to it, then run again"
                ) from broken
            wait = limits.first_wait if sink.offset > before else min(2 * wait, limits.longest_wait)
            transfer.sleep(wait)


def _stream(file: File, url: str, sink: _Sink, transfer: Transfer) -> None:
    """One request, from where the sink stands."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=transfer.limits.read, context=transfer.context)
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=transfer.limits.read)
    )
    try:
        headers = {"If-Match": file.etag} if file.etag else {}
        if sink.offset:
            headers["Range"] = f"bytes={sink.offset}-"
        connection.request("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path, headers=headers)
        response = connection.getresponse()
        _judge(file, response, sink)
        _pour(file, response, sink, transfer.stop)
    except ssl.SSLCertVerificationError as error:
        raise MoveError(
            f"the certificate of {parts.netloc} is not trusted ({error.verify_message}); "
            "name its authority in ca_bundle (checkpoint_ca_bundle)"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise BrokenError(f"{parts.netloc}: {_said(error)}") from error
    finally:
        connection.close()


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _pour(file: File, response: http.client.HTTPResponse, sink: _Sink, stop: threading.Event) -> None:
    view = memoryview(bytearray(BUFFER))
    while sink.offset < file.size:
        _go_on(file, sink, stop)
        count = response.readinto(view[: min(BUFFER, file.size - sink.offset)])
        if not count:
            raise BrokenError(f"connection closed at {sink.offset} of {file.size} bytes")
        sink.write(view[:count])


def _go_on(file: File, sink: _Sink, stop: threading.Event) -> None:
    if stop.is_set():
        raise StoppedError(f"stopped at {sink.offset} of {file.size} bytes, because the disk is full")


def _judge(file: File, response: http.client.HTTPResponse, sink: _Sink) -> None:
    """Whether this answer brings the bytes that were asked for. Raises MoveError or BrokenError."""
    status = response.status
    if status not in (200, 206):
        raise _refusal(status, _error_code(response))
    etag = response.getheader("ETag")
    if file.etag and etag and etag.strip('"') != file.etag.strip('"'):
        raise MoveError(_changed(f"its ETag was {file.etag} and is {etag}"))
    if status == 200:
        if sink.offset:
            sink.restart()
        length = response.getheader("Content-Length")
        if length is not None and int(length) != file.size:
            raise MoveError(_changed(f"it had {file.size} bytes and has {length}"))
    else:
        content_range = response.getheader("Content-Range") or ""
        if not re.fullmatch(rf"bytes {sink.offset}-{file.size - 1}/{file.size}", content_range):
            raise BrokenError(
                f"asked for bytes {sink.offset}-{file.size - 1}/{file.size}, the store sent {content_range!r}"
            )


def _refusal(status: int, code: str) -> Exception:
    if status == 412:
        return MoveError(_changed("the store no longer has that ETag"))
    if status == 403:
        return MoveError(
            f"the store refused the signed address (403 {code}); it may have expired (option url_expiry_s) or the key "
            "lost its right to read. Run again: addresses are signed anew and finished files are kept"
        )
    if status == 404:
        return MoveError(
            f"the object is gone (404 {code}); it was there when the run was planned. Upload it, run again"
        )
    if status in (408, 416, 429) or status >= 500:
        return BrokenError(f"the store answered {status} {code}".strip())
    return MoveError(f"the store answered {status} {code}; expected 200 or 206")


def _changed(how: str) -> str:
    return f"the object changed since it was planned: {how}. Run again, which plans anew"


def _error_code(response: http.client.HTTPResponse) -> str:
    """The code in an S3 error document: never the document itself, which repeats parts of the signed request."""
    match = re.search(rb"<Code>([A-Za-z0-9]{1,64})</Code>", response.read(8192))
    return match.group(1).decode() if match else ""
