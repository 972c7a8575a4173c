# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slices of which no engram-local.json speaks any more: somebody deleted it, as messages advise, to have all rows brought anew."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from ansible_collections.gb10.ring.plugins.modules import engram_info
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import row_case, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import expired
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import WITHOUT, fetched

RECORD = "engram-local.json"


class Place:
    """A directory with slices, the usual one or one that somebody named."""

    def __init__(self, case, monkeypatch, named):
        self.case, self.named = case, named
        self.path = case.root / ("rows" if named else "tiny/engram")
        self.told = {"directory": str(self.path)} if named else {}
        self.monkeypatch = monkeypatch

    def run(self, tp=3, **more):
        self.case.store.seen.clear()
        return self.case.run(self.case.root, self.case.rows(tp), **self.told, **{**WITHOUT, **more})

    def info(self):
        model = self.case.root / "tiny/revisions/one"
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.json").write_bytes(self.case.small.files["config.json"])
        given = {"root": str(self.case.root), "name": "tiny", "revision": "one", "node": "n1", **self.told}
        given |= {"tensor_parallel": 3, "rank": 1, "rule": "vllm", "placement": "directory"}
        self.monkeypatch.setattr(row_case, "engram_rows", engram_info)
        found = row_case.call(self.case.capsys, given)["checks"][0]
        self.monkeypatch.undo()
        return found

    def whole(self):
        """Whether all rows are there, verified, and nothing else."""
        names = sorted(path.name for path in self.path.iterdir())
        return names == sorted([INDEX, RECORD, SECOND, THIRD]) and (
            engram_reader.problems(self.path, self.case.whole) == []
        )

    def stats(self):
        return {path: (self.path / path).stat() for path in (SECOND, THIRD)}


@pytest.fixture
def usual(case, monkeypatch):
    return Place(case, monkeypatch, named=False)


@pytest.fixture
def named(case, monkeypatch):
    return Place(case, monkeypatch, named=True)


def allocated(rows):
    """Bytes that the slices of these rows take."""
    blocks = {
        (target["path"], block)
        for target in rows["targets"]
        for extent in target["extents"]
        for block in range(extent["target_offset"] // 4096, -(-(extent["target_offset"] + extent["length"]) // 4096))
    }
    return 4096 * len(blocks)


def all_rows(rows):
    return sum(extent["length"] for target in rows["targets"] for extent in target["extents"])


@pytest.mark.parametrize("tp", [3, 4, 2])
def test_in_the_usual_directory_all_rows_are_fetched(usual, tp):
    usual.run()
    (usual.path / RECORD).unlink()
    before = usual.stats()
    index, rows = len(usual.case.small.files[INDEX]), usual.case.rows(tp)
    told = usual.run(tp, phase="budget", sources=False)
    room = sum(stat.st_blocks * 512 for stat in before.values())
    # each slice gives back what it has, and no more than the new one takes of it counts
    assert index + max(0, allocated(rows) - room) <= told["needed"] <= index + allocated(rows)
    assert tp != 3 or told["needed"] == index
    assert [check["ok"] for check in told["checks"]] == [True]
    result = usual.run(tp)
    assert result["changed"] and fetched(usual.case.store) == all_rows(rows) + index
    assert usual.whole() and not usual.run(tp)["changed"]


def test_the_old_slices_make_room_before_the_new_ones_come(usual):
    """As the budget counts them."""
    usual.run()
    (usual.path / RECORD).unlink()
    usual.case.store.faults[SECOND] = [expired] * 9
    result = usual.run()
    assert result["expired"] == [SECOND] and not (usual.path / SECOND).exists()
    usual.case.store.faults[SECOND] = []
    assert not usual.run().get("failed") and usual.whole()


def test_a_slice_with_two_names_gives_no_room(usual):
    usual.run()
    (usual.path / RECORD).unlink()
    os.link(usual.path / SECOND, usual.case.root / "kept")
    kept = (usual.case.root / "kept").read_bytes()
    needed = usual.run(phase="budget", sources=False)["needed"]
    assert needed == len(usual.case.small.files[INDEX]) + usual.stats()[SECOND].st_blocks * 512
    assert usual.run()["changed"] and usual.whole()
    assert (usual.case.root / "kept").read_bytes() == kept and (usual.case.root / "kept").stat().st_nlink == 1


def test_a_slice_that_a_process_has_open_gives_no_room(usual):
    usual.run()
    (usual.path / RECORD).unlink()
    body = (usual.path / SECOND).read_bytes()
    with row_process.holding(usual.path / SECOND) as read:
        needed = usual.run(phase="budget", sources=False)["needed"]
        assert needed == len(usual.case.small.files[INDEX]) + usual.stats()[SECOND].st_blocks * 512
        assert usual.run()["changed"] and usual.whole()
        assert read() == body


@pytest.mark.parametrize("shape", ["whole", "link"])
def test_a_whole_shard_in_the_usual_directory_is_somebodys(usual, shape):
    usual.run()
    (usual.path / RECORD).unlink()
    (usual.path / SECOND).unlink()
    if shape == "whole":
        shutil.copyfile(usual.case.whole / SECOND, usual.path / SECOND)
    else:
        (usual.path / SECOND).symlink_to(usual.case.whole / SECOND)
    result = usual.run()
    assert result["failed"] and f"{SECOND} in {usual.path} were not brought by gb10.ring" in result["msg"]
    assert THIRD not in result["msg"] and usual.case.store.seen == []
    assert (usual.path / SECOND).read_bytes() == usual.case.small.files[SECOND]


def test_in_a_directory_that_somebody_named_the_slices_have_to_go_too(named):
    named.run()
    (named.path / RECORD).unlink()
    before = {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in named.stats().items()}
    result = named.run()
    assert result["failed"] and f"{SECOND}, {THIRD} in {named.path} were not brought by gb10.ring" in result["msg"]
    assert f"delete them where they are slices whose {RECORD} was deleted" in result["msg"]
    assert {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in named.stats().items()} == before
    for path in (SECOND, THIRD):
        (named.path / path).unlink()
    assert named.run()["changed"] and named.whole()


@pytest.mark.parametrize("kind", ["usual", "named"])
def test_what_is_said_of_a_record_that_cannot_be_is_true(request, kind):
    place = request.getfixturevalue(kind)
    place.run()
    record = json.loads((place.path / RECORD).read_text())
    record["files"][0]["spans"] = [[5, 1]]
    (place.path / RECORD).write_text(json.dumps(record))
    text = place.run()["msg"]
    assert "delete it, in a directory that you named the slices beside it too, and run again, which fetches all" in text
    (place.path / RECORD).unlink()
    for path in (SECOND, THIRD) if place.named else ():
        (place.path / path).unlink()
    assert place.run()["changed"] and place.whole()
    assert fetched(place.case.store) >= all_rows(place.case.rows())


@pytest.mark.parametrize("kind", ["usual", "named"])
def test_the_cure_of_the_check_is_true(request, kind):
    place = request.getfixturevalue(kind)
    place.run(revision="one")
    assert place.info()["ok"]
    (place.path / RECORD).unlink()
    found = place.info()
    assert f"there is no {RECORD}" in found["found"] and "all rows are fetched" in found["cure"]
    assert (f"delete the slices in {place.path} too" in found["cure"]) == place.named
    for path in (SECOND, THIRD) if place.named else ():
        (place.path / path).unlink()
    assert place.run(revision="one")["changed"] and place.whole() and place.info()["ok"]
