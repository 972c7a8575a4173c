# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mover against a real server on loopback, with faults to order."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import socket
import threading
from dataclasses import replace

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import mover
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.hashing import hasher
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.mover import Limits, MoveError, Transfer, move
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Stat
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import answer, drop_after, flip_at, ignore_range

SIZE = 3_500_000
BODY = random.Random(1).randbytes(SIZE)
CRC = f"crc64nvme:{checksums.crc64nvme(BODY):016x}"
MD5 = "md5:" + hashlib.md5(BODY).hexdigest()
FAST = Limits(read=5, stall=2, first_wait=0.01, longest_wait=0.02)


@pytest.fixture
def store():
    with object_server.serving(shard=BODY, empty=b"") as running:
        yield running


def file(path="shard", digest=CRC, size=SIZE, etag=None):
    return File(path, size, f'"etag-of-{path}"' if etag is None else etag, digest)


def fetch(store, wanted, target, **transfer):
    settings = Transfer(**{"limits": FAST, **transfer})
    return move(wanted, store.url(wanted.path), target, lambda: hasher(wanted.digest, checksums.crc64nvme), settings)


@pytest.mark.parametrize("digest", [CRC, MD5, "sha256:" + hashlib.sha256(BODY).hexdigest(), "etag:etag-of-shard"])
def test_a_file_arrives(store, tmp_path, digest):
    target = tmp_path / "sub/shard"
    entry = fetch(store, file(digest=digest), target)
    assert target.read_bytes() == BODY
    assert entry.matches(stat_of(target)) and entry.digest == digest
    assert [path.name for path in target.parent.iterdir()] == ["shard"]
    assert target.stat().st_mode & 0o777 == 0o644
    assert store.requests("shard")[0]["If-Match"] == '"etag-of-shard"'


def stat_of(path):
    stat = path.stat()
    return Stat(stat.st_size, stat.st_mtime_ns)


def test_an_empty_file_needs_no_request(store, tmp_path):
    fetch(store, file("empty", "crc64nvme:" + "0" * 16, 0), tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""
    assert store.seen == []


def test_a_broken_connection_is_resumed_where_it_broke(store, tmp_path):
    store.faults["shard"] = [drop_after(1_200_000), drop_after(2_000_000)]
    fetch(store, file(), tmp_path / "shard")
    assert (tmp_path / "shard").read_bytes() == BODY
    ranges = [headers.get("Range") for headers in store.requests("shard")]
    assert ranges == [None, "bytes=1200000-", "bytes=3200000-"]
    assert all(headers["If-Match"] for headers in store.requests("shard"))


def test_a_store_that_ignores_the_range_starts_the_file_over(store, tmp_path):
    store.faults["shard"] = [drop_after(1_200_000), ignore_range]
    fetch(store, file(), tmp_path / "shard")
    assert (tmp_path / "shard").read_bytes() == BODY


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_store_in_trouble_is_asked_again(store, tmp_path, status):
    store.faults["shard"] = [answer(status, "SlowDown"), answer(status, "SlowDown")]
    waits = []
    fetch(store, file(), tmp_path / "shard", sleep=waits.append)
    assert waits == [0.02, 0.02]
    assert len(store.requests("shard")) == 3


def test_waits_double_up_to_the_longest(store, tmp_path):
    store.faults["shard"] = [answer(500, "x")] * 4
    waits = []
    limits = replace(FAST, first_wait=1, longest_wait=5, stall=100)
    fetch(store, file(), tmp_path / "shard", limits=limits, sleep=waits.append)
    assert waits == [2, 4, 5, 5]


@pytest.mark.parametrize(
    ("faults", "wanted", "texts"),
    [
        ([flip_at(2_000_000)], file(), [f"expected {CRC}, got crc64nvme:", "thrown away", "Run again"]),
        ([flip_at(2_000_000)], file(digest=MD5), [f"expected {MD5}, got md5:"]),
        ([], file(etag='"an older etag"'), ["changed since it was planned", "Run again"]),
        ([answer(403, "AccessDenied")], file(), ["403 AccessDenied", "signed anew", "url_expiry_s"]),
        ([answer(404, "NoSuchKey")], file(), ["the object is gone"]),
        ([answer(400, "BadRequest")], file(), ["400 BadRequest", "expected 200 or 206"]),
        ([], file(size=SIZE - 1), [f"it had {SIZE - 1} bytes and has {SIZE}"]),
        ([], file(size=SIZE + 1), [f"it had {SIZE + 1} bytes and has {SIZE}"]),
    ],
)
def test_what_a_try_cannot_mend_ends_the_file(store, tmp_path, faults, wanted, texts):
    store.faults["shard"] = faults
    with pytest.raises(MoveError) as caught:
        fetch(store, wanted, tmp_path / "shard")
    assert all(text in str(caught.value) for text in texts)
    assert "secret-signature" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert len(store.requests("shard")) == 1


def test_an_object_that_changes_between_two_parts_is_never_mixed(store, tmp_path):
    def drop_and_change(handler, body, start):
        drop_after(1_200_000)(handler, body, start)
        store.etags["shard"] = '"another"'
        return True

    store.faults["shard"] = [drop_and_change]
    with pytest.raises(MoveError, match="changed since it was planned"):
        fetch(store, file(), tmp_path / "shard")
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_if_match_is_caught_by_the_etag_of_its_answer(store, tmp_path):
    def other_object(handler, body, start):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", '"another"')
        handler.end_headers()
        handler.wfile.write(body)
        return True

    store.faults["shard"] = [other_object]
    with pytest.raises(MoveError, match=r"its ETag was .*shard.* and is .*another"):
        fetch(store, file(), tmp_path / "shard")


def test_silence_ends_with_the_last_state(store, tmp_path):
    store.faults["shard"] = [drop_after(1_200_000)] + [answer(503, "SlowDown")] * 1000
    now = [0.0]

    def sleep(seconds):
        now[0] += 30

    with pytest.raises(MoveError) as caught:
        fetch(store, file(), tmp_path / "shard", clock=lambda: now[0], sleep=sleep, limits=replace(FAST, stall=300))
    text = str(caught.value)
    assert "no byte arrived for 300 s (limit 300 s)" in text
    assert f"of {SIZE} bytes" in text and "503 SlowDown" in text
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_not_there_is_waited_for_and_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    now = [0.0]
    transfer = Transfer(
        limits=replace(FAST, stall=10), clock=lambda: now[0], sleep=lambda _s: now.__setitem__(0, now[0] + 4)
    )
    with pytest.raises(MoveError, match=rf"127\.0\.0\.1:{port}: .*refused"):
        move(file(), f"http://127.0.0.1:{port}/shard", tmp_path / "shard", lambda: hasher(MD5, None), transfer)


def test_https_to_a_plain_server_is_not_a_crash(store, tmp_path):
    url = store.url("shard").replace("http:", "https:")
    with pytest.raises(MoveError, match="no byte arrived"):
        move(file(), url, tmp_path / "shard", lambda: hasher(MD5, None), Transfer(limits=replace(FAST, stall=0.01)))


@pytest.mark.parametrize(("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_disk_that_refuses_is_told_from_the_network(store, tmp_path, monkeypatch, number, full):
    def refuse(*_arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(mover.os, "posix_fallocate", refuse)
    with pytest.raises(MoveError, match="cannot write") as caught:
        fetch(store, file(), tmp_path / "shard")
    assert caught.value.disk_full is full
    assert ("3.5 MB were wanted" in str(caught.value)) is full
    assert store.seen == [] and list(tmp_path.iterdir()) == []


def test_a_write_that_fails_midway_is_not_retried(store, tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(mover.os, "pwrite", refuse)
    with pytest.raises(MoveError, match="No space left") as caught:
        fetch(store, file(), tmp_path / "shard")
    assert caught.value.disk_full
    assert len(store.requests("shard")) == 1


def test_a_full_disk_elsewhere_stops_this_file_too(store, tmp_path):
    stop = threading.Event()
    stop.set()
    with pytest.raises(mover.StoppedError, match="disk is full"):
        fetch(store, file(), tmp_path / "shard", stop=stop)
    assert list(tmp_path.iterdir()) == []


def test_pages_are_dropped_behind_the_writes(store, tmp_path, monkeypatch):
    dropped = []
    monkeypatch.setattr(mover, "WINDOW", 1 << 20)
    monkeypatch.setattr(
        mover.os, "posix_fadvise", lambda _fd, offset, length, _advice: dropped.append((offset, length))
    )
    fetch(store, file(), tmp_path / "shard")
    assert dropped[0][0] == 0 and len(dropped) >= 4
    assert dropped[-1] == (0, 0)
