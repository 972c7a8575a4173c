# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mover against a real server on loopback, with faults to order."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import replace

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.answers import ChangedError, ExpiredError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.rate import Bucket
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.source import Source
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server
from ansible_collections.gb10.ring.tests.unit.fixtures.mover_run import (
    BODY,
    CRC,
    FAST,
    MD5,
    PART,
    PARTS,
    SIZE,
    Run,
    fetch,
    file,
    wanted,
    whole,
)
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import (
    answer,
    drop_after,
    expired,
    flip_at,
    ignore_range,
    reset_after,
    stall,
)


@pytest.fixture
def store():
    with object_server.serving(shard=BODY, empty=b"") as running:
        yield running


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


def test_the_rate_is_that_of_all_connections(store, tmp_path):
    run = fetch(store, tmp_path, bucket=Bucket(4_000_000))
    assert whole(run) and run.meter.numbers()["seconds"] >= 0.8 * SIZE / 4_000_000
