# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second revision on a node that has one: chunks, replacement in place, repair. From a server on loopback."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import (
    chunks,
    frontend,
    manifest,
    parts,
    seed,
    stage,
    survey,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.parts import Part
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.source import Source, with_peers
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server, stage_request

RANDOM = random.Random(6)
LARGE = RANDOM.randbytes(3 * CHUNK + 12345)
BODIES = {"a.txt": b"small", "b.txt": b"other", "large": LARGE, "same": RANDOM.randbytes(3 << 20)}


@pytest.fixture
def store():
    with object_server.serving(**BODIES) as running:
        yield running


def planned(store):
    return stage_request.planned(store, chunk=CHUNK)


def request(store, root, **more):
    return stage_request.request(store, root, planned(store), **{"part_mib": 32, **more})


def staged(store, root, **more):
    store.seen.clear()
    wanted = request(store, root, **more)
    result = frontend.stage(wanted).result()
    return wanted.layout, wanted.manifest.revision, result


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def fetched(store):
    """Bytes asked for, by path."""
    total: dict[str, int] = {}
    for path, headers in store.seen:
        first, last = headers["Range"].removeprefix("bytes=").split("-")
        total[path] = total.get(path, 0) + int(last) - int(first) + 1
    return total


def edited(body, at, patch=b"edited"):
    return body[:at] + patch + body[at + len(patch) :]


# --- chunks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "most"),
    [
        (edited(LARGE, CHUNK + 5), {"large": CHUNK}),
        (edited(edited(LARGE, 0), 3 * CHUNK + 1), {"large": CHUNK + 12345}),
        (LARGE + b"grown", {"large": 12345 + 5}),
        (LARGE[: 2 * CHUNK + 9], {"large": 9}),
        (b"x" + LARGE[:-1], {"large": len(LARGE)}),
    ],
    ids=["one-chunk", "two-chunks", "grown", "shrunk", "shifted"],
)
def test_only_changed_chunks_are_fetched(store, tmp_path, new, most):
    staged(store, tmp_path)
    store.objects["large"] = new
    layout, revision, result = staged(store, tmp_path)
    assert fetched(store) == most
    assert (layout.revision(revision) / "large").read_bytes() == new
    assert result["summary"]["reused"]["bytes"] == len(new) - most["large"]
    assert result["moved"]["s3_bytes"] == most["large"]


@pytest.mark.parametrize("changed", [{17}, {0, 99}, set(range(0, 100, 10))])
def test_a_shard_of_a_hundred_chunks_costs_those_that_changed(store, tmp_path, monkeypatch, changed):
    size = 64 << 10
    for module in (manifest, parts, chunks):
        monkeypatch.setattr(module, "CHUNK", size)
    monkeypatch.setitem(globals(), "CHUNK", size)
    body = RANDOM.randbytes(100 * size)
    store.objects["large"] = body
    staged(store, tmp_path)
    for index in changed:
        body = edited(body, index * size + 77)
    store.objects["large"] = body
    layout, revision, _result = staged(store, tmp_path)
    assert fetched(store) == {"large": len(changed) * size}
    assert (layout.revision(revision) / "large").read_bytes() == body


def test_the_old_revision_keeps_its_bytes(store, tmp_path):
    layout, first, _result = staged(store, tmp_path)
    store.objects["large"] = edited(LARGE, 7)
    staged(store, tmp_path)
    assert contents(layout.revision(first)) == BODIES
    assert {path.stem for path in layout.manifests.iterdir()} == {path.stem for path in layout.receipts.iterdir()}


def test_a_chunk_that_has_rotted_in_the_old_revision_is_fetched(store, tmp_path):
    layout, first, _result = staged(store, tmp_path)
    old = layout.revision(first) / "large"
    times = (old.stat().st_atime_ns, old.stat().st_mtime_ns)
    old.write_bytes(edited(LARGE, 2 * CHUNK + 1))
    os.utime(old, ns=times)
    new = edited(LARGE, 7)
    store.objects["large"] = new
    layout, second, _result = staged(store, tmp_path)
    assert fetched(store) == {"large": 2 * CHUNK}
    assert (layout.revision(second) / "large").read_bytes() == new


def test_without_awscrt_or_known_chunks_the_file_is_fetched_whole(store, tmp_path, monkeypatch):
    layout, first, _result = staged(store, tmp_path)
    layout.manifest(first).write_text("torn")
    store.objects["large"] = edited(LARGE, 7)
    staged(store, tmp_path)
    assert fetched(store) == {"large": len(LARGE)}


def test_a_manifest_that_is_missing_comes_back_with_the_next_run(store, tmp_path):
    layout, revision, _result = staged(store, tmp_path)
    layout.manifest(revision).unlink()
    frontend.tidy(request(store, tmp_path))
    assert json.loads(layout.manifest(revision).read_text())["revision"] == revision


@pytest.mark.parametrize("way", ["clone", "kernel", "program"])
def test_the_ways_of_copying(tmp_path, monkeypatch, way):
    source, partial = tmp_path / "source", tmp_path / "dir" / "partial"
    source.write_bytes(LARGE)

    def clone(target, _request, descriptor):
        if way != "clone":
            raise OSError(95, "not supported")
        os.pwrite(target, os.pread(descriptor, len(LARGE), 0), 0)

    def refuse(*_arguments):
        raise OSError(18, "cross-device link")

    monkeypatch.setattr(seed.fcntl, "ioctl", clone)
    if way == "program":
        monkeypatch.setattr(seed.os, "copy_file_range", refuse)
    how = seed.seed(source, partial, len(LARGE) + 10, [manifest_part(0), manifest_part(2)])
    assert how == ("shared" if way == "clone" else "copied")
    found = partial.read_bytes()
    assert len(found) == len(LARGE) + 10
    assert (found[:CHUNK], found[2 * CHUNK : 3 * CHUNK]) == (LARGE[:CHUNK], LARGE[2 * CHUNK : 3 * CHUNK])
    if way != "clone":
        assert found[CHUNK : 2 * CHUNK] == bytes(CHUNK)


def manifest_part(index):
    return Part(index * CHUNK, CHUNK)


# --- in place ----------------------------------------------------------------------------------------------------------


class SmallDisk:
    """A disk of this size with nothing but what lies below the root, and the most that was ever on it."""

    def __init__(self, root, size, monkeypatch):
        self.root, self.size, self.peak = root, size, 0
        self.real = stage.replace.release
        monkeypatch.setattr(survey, "disk_of", lambda _path: Disk(size, size - self.used()))
        monkeypatch.setattr(stage.replace, "release", self.release)

    def used(self):
        found = {}
        for path in self.root.rglob("*"):
            if path.is_file():
                found[path.stat().st_ino] = path.stat().st_blocks * 512
        self.peak = max(self.peak, sum(found.values()))
        return sum(found.values())

    def release(self, *arguments):
        self.used()
        self.real(*arguments)
        self.used()


@pytest.fixture
def small(store, tmp_path, monkeypatch):
    """A node that holds the first revision on a disk with room for little more; every large file is replaced."""
    layout, first, _result = staged(store, tmp_path)
    frontend_point(layout, first)
    store.objects["large"] = RANDOM.randbytes(len(LARGE))
    store.objects["a.txt"] = b"new"
    return SmallDisk(tmp_path, 80 << 20, monkeypatch), layout, first


def frontend_point(layout, revision):
    layout.current.symlink_to(layout.link_text(revision))


def test_a_disk_that_is_too_small_is_refused_with_the_consent_named(small, store, tmp_path):
    _disk, layout, first = small
    with pytest.raises(
        HostError, match=r"not enough room: .*checkpoint_in_place: true: 2 files of revision \w+ are replaced"
    ):
        staged(store, tmp_path)
    assert contents(layout.revision(first)) == BODIES and store.seen == []


def test_with_consent_files_are_replaced_one_by_one_under_the_ceiling(small, store, tmp_path):
    disk, layout, first = small
    _layout, second, _result = staged(store, tmp_path, in_place=True)
    disk.used()
    assert disk.peak <= 80 << 20
    assert contents(layout.revision(second)) == store.objects
    assert sorted(fetched(store)) == ["a.txt", "large"]
    assert not layout.receipt(first).exists() and not layout.replacing.exists() and not layout.revision(first).exists()
    assert json.loads(layout.manifest(first).read_text())["revision"] == first


def test_nobody_is_waited_for_while_files_are_replaced_one_by_one(small, store, tmp_path):
    _disk, layout, _first = small
    wanted = request(store, tmp_path, in_place=True)
    waits = {path: [Source("http://127.0.0.1:9/x", "peer", 3600.0)] for path in store.objects}
    frontend.stage(replace(wanted, sources=with_peers(store.urls(), waits)))
    assert contents(layout.revision(wanted.manifest.revision)) == store.objects


def test_a_replacement_goes_on_after_a_break_at_any_file(small, store, tmp_path):
    disk, layout, first = small
    failing = [lambda handler, _body, _start: handler.refuse(403, "AccessDenied") or True] * 50
    store.faults["large"] = list(failing)
    with pytest.raises(HostError, match="large"):
        staged(store, tmp_path, in_place=True)
    record = json.loads(layout.replacing.read_text())
    assert record["receipt"]["revision"] == first and not layout.receipt(first).exists()
    store.faults["large"] = []
    _layout, second, _result = staged(store, tmp_path, in_place=True)
    assert fetched(store) == {"large": len(LARGE)}
    assert contents(layout.revision(second)) == store.objects and disk.peak <= 80 << 20
    assert not layout.replacing.exists()


def test_a_replacement_that_was_killed_after_its_receipt_is_over_with_the_next_run(small, store, tmp_path, monkeypatch):
    _disk, layout, first = small
    monkeypatch.setattr(stage.replace, "finish", lambda *_arguments: None)
    _layout, second, _result = staged(store, tmp_path, in_place=True)
    monkeypatch.undo()
    assert layout.replacing.exists() and layout.revision(first).is_dir()
    frontend.tidy(request(store, tmp_path))
    assert not layout.replacing.exists() and not layout.revision(first).exists()
    assert contents(layout.revision(second)) == store.objects


def test_a_broken_replacement_can_go_back_to_the_old_revision(small, store, tmp_path):
    _disk, layout, first = small
    store.faults["large"] = [lambda handler, _body, _start: handler.refuse(403, "AccessDenied") or True] * 50
    with pytest.raises(HostError, match="large"):
        staged(store, tmp_path, in_place=True)
    store.faults["large"] = []
    store.objects.update(BODIES)
    _layout, again, _result = staged(store, tmp_path, disk_ceiling_percent=100)
    assert again == first and contents(layout.revision(first)) == BODIES
    assert "same" not in fetched(store) and not layout.replacing.exists()


def test_a_broken_replacement_can_go_on_to_a_third_revision(small, store, tmp_path):
    _disk, layout, _first = small
    store.faults["large"] = [lambda handler, _body, _start: handler.refuse(403, "AccessDenied") or True] * 50
    with pytest.raises(HostError, match="large"):
        staged(store, tmp_path, in_place=True)
    store.faults["large"] = []
    store.objects["b.txt"] = b"third"
    _layout, third, _result = staged(store, tmp_path, in_place=True)
    assert sorted(fetched(store)) == ["b.txt", "large"]
    assert contents(layout.revision(third)) == store.objects and not layout.replacing.exists()


def test_a_file_that_keeps_most_chunks_becomes_the_partial_one(small, store, tmp_path):
    disk, layout, _first = small
    disk.size = 70 << 20
    store.objects["large"] = edited(LARGE, CHUNK + 3)
    _layout, second, _result = staged(store, tmp_path, in_place=True)
    assert fetched(store) == {"a.txt": 3, "large": CHUNK}
    assert contents(layout.revision(second)) == store.objects
    assert disk.used() and disk.peak <= 70 << 20


# --- drift -------------------------------------------------------------------------------------------------------------


def damage(path, keep_time):
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    with path.open("r+b") as handle:
        handle.seek(1000)
        handle.write(b"damage")
    if keep_time:
        os.utime(path, ns=times)


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_damaged_file_is_repaired_from_the_store_alone_in_every_revision_that_shares_it(store, tmp_path, keep_time):
    layout, first, _result = staged(store, tmp_path)
    store.objects["a.txt"] = b"new"
    _layout, second, _result = staged(store, tmp_path)
    damage(layout.revision(second) / "same", keep_time)
    look = frontend.view(request(store, tmp_path, phase="budget", verify="full"))
    assert list(look.lacking()) == ["same"]
    found = dict(look.survey.damaged) if keep_time else {}
    staged(store, tmp_path, damaged=found)
    assert fetched(store) == {"same": len(BODIES["same"])}
    assert contents(layout.revision(second)) == store.objects
    assert contents(layout.revision(first)) == BODIES
    again = frontend.view(request(store, tmp_path, phase="budget", verify="full"))
    assert not again.staging.changed and not again.survey.damaged
