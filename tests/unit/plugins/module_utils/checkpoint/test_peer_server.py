# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server that gives finished files to neighbours, over loopback, with the mover as its client."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import peer_server, receipt
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.journal import Journal
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.mover import Mover, Transfer
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.moving import Wanted
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.peer_server import Room, Staging, wanted
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.piece import Limits
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.progress import Meter
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.shelf import Shelf
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.source import Source

BODY = random.Random(2).randbytes(9_000_001)
DIGEST = f"crc64nvme:{checksums.crc64nvme(BODY):016x}"
TOKEN = "a-token"
REVISION = "r1"


class Peer:
    """A node that stages, its server, and a client of it."""

    def __init__(self, root):
        self.layout = Layout(str(root), "tiny")
        self.directory = self.layout.staging(REVISION)
        self.directory.mkdir(parents=True)
        self.digests = {"shard": DIGEST, "sub/other": DIGEST}
        self.shelf = Shelf(self.layout, REVISION, self.digests, pace_s=0)
        self.room = Room(self.shelf, Staging(self.layout.progress(REVISION)), token=TOKEN)
        self.base = ""

    def write(self, path="shard", body=BODY, recorded=True, digest=DIGEST):
        target = self.directory / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(body)
        entry = Entry(path, len(body), digest, target.stat().st_mtime_ns)
        if recorded:
            with contextlib.closing(Journal(self.layout.journal(REVISION))) as journal:
                journal.file(entry)
        return entry

    def commit(self, *entries):
        self.layout.revisions.mkdir()
        self.directory.rename(self.layout.revision(REVISION))
        self.layout.receipts.mkdir()
        text = receipt.render(Receipt("tiny", REVISION, "", entries))
        self.layout.receipt(REVISION).write_text(text)
        self.layout.journal(REVISION).unlink()

    def ask(self, path, method="GET", token=TOKEN, **headers):
        connection = http.client.HTTPConnection(self.base, timeout=5)
        connection.request(method, f"/{token}/{path}", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def status(self, path, **more):
        return self.ask(path, **more)[0].status


@pytest.fixture
def peer(tmp_path):
    made = Peer(tmp_path / "root")
    with peer_server.serving(made.room, [{"address": "127.0.0.1", "netdev": ""}], 0) as (server,):
        made.base = f"127.0.0.1:{server.server_address[1]}"
        yield made


@pytest.mark.parametrize(
    ("header", "status", "start", "end"),
    [
        ("", 200, 0, len(BODY)),
        ("bytes=0-99", 206, 0, 100),
        ("bytes=100-", 206, 100, len(BODY)),
        ("bytes=8999000-99999999", 206, 8_999_000, len(BODY)),
    ],
)
def test_a_finished_file_or_a_part_of_it(peer, header, status, start, end):
    peer.write()
    answer, body = peer.ask("shard", **({"Range": header} if header else {}))
    assert (answer.status, body) == (status, BODY[start:end])
    assert answer.getheader("Content-Range") == (f"bytes {start}-{end - 1}/{len(BODY)}" if header else None)


def test_head_gives_no_body(peer):
    peer.write()
    answer, body = peer.ask("shard", method="HEAD")
    assert (answer.status, answer.getheader("Content-Length"), body) == (200, str(len(BODY)), b"")


@pytest.mark.parametrize("header", ["bytes=9000001-", "bytes=5-4", "bytes=-5", "bytes=0-1,3-4", "lines=1-2"])
def test_a_range_that_is_not_there(peer, header):
    peer.write()
    assert peer.status("shard", Range=header) == 416
    assert wanted(header, len(BODY)) is None


def test_nothing_without_the_token(peer):
    peer.write()
    assert peer.status("shard", token="another") == 403
    assert peer.status("shard", token="") == 403


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
def test_nothing_can_be_changed(peer, method):
    peer.write()
    assert peer.status("shard", method=method) == 501
    assert (peer.directory / "shard").read_bytes() == BODY


def test_only_what_was_verified_and_is_as_it_was(peer, tmp_path):
    (tmp_path / "secret").write_bytes(BODY)
    peer.write(recorded=False)
    peer.write("sub/other", digest="crc64nvme:" + "0" * 16)
    (peer.directory / "shard.partial").write_bytes(BODY)
    for path in ("shard", "sub/other", "shard.partial", "../../../secret", "%2e%2e/%2e%2e/%2e%2e/secret", "", "sub"):
        assert peer.status(path) == 404
    entry = peer.write()
    assert peer.status("shard") == 200
    (peer.directory / "shard").write_bytes(BODY)
    os.utime(peer.directory / "shard", ns=(0, entry.mtime_ns + 1))
    assert peer.status("shard") == 404


def test_a_link_is_not_followed(peer, tmp_path):
    entry = peer.write()
    (peer.directory / "shard").rename(tmp_path / "elsewhere")
    (peer.directory / "shard").symlink_to(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere").stat().st_mtime_ns == entry.mtime_ns and peer.status("shard") == 404


def test_a_committed_revision_is_given_away_too(peer):
    entry = peer.write()
    peer.commit(entry)
    assert peer.ask("shard")[1] == BODY


def test_a_revision_of_an_earlier_run_needs_no_journal(tmp_path):
    before = Peer(tmp_path)
    entry = before.write()
    before.commit(entry)
    found = Shelf(before.layout, REVISION, before.digests).open("shard")
    with found as file:
        assert file.read() == BODY


def test_a_torn_line_is_read_when_it_is_whole(peer):
    entry = peer.write(recorded=False)
    row = json.dumps(
        {"line": "file", "path": "shard", "size": entry.size, "digest": DIGEST, "mtime_ns": entry.mtime_ns}
    )
    path = peer.layout.journal(REVISION)
    path.write_text(row[:40])
    assert peer.status("shard") == 404
    with path.open("a") as handle:
        handle.write(row[40:] + "\n")
    assert peer.status("shard") == 200


def test_pages_of_files_that_were_given_away_are_released(peer, monkeypatch):
    dropped = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, start, length, _advice: dropped.append((start, length)))
    peer.write()
    peer.ask("shard", Range="bytes=100-")
    peer.shelf.release()
    assert dropped[-2:] == [(100, len(BODY) - 100), (0, 0)]


# --- how long ------------------------------------------------------------------------------------------------------


def test_absent_is_not_yet_while_the_staging_goes_on_and_gone_after_it(tmp_path):
    now = [0.0]
    progress = tmp_path / "progress"
    staging = Staging(progress, begin_s=100, pause_s=50, clock=lambda: now[0])
    found = []
    for at, tick in ((99, 0), (101, 0), (102, 1), (151, 1), (153, 1), (160, 2), (209, 2), (211, 2)):
        now[0] = at
        if tick:
            progress.write_text("")
            os.utime(progress, ns=(0, tick))
        found.append(staging.goes_on())
    assert found == [True, False, True, True, False, True, True, False]


def test_gone_is_410(peer):
    peer.room.staging.begin_s = 0
    assert peer.status("shard") == 410


def test_a_file_that_was_given_up_is_gone_until_the_next_run_begins(peer):
    with contextlib.closing(Journal(peer.layout.journal(REVISION))) as journal:
        journal.failed("shard")
    assert (peer.status("shard"), peer.status("sub/other")) == (410, 404)
    Journal(peer.layout.journal(REVISION)).close()
    assert peer.status("shard") == 404


def test_nodes_whose_files_fail_do_not_wait_for_each_other(tmp_path):
    """Each waits for what the other cannot get: both end, long before their patience."""
    peers = [Peer(tmp_path / name) for name in ("one", "two")]
    outcomes = {}

    def stage(index, store, patience):
        mine, other = ("shard", "sub/other") if index else ("sub/other", "shard")
        sources = {
            mine: (Source(f"http://{store}/nothing", "s3"),),
            other: (
                Source(f"http://{peers[1 - index].base}/{TOKEN}/{other}", "peer", patience),
                Source(f"http://{store}/nothing", "s3"),
            ),
        }
        transfer = Transfer(limits=Limits(connect=1, read=1, stall=0.5, first_wait=0.01), crc=checksums.crc64nvme)
        one = peers[index]
        files = [Wanted(File(path, len(BODY), "", DIGEST), sources[path], one.directory / path) for path in sources]
        with contextlib.closing(Journal(one.layout.journal(REVISION))) as journal:
            outcomes[index] = Mover(transfer, journal, Meter()).run(files)

    with socket.socket() as probe, contextlib.ExitStack() as servers:
        probe.bind(("127.0.0.1", 0))
        store = f"127.0.0.1:{probe.getsockname()[1]}"
        for one in peers:
            rows = [{"address": "127.0.0.1", "netdev": ""}]
            (server,) = servers.enter_context(peer_server.serving(one.room, rows, 0))
            one.base = f"127.0.0.1:{server.server_address[1]}"
        threads = [threading.Thread(target=stage, args=(index, store, 60.0), daemon=True) for index in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert [sorted(outcomes[index].failures) for index in (0, 1)] == [["shard", "sub/other"]] * 2


@pytest.mark.parametrize(("idle", "begin", "ends"), [(0.0, 0.0, True), (60.0, 0.0, False), (0.0, 60.0, False)])
def test_it_ends_when_nobody_asks_and_nothing_is_staged(peer, idle, begin, ends):
    peer.room.staging.begin_s = begin
    stop = threading.Event()
    waiting = threading.Thread(target=peer_server.wait, args=(peer.room, stop, idle, 0.01))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive() is not ends
    stop.set()
    waiting.join(5)


def test_an_address_that_cannot_be_had_is_named(peer):
    rows = [{"address": "127.0.0.1", "netdev": "no-such-netdev"}]
    with pytest.raises(OSError, match=r"127\.0\.0\.1:0 on no-such-netdev"), peer_server.serving(peer.room, rows, 0):
        pass


def test_too_many_connections_are_turned_away(peer):
    peer.write()
    peer.room.places = threading.BoundedSemaphore(1)
    first = socket.create_connection(("127.0.0.1", int(peer.base.split(":")[1])))
    time.sleep(0.1)
    with pytest.raises((http.client.HTTPException, OSError)):
        peer.ask("shard")
    first.close()


# --- with the mover --------------------------------------------------------------------------------------------------


def test_the_mover_waits_for_it_and_takes_it(peer, tmp_path):
    source = Source(f"http://{peer.base}/{TOKEN}/shard", "peer", 10.0)
    timer = threading.Timer(0.4, peer.write)
    timer.start()
    meter = Meter()
    transfer = Transfer(limits=Limits(read=5), crc=checksums.crc64nvme, part_size=1 << 20, workers=4)
    with contextlib.closing(Journal(tmp_path / "journal")) as journal:
        one = Wanted(File("shard", len(BODY), '"e"', DIGEST), (source,), tmp_path / "taken" / "shard")
        outcome = Mover(transfer, journal, meter).run([one])
    timer.join()
    assert outcome.failures == {} and (tmp_path / "taken/shard").read_bytes() == BODY
    assert meter.numbers()["peer_bytes"] == len(BODY) and meter.numbers()["s3_bytes"] == 0


# --- as a program ----------------------------------------------------------------------------------------------------


def test_the_program_says_that_it_is_ready_forgets_its_settings_and_ends_when_told(tmp_path):
    peer = Peer(tmp_path / "root")
    peer.write()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"root": str(tmp_path / "root"), "name": "tiny", "revision": REVISION, "digests": peer.digests}
    settings |= {"listen": [{"address": "127.0.0.1", "netdev": ""}], "port": port, "token": TOKEN, "idle_s": 60}
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(settings))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(20)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        child = subprocess.Popen(
            [sys.executable, "-m", peer_server.__name__, str(path)], env=environment, cwd=Path(__file__).parent
        )
        assert systemd.recv(100) == b"READY=1"
    peer.base = f"127.0.0.1:{port}"
    try:
        assert not path.exists() and peer.ask("shard")[1] == BODY
    finally:
        child.terminate()
    assert child.wait(10) == 0
