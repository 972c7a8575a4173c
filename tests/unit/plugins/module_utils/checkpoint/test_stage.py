# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Staging from survey to receipt, in a temporary directory, from a server on loopback."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import threading
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import frontend, lock, manifest, sink, stage
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server, stage_request
from ansible_collections.gb10.ring.tests.unit.fixtures.stage_request import planned

CONFIG = (Path(__file__).parents[3] / "fixtures/checkpoint/config-exl3.json").read_bytes()
RANDOM = random.Random(2)
BODIES = {
    "config.json": CONFIG,
    "shard1": RANDOM.randbytes(2_500_000),
    "shard2": RANDOM.randbytes(40_000),
    "empty": b"",
}


@pytest.fixture
def store():
    with object_server.serving(**BODIES) as running:
        yield running


def request(store, root, wanted=None, sources=None, **more):
    return stage_request.request(store, root, wanted or planned(store), sources, **{"workers": 3, **more})


def staged(store, root, **more):
    wanted = request(store, root, **more)
    frontend.stage(wanted)
    return wanted.layout, wanted.manifest.revision


def receipt(layout, revision):
    return json.loads(layout.receipt(revision).read_text())


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def changes(store, root, **more):
    return frontend.view(request(store, root, **more)).staging.changed


def test_a_fresh_node_gets_the_whole_revision(store, tmp_path):
    layout, revision = staged(store, tmp_path)
    assert contents(layout.revision(revision)) == BODIES
    written = receipt(layout, revision)
    assert [entry["path"] for entry in written["files"]] == sorted(BODIES)
    assert "derived" not in written and written["created"].endswith("Z")
    assert "signature" not in layout.receipt(revision).read_text()
    assert [path.name for path in layout.stagings.iterdir()] == [".lock"]
    assert not changes(store, tmp_path)


def test_objects_in_directories_keep_them(store, tmp_path):
    store.objects["sub/deep/file"] = b"x"
    layout, revision = staged(store, tmp_path)
    assert (layout.revision(revision) / "sub/deep/file").read_bytes() == b"x"


def test_failures_are_reported_together_and_finished_files_kept(store, tmp_path):
    store.faults["shard1"] = [object_server.flip_at(7)]
    store.faults["config.json"] = [object_server.answer(403, "AccessDenied")]
    with pytest.raises(HostError) as caught:
        staged(store, tmp_path)
    text = str(caught.value)
    assert "2 of 4 files of tiny" in text and "2 files fetched so far are kept" in text
    assert "shard1: expected crc64nvme:" in text and "config.json: the store refused" in text
    layout = Layout(str(tmp_path), "tiny")
    assert not layout.revisions.exists() and not layout.receipts.exists()
    view = frontend.view(request(store, tmp_path))
    assert sorted(step.file.path for step in view.staging.of("staged")) == ["empty", "shard2"]
    store.seen.clear()
    staged(store, tmp_path)
    assert sorted(path for path, _headers in store.seen) == ["config.json", "shard1"]


def test_leftovers_of_a_killed_run_are_cleared(store, tmp_path):
    wanted = request(store, tmp_path)
    directory = wanted.layout.staging(wanted.manifest.revision)
    (directory / "gone").mkdir(parents=True)
    (directory / "gone/file").write_text("x")
    (directory / "shard1.partial").write_bytes(b"y" * 1000)
    layout, revision = staged(store, tmp_path)
    assert contents(layout.revision(revision)) == BODIES
    assert not (layout.revision(revision) / "gone").exists()


def test_a_run_killed_before_its_receipt_is_finished_without_a_transfer(store, tmp_path):
    layout, revision = staged(store, tmp_path)
    entries = receipt(layout, revision)["files"]
    layout.receipt(revision).unlink()
    layout.journal(revision).write_text("".join(json.dumps({"line": "file", **entry}) + "\n" for entry in entries))
    store.seen.clear()
    assert changes(store, tmp_path)
    staged(store, tmp_path)
    assert store.seen == [] and receipt(layout, revision)["files"] == entries


def test_a_revision_that_nobody_verified_is_refused(store, tmp_path):
    layout, revision = staged(store, tmp_path)
    layout.receipt(revision).unlink()
    with pytest.raises(HostError, match="no receipt, no journal"):
        staged(store, tmp_path)


def test_wrong_files_of_a_staged_revision_are_swapped_in_one_by_one(store, tmp_path):
    layout, revision = staged(store, tmp_path)
    before = receipt(layout, revision)
    (layout.revision(revision) / "shard2").write_bytes(b"damaged")
    (layout.revision(revision) / "empty").unlink()
    store.seen.clear()
    staged(store, tmp_path)
    assert [path for path, _headers in store.seen] == ["shard2"]
    found = contents(layout.revision(revision))
    assert found["shard2"] == BODIES["shard2"] and found["empty"] == b""
    # Unchanged to the nanosecond: a crash in the middle of the swap leaves a receipt that holds.
    assert receipt(layout, revision) == before
    assert [path.name for path in layout.stagings.iterdir()] == [".lock"]


def test_a_revision_directory_that_was_deleted_comes_back(store, tmp_path):
    layout, revision = staged(store, tmp_path)
    for path in layout.revision(revision).iterdir():
        path.unlink()
    layout.revision(revision).rmdir()
    staged(store, tmp_path)
    assert contents(layout.revision(revision)) == BODIES


def test_equal_files_of_another_revision_become_links(store, tmp_path):
    layout, first = staged(store, tmp_path)
    store.objects["shard2"] = RANDOM.randbytes(50_000)
    store.seen.clear()
    _layout, second = staged(store, tmp_path)
    assert [path for path, _headers in store.seen] == ["shard2"]
    shared = [(layout.revision(revision) / "shard1").stat().st_ino for revision in (first, second)]
    assert shared[0] == shared[1]
    configs = [(layout.revision(revision) / "config.json").stat().st_ino for revision in (first, second)]
    assert configs[0] != configs[1]
    assert not changes(store, tmp_path)


def test_a_named_revision_never_changes(store, tmp_path):
    staged(store, tmp_path, wanted=planned(store, "v1"))
    store.objects["shard2"] = b"something else"
    with pytest.raises(HostError, match="already staged with other contents"):
        staged(store, tmp_path, wanted=planned(store, "v1"))


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(store, tmp_path):
    with pytest.raises(HostError, match=r"not enough room: .* expected at most 1 %"):
        staged(store, tmp_path, disk_ceiling_percent=1)
    assert store.seen == []


def test_a_full_disk_stops_the_other_files(store, tmp_path, monkeypatch):
    waiting = threading.Event()

    def fallocate(_descriptor, _offset, size):
        if size == len(BODIES["shard1"]):
            waiting.wait(5)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def hold(handler, body, start):
        waiting.set()
        handler.head("shard2", body, start)
        handler.wfile.write(body[:10])
        threading.Event().wait(0.3)
        handler.hang_up()
        return True

    monkeypatch.setattr(sink.os, "posix_fallocate", fallocate)
    store.faults["shard2"] = [hold] * 20
    with pytest.raises(HostError) as caught:
        staged(store, tmp_path)
    assert "shard1: cannot write" in str(caught.value) and "No space left" in str(caught.value)
    # shard2 was under way; the empty file may have finished before the disk was full
    assert re.search(r"and [12] more: stopped, because the disk is full", str(caught.value))


def test_two_runs_at_once_are_refused(store, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "lock_patience", lambda _stagings: 0.5)
    wanted = request(store, tmp_path)
    with lock.locked(wanted.layout), pytest.raises(HostError, match="another run is staging tiny"):
        frontend.stage(wanted)


def test_a_file_without_an_address_names_the_way_to_call_it(store, tmp_path):
    with pytest.raises(HostError, match="through its action plugin"):
        staged(store, tmp_path, sources={})


def test_a_link_that_fails_is_named(store, tmp_path, monkeypatch):
    staged(store, tmp_path)
    store.objects["shard2"] = b"new"

    def refuse(*_arguments):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(stage.os, "link", refuse)
    with pytest.raises(HostError, match=r"cannot link .* Invalid cross-device link"):
        staged(store, tmp_path)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 0}, "option workers is 0"),
        ({"tensor_parallel": -1, "stall_timeout_s": 0}, "tensor_parallel is -1, .*; option stall_timeout_s is 0"),
        ({"disk_ceiling_percent": 101}, "allowed are 1 to 100"),
    ],
)
def test_numbers_out_of_range_are_named(store, tmp_path, options, text):
    with pytest.raises(manifest.ManifestError, match=text):
        request(store, tmp_path, **options)


def test_the_addresses_are_not_in_the_repr(store, tmp_path):
    assert "signature" not in repr(request(store, tmp_path))


def test_a_ca_bundle_without_a_certificate_is_named(store, tmp_path):
    with pytest.raises(HostError, match="holds no certificate in PEM form"):
        staged(store, tmp_path, ca_pem="no certificate")
