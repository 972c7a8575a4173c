# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mover against a real server on loopback, with faults to order."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import socket
import threading
from dataclasses import replace

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import journal as journals
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import parts, sink
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.answers import (
    ChangedError,
    ExpiredError,
    StoppedError,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK, File
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.mover import Mover, Transfer
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.moving import Wanted
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.piece import Limits
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.progress import Meter
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.rate import Bucket
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Stat
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.source import Source
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import (
    answer,
    drop_after,
    expired,
    flip_at,
    ignore_range,
    reset_after,
    stall,
)

SIZE = 3_500_001
PART = 1 << 20
BODY = random.Random(1).randbytes(SIZE)
CRC = f"crc64nvme:{checksums.crc64nvme(BODY):016x}"
MD5 = "md5:" + hashlib.md5(BODY).hexdigest()
FAST = Limits(connect=2, read=5, stall=2, first_wait=0.01, longest_wait=0.02)
PARTS = ["0-1048575", "1048576-2097151", "2097152-3145727", "3145728-3500000"]


@pytest.fixture
def store():
    with object_server.serving(shard=BODY, empty=b"") as running:
        yield running


def file(path="shard", digest=CRC, size=SIZE, etag=None, chunks=()):
    return File(path, size, f'"etag-of-{path}"' if etag is None else etag, digest, chunks=chunks)


class Run:
    """One mover in a directory, with what it left there."""

    def __init__(self, directory, *wanted, **transfer):
        self.directory, self.wanted, self.meter = directory, wanted, Meter()
        settings = {"limits": FAST, "crc": checksums.crc64nvme, "part_size": PART, "workers": 4, "chance": lambda: 1.0}
        self.transfer = Transfer(**{**settings, **transfer})
        self.outcome = None

    def go(self):
        with contextlib.closing(journals.Journal(self.directory / "journal")) as journal:
            self.outcome = Mover(self.transfer, journal, self.meter).run(self.wanted)
        return self

    @property
    def error(self):
        (error,) = self.outcome.failures.values()
        return error

    def record(self, boot=None):
        text = (self.directory / "journal").read_text()
        return journals.parse(text, journals.boot_id() if boot is None else boot)


def wanted(store, directory, one, sources=None, begun=None):
    return Wanted(
        one,
        (Source(store.url(one.path)),) if sources is None else sources,
        directory / "sub" / one.path,
        trusted=begun.trusted if begun else (),
        doubtful=begun.doubtful if begun else (),
    )


def fetch(store, directory, one=None, sources=None, begun=None, **transfer):
    return Run(directory, wanted(store, directory, one or file(), sources, begun), **transfer).go()


def whole(run, body=BODY, path="shard"):
    target = run.directory / "sub" / path
    assert run.outcome.failures == {}
    assert target.read_bytes() == body
    assert [found.name for found in target.parent.iterdir()] == [path]
    stat = target.stat()
    assert run.outcome.entries[path].matches(Stat(stat.st_size, stat.st_mtime_ns))
    return True


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(
    "digest",
    [
        CRC,
        MD5,
        "sha256:" + hashlib.sha256(BODY).hexdigest(),
        "gitblob:" + hashlib.sha1(b"blob %d\0" % SIZE + BODY).hexdigest(),
        "etag:etag-of-shard",
    ],
)
def test_a_file_arrives_in_parts(store, tmp_path, digest, direct):
    run = fetch(store, tmp_path, file(digest=digest), direct=direct)
    assert whole(run) and run.outcome.entries["shard"].digest == digest
    assert (tmp_path / "sub/shard").stat().st_mode & 0o777 == 0o644
    assert sorted(store.ranges("shard")) == sorted(PARTS)
    assert store.requests("shard")[0]["If-Match"] == '"etag-of-shard"'
    assert run.meter.numbers()["s3_bytes"] == SIZE


def test_an_empty_file_needs_no_request(store, tmp_path):
    assert whole(fetch(store, tmp_path, file("empty", "crc64nvme:" + "0" * 16, 0)), b"", "empty")
    assert store.seen == []


def test_small_files_go_first_then_the_largest(store, tmp_path):
    sizes = {"large": 2 * PART, "small": 10, "larger": 3 * PART, "tiny": 1}
    files = []
    for path, size in sizes.items():
        store.objects[path] = BODY[:size]
        files.append(file(path, f"crc64nvme:{checksums.crc64nvme(BODY[:size]):016x}", size))
    Run(tmp_path, *(wanted(store, tmp_path, one) for one in files), workers=1).go()
    paths = [path for path, _headers in store.seen]
    assert list(dict.fromkeys(paths)) == ["tiny", "small", "larger", "large"]


def test_a_connection_serves_many_parts(store, tmp_path):
    ports = []
    original = object_server.Handler.handle

    def counted(handler):
        ports.append(handler.client_address)
        original(handler)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_server.Handler, "handle", counted)
        fetch(store, tmp_path, workers=2)
    assert len(ports) <= 2


@pytest.mark.parametrize("broken", [drop_after(300_000), reset_after(300_000)])
def test_a_broken_connection_is_resumed_where_it_broke(store, tmp_path, broken):
    store.faults["shard"] = [broken]
    run = fetch(store, tmp_path, workers=1)
    assert whole(run)
    assert store.ranges("shard")[0] == PARTS[0]
    # A reset may take bytes with it that the kernel had not handed over.
    start, end = store.ranges("shard")[1].split("-")
    assert 0 <= int(start) <= 300_000 and end == "1048575"
    assert store.ranges("shard")[2:] == PARTS[1:]
    assert all(headers["If-Match"] for headers in store.requests("shard"))


def test_a_body_that_ends_early_goes_on_at_its_end(store, tmp_path):
    store.faults["shard"] = [drop_after(300_000)]
    run = fetch(store, tmp_path, workers=1)
    assert whole(run) and store.ranges("shard")[1] == "300000-1048575"
    assert run.meter.numbers()["s3_bytes"] == SIZE


def test_a_silent_connection_is_left_and_the_part_goes_on(store, tmp_path):
    store.faults["shard"] = [stall]
    run = fetch(store, tmp_path, workers=1, limits=replace(FAST, read=0.3))
    assert whole(run) and store.ranges("shard")[1] == "1-1048575"


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_store_in_trouble_is_asked_again(store, tmp_path, status):
    store.faults["shard"] = [answer(status, "SlowDown")] * 3
    waits = []
    run = fetch(store, tmp_path, workers=1, sleep=waits.append)
    assert whole(run) and waits == [0.01, 0.02, 0.02]
    assert len(store.requests("shard")) == 7


def test_waits_double_up_to_the_longest_and_have_chance_in_them(store, tmp_path):
    store.faults["shard"] = [answer(500, "x")] * 5
    waits = []
    limits = replace(FAST, first_wait=1, longest_wait=5, stall=100)
    fetch(store, tmp_path, workers=1, limits=limits, sleep=waits.append, chance=lambda: 0.0)
    assert waits == [0.5, 1, 2, 2.5, 2.5]


@pytest.mark.parametrize(
    ("faults", "one", "expected"),
    [
        ([flip_at(2_000_000)] * 4, file(), (None, [f"expected {CRC}, got crc64nvme:", "thrown away", "Run again"])),
        ([flip_at(2_000_000)] * 4, file(digest=MD5), (None, [f"expected {MD5}, got md5:"])),
        ([], file(etag='"an older etag"'), (ChangedError, ["changed since it was planned", "Run again"])),
        ([answer(403, "AccessDenied")] * 4, file(), (None, ["403 AccessDenied", "no right to read"])),
        ([expired] * 4, file(), (ExpiredError, ["expired", "url_expiry_s"])),
        ([answer(404, "NoSuchKey")] * 4, file(), (None, ["the object is gone"])),
        ([answer(416, "InvalidRange")] * 4, file(), (ChangedError, ["416 InvalidRange"])),
        ([answer(400, "BadRequest")] * 4, file(), (None, ["400 BadRequest", "expected 200 or 206"])),
        ([answer(307, "TemporaryRedirect")] * 4, file(), (None, ["307 TemporaryRedirect"])),
        ([], file(size=SIZE - 1), (ChangedError, [f"it had {SIZE - 1} bytes and has {SIZE}"])),
        ([], file(size=SIZE + 1), (ChangedError, [f"it had {SIZE + 1} bytes and has {SIZE}"])),
        ([ignore_range] * 12, file(), (None, ["sent the whole object (200)", "does not know ranges"])),
    ],
)
def test_what_a_try_cannot_mend_ends_the_file(store, tmp_path, faults, one, expected):
    kind, texts = expected
    store.faults["shard"] = faults
    run = fetch(store, tmp_path, one)
    assert all(text in str(run.error) for text in texts), run.error
    assert "secret-signature" not in str(run.error)
    assert kind is None or isinstance(run.error, kind)
    assert not (tmp_path / "sub/shard").exists()


def test_the_whole_object_instead_of_a_range_is_asked_for_again(store, tmp_path):
    store.faults["shard"] = [ignore_range, ignore_range]
    assert whole(fetch(store, tmp_path))


def test_wrong_bytes_are_thrown_away(store, tmp_path):
    store.faults["shard"] = [flip_at(2_000_000)] * 4
    fetch(store, tmp_path)
    assert list((tmp_path / "sub").iterdir()) == []


def test_an_object_that_changes_between_two_parts_is_never_mixed(store, tmp_path):
    def send_and_change(handler, body, start):
        store.etags["shard"] = '"another"'
        return False

    store.faults["shard"] = [send_and_change]
    assert isinstance(fetch(store, tmp_path, workers=1).error, ChangedError)
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["shard.partial"]


def test_a_store_without_if_match_is_caught_by_the_etag_of_its_answer(store, tmp_path):
    def other_object(handler, body, start):
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{SIZE}")
        handler.send_header("Content-Length", str(len(body) - start))
        handler.send_header("ETag", '"another"')
        handler.end_headers()
        handler.wfile.write(body[start:])
        return True

    store.faults["shard"] = [other_object] * 4
    error = fetch(store, tmp_path).error
    assert isinstance(error, ChangedError) and "its ETag was" in str(error)


def test_silence_ends_with_the_last_state(store, tmp_path):
    store.faults["shard"] = [drop_after(100_000)] + [answer(503, "SlowDown")] * 1000
    now = [0.0]

    def sleep(seconds):
        now[0] += 30

    limits = replace(FAST, stall=300, clock=lambda: now[0])
    text = str(fetch(store, tmp_path, workers=1, limits=limits, sleep=sleep).error)
    assert "no byte arrived for 330 s (limit 300 s)" in text
    assert f"of {SIZE}" in text and "503 SlowDown" in text


def test_a_store_that_is_not_there_is_waited_for_and_named(store, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    now = [0.0]
    run = fetch(
        store,
        tmp_path,
        sources=(Source(f"http://127.0.0.1:{port}/shard"),),
        workers=1,
        limits=replace(FAST, stall=10, clock=lambda: now[0]),
        sleep=lambda _seconds: now.__setitem__(0, now[0] + 4),
    )
    assert f"127.0.0.1:{port}: Connection refused" in str(run.error)


def test_https_to_a_plain_server_is_not_a_crash(store, tmp_path):
    url = store.url("shard").replace("http:", "https:")
    run = fetch(store, tmp_path, sources=(Source(url),), limits=replace(FAST, stall=0.01))
    assert "no byte arrived" in str(run.error)


def test_without_an_address_the_way_to_call_it_is_named(store, tmp_path):
    assert "through its action plugin" in str(fetch(store, tmp_path, sources=()).error)


# --- the disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_disk_that_refuses_is_told_from_the_network(store, tmp_path, monkeypatch, number, full):
    def refuse(*_arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sink.os, "posix_fallocate", refuse)
    run = fetch(store, tmp_path)
    assert "cannot write" in str(run.error) and run.error.disk_full is full
    assert ("the file has 3.5 MB" in str(run.error)) is full
    assert store.seen == []


def test_a_write_that_fails_midway_is_not_retried_and_what_came_is_kept(store, tmp_path, monkeypatch):
    real, calls = os.pwrite, []

    def refuse(*arguments):
        calls.append(arguments)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(sink.os, "pwrite", refuse)
    run = fetch(store, tmp_path, workers=1)
    assert run.error.disk_full and "free space and run again" in str(run.error)
    assert len(store.requests("shard")) == 3
    monkeypatch.undo()
    store.seen.clear()
    assert whole(fetch(store, tmp_path, begun=run.record().begun["shard"], workers=1))
    assert store.ranges("shard") == PARTS[2:]


def test_a_full_disk_stops_the_other_files(store, tmp_path):
    stop = threading.Event()
    stop.set()
    run = fetch(store, tmp_path, stop=stop)
    assert isinstance(run.error, StoppedError) and "disk is full" in str(run.error)


def test_a_file_system_without_direct_writes_is_written_through_the_cache(store, tmp_path, monkeypatch):
    real, ranges = os.open, []

    def refuse(path, flags, *mode):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(path, flags, *mode)

    monkeypatch.setattr(sink.os, "open", refuse)
    monkeypatch.setattr(sink, "_sync_range", lambda _fd, offset, length, flags: ranges.append((offset, length, flags)))
    assert whole(fetch(store, tmp_path, workers=1))
    # Written behind at once, waited for and dropped at the end of each part.
    assert ranges[:2] == [(0, PART, 2), (0, PART, 7)]


@pytest.mark.parametrize("digest", [CRC, MD5])
def test_nothing_stays_in_the_page_cache(store, tmp_path, monkeypatch, digest):
    dropped = []
    real = os.posix_fadvise
    monkeypatch.setattr(sink.os, "posix_fadvise", lambda fd, *range_: dropped.append(range_) or real(fd, *range_))
    assert whole(fetch(store, tmp_path, file(digest=digest), direct=False))
    assert {(0, PART, 4), (PART, PART, 4), (0, 0, 4)} <= set(dropped)


# --- resume -------------------------------------------------------------------------------------------------------


def interrupted(store, directory, one=None):
    """A run that ends after two parts."""
    store.faults["shard"] = [lambda *_asked: False] * 2 + [answer(403, "x")]
    run = fetch(store, directory, one, workers=1)
    assert run.outcome.entries == {}
    store.seen.clear()
    store.faults["shard"] = []
    return run


@pytest.mark.parametrize("digest", [CRC, MD5])
def test_a_second_run_fetches_only_the_parts_that_are_missing(store, tmp_path, digest):
    first = interrupted(store, tmp_path, file(digest=digest))
    run = fetch(store, tmp_path, file(digest=digest), begun=first.record().begun["shard"])
    assert whole(run) and sorted(store.ranges("shard")) == PARTS[2:]
    assert run.meter.numbers()["resumed_bytes"] == 2 * PART


@pytest.mark.parametrize("damaged", [False, True])
def test_parts_from_before_a_reboot_are_read_back(store, tmp_path, damaged):
    first = interrupted(store, tmp_path)
    if damaged:
        with (tmp_path / "sub/shard.partial").open("r+b") as partial:
            partial.seek(PART + 5)
            partial.write(b"\0" * 4096)
    run = fetch(store, tmp_path, begun=first.record(boot="another boot").begun["shard"])
    assert whole(run) and sorted(store.ranges("shard")) == PARTS[1 if damaged else 2 :]
    assert run.record().begun == {} and set(run.record().files) == {"shard"}


def test_parts_of_another_size_are_used(store, tmp_path):
    first = interrupted(store, tmp_path)
    run = fetch(store, tmp_path, begun=first.record().begun["shard"], part_size=4 * PART)
    assert whole(run) and store.ranges("shard") == ["2097152-3500000"]


# --- checksums of chunks ------------------------------------------------------------------------------------------

LONG = random.Random(3).randbytes(2 * CHUNK + 1000)
CHUNKS = tuple(f"{checksums.crc64nvme(LONG[start : start + CHUNK]):016x}" for start in range(0, len(LONG), CHUNK))


@pytest.fixture
def long_file(store):
    store.objects["long"] = LONG
    return file("long", f"crc64nvme:{checksums.crc64nvme(LONG):016x}", len(LONG), chunks=CHUNKS)


def test_a_damaged_part_is_fetched_again_alone(store, tmp_path, long_file):
    store.faults["long"] = [flip_at(CHUNK + 7)] * 3  # the first of them meets the first part, which has no such byte
    run = fetch(store, tmp_path, long_file, part_size=CHUNK, workers=1)
    assert whole(run, LONG, "long")
    first, second, third = f"0-{CHUNK - 1}", f"{CHUNK}-{2 * CHUNK - 1}", f"{2 * CHUNK}-{2 * CHUNK + 999}"
    assert store.ranges("long") == [first, second, second, second, third]


def test_a_part_that_stays_damaged_ends_the_file(store, tmp_path, long_file):
    store.faults["long"] = [flip_at(CHUNK + 7)] * 10
    run = fetch(store, tmp_path, long_file, part_size=CHUNK, workers=1)
    assert f"bytes {CHUNK}-{2 * CHUNK - 1}: expected crc64nvme:{CHUNKS[1]}" in str(run.error)
    assert "damaged in the store" in str(run.error)


def test_parts_fit_the_journal(store, tmp_path, long_file):
    run = fetch(store, tmp_path, long_file, part_size=parts.PART)
    assert whole(run, LONG, "long") and len(store.ranges("long")) == 2


# --- peers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def peer():
    with object_server.serving(shard=BODY) as running:
        running.etags["shard"] = '"an etag of its own"'
        yield running


def both(store, peer, patience_s=0.0):
    return (Source(peer.url("shard"), "peer", patience_s), Source(store.url("shard")))


def test_a_peer_is_asked_first_and_not_for_the_etag(store, peer, tmp_path):
    run = fetch(store, tmp_path, sources=both(store, peer))
    assert whole(run) and store.seen == []
    assert "If-Match" not in peer.requests("shard")[0]
    assert run.meter.numbers()["peer_bytes"] == SIZE and run.meter.numbers()["s3_bytes"] == 0


@pytest.mark.parametrize(
    "faults",
    [
        [answer(404, "")] * 9,
        [answer(403, "")] * 9,
        [answer(500, "")] * 9,
        [drop_after(1000)] * 9,
        [ignore_range] * 9,
        [stall] * 9,
    ],
)
def test_a_peer_that_fails_costs_a_fallback(store, peer, tmp_path, faults):
    peer.faults["shard"] = faults
    run = fetch(store, tmp_path, sources=both(store, peer), limits=replace(FAST, read=0.3))
    assert whole(run) and sorted(store.ranges("shard")) == PARTS


def test_a_lying_peer_costs_its_parts_and_is_not_asked_again(store, peer, tmp_path):
    peer.objects["shard"] = peer.objects["second"] = bytes(SIZE)
    store.objects["second"] = BODY
    second = file("second", etag='"etag-of-second"')
    sources = (Source(peer.url("second"), "peer"), Source(store.url("second")))
    run = Run(
        tmp_path,
        wanted(store, tmp_path, file(), both(store, peer)),
        wanted(store, tmp_path, second, sources),
        workers=1,
    ).go()
    assert run.outcome.failures == {} and (tmp_path / "sub/second").read_bytes() == BODY
    assert len(peer.seen) <= 2 * len(PARTS)


def test_a_lying_peer_is_found_out_by_a_chunk(store, peer, tmp_path, long_file):
    peer.objects["long"] = bytes(len(LONG))
    sources = (Source(peer.url("long"), "peer"), Source(store.url("long")))
    assert whole(fetch(store, tmp_path, long_file, sources=sources, part_size=CHUNK, workers=1), LONG, "long")
    assert len(peer.requests("long")) == 1


def test_a_peer_that_has_not_got_it_yet_is_waited_for(store, peer, tmp_path):
    peer.faults["shard"] = [answer(404, "")] * 3
    run = fetch(store, tmp_path, sources=both(store, peer, 3), workers=1)
    assert whole(run) and store.seen == []


def test_patience_has_an_end(store, peer, tmp_path):
    peer.faults["shard"] = [answer(404, "")] * 1000
    assert whole(fetch(store, tmp_path, sources=both(store, peer, 0.2)))
    assert sorted(store.ranges("shard")) == PARTS


def test_a_peer_that_will_not_get_it_is_not_waited_for_and_asked_for_other_files(store, peer, tmp_path):
    store.objects["second"] = peer.objects["second"] = BODY
    peer.faults["shard"] = [answer(410, "")] * 9
    second = (Source(peer.url("second"), "peer", 60), Source(store.url("second")))
    run = Run(
        tmp_path,
        wanted(store, tmp_path, file(), both(store, peer, 60)),
        wanted(store, tmp_path, file("second"), second),
        workers=1,
    ).go()
    assert run.outcome.failures == {} and sorted(store.ranges("shard")) == PARTS and store.ranges("second") == []


def test_a_peer_that_does_not_answer_is_not_waited_for_as_long_as_one_that_does(store, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{probe.getsockname()[1]}/shard"
    sources = (Source(gone, "peer", 3600), Source(store.url("shard")))
    assert whole(fetch(store, tmp_path, sources=sources, limits=replace(FAST, unreachable=0.2)))
    assert sorted(store.ranges("shard")) == PARTS


@pytest.mark.parametrize(("rate", "requests"), [(0, 4), (20_000_000, 0)], ids=["slow", "limited by ourselves"])
def test_a_slow_peer_costs_a_fallback(store, peer, tmp_path, rate, requests):
    limits = replace(FAST, slow=0.0, slow_rate=1 << 50)
    run = fetch(store, tmp_path, sources=both(store, peer), limits=limits, bucket=Bucket(rate))
    assert whole(run) and len(store.ranges("shard")) == requests


def test_the_rate_is_that_of_all_connections(store, tmp_path):
    run = fetch(store, tmp_path, bucket=Bucket(4_000_000))
    assert whole(run) and run.meter.numbers()["seconds"] >= 0.8 * SIZE / 4_000_000
