# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""engram_rows ended at any moment: engram-local.json never tells of rows that are not there and verified, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import journal, row_apply
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_place import RowPlace
from ansible_collections.gb10.ring.plugins.modules import engram_rows
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import expired
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import staged

RATE = 120_000_000
WORKERS = 3
PART = 8 << 20
#: With the defaults: nobody published checksums of chunks, every row is read a second time.
OPTIONS = {"workers": WORKERS, "part_mib": PART >> 20}


def made(tmp_path_factory, vocabulary):
    small = engram_shards.small("nvfp4", vocabulary=vocabulary)
    whole = tmp_path_factory.mktemp("whole")
    for path, body in small.files.items():
        (whole / path).write_bytes(body)
    return small, whole


def rows_of(small, tp, rank, placement="directory"):
    return row_process.rows_of(small.config, small.files, tp=tp, rank=rank, rule="vllm", placement=placement)


def sound(root, whole):
    """Whether there is no record, or one that tells the truth about every row."""
    directory = root / "tiny/engram"
    if not (directory / "engram-local.json").exists():
        return True
    return engram_reader.problems(directory, whole) == []


def fetched(store):
    total = 0
    for path, headers in store.seen:
        start, last = headers["Range"].removeprefix("bytes=").split("-")
        total += 0 if path == INDEX else int(last) - int(start) + 1
    return total


# --- SIGKILL at any time ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return made(tmp_path_factory, 6000)


@pytest.fixture(scope="module")
def store(large):
    with object_server.serving(**large[0].files) as running:
        yield running


@pytest.fixture(scope="module")
def duration(large, store, tmp_path_factory):
    """Seconds that an undisturbed run takes."""
    plan = row_process.plan_of(store, chunked=False)
    root, began = tmp_path_factory.mktemp("whole") / "root", time.monotonic()
    rows = rows_of(large[0], 2, 1)
    process = row_process.start(plan, rows, root, store.sources(), rate_limit=RATE, **OPTIONS)
    assert row_process.finish(process)["changed"]
    return time.monotonic() - began


@pytest.mark.parametrize("point", range(20))
def test_a_run_killed_at_any_point(large, store, duration, tmp_path, point):
    """Every second one changes the rows of a node that has others."""
    small, whole = large
    plan = row_process.plan_of(store, chunked=False)
    root, rows = tmp_path / "root", rows_of(small, 2, 1)
    if point % 2:
        other = row_process.start(plan, rows_of(small, 3, 1), root, store.sources(), **OPTIONS)
        assert row_process.finish(other)["changed"] and sound(root, whole)
    store.seen.clear()
    process = row_process.start(plan, rows, root, store.sources(), rate_limit=RATE, **OPTIONS)
    time.sleep(duration * random.Random(point).uniform(0.2, 1.0))
    process.kill()
    process.communicate(timeout=10)
    assert sound(root, whole)
    before = fetched(store)
    result = row_process.finish(row_process.start(plan, rows, root, store.sources(), **OPTIONS))
    assert not result.get("failed"), result
    assert engram_reader.problems(root / "tiny/engram", whole) == []
    wanted = sum(extent["length"] for target in rows["targets"] for extent in target["extents"])
    # Each byte twice; what is asked for more often is what was in flight.
    assert fetched(store) <= 2 * wanted + WORKERS * PART and before <= 2 * wanted
    assert sorted(path.name for path in (root / "tiny/staging").iterdir()) == [".lock"]


# --- and at every single step -----------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing in the program catches it."""


class Steps:
    """Ends the program at its nth change of the file system's names, of the journal, or of the record."""

    def __init__(self, monkeypatch, last):
        self.left = last
        for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "link"), (journal.Journal, "_append")):
            self.watch(monkeypatch, owner, name)
        self.watch(monkeypatch, row_apply, "write_text")

    def watch(self, monkeypatch, owner, name):
        real = getattr(owner, name)

        def step(*arguments, **more):
            self.left -= 1
            if self.left < 0:
                raise Killed
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, step)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return made(tmp_path_factory, 11)


def call(arguments, capsys, ends=SystemExit):
    with patch_module_args(arguments), pytest.raises(ends):
        engram_rows.main()
    said = capsys.readouterr().out
    return json.loads(said) if said else {}


@pytest.fixture
def quick(monkeypatch):
    """What a kill leaves does not depend on what is on the disk."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("before", [None, (3, 1)])
def test_a_run_that_ends_at_any_step(capsys, monkeypatch, tiny, tmp_path, before):
    small, whole = tiny
    last, ended = -1, True

    def go(store, root, rows, ends=SystemExit):
        plan = row_process.plan_of(store, chunked=False)
        return call(row_process.arguments(plan, rows, root, store.sources(), **OPTIONS), capsys, ends)

    while ended:
        last += 1
        root, rows = tmp_path / str(last), rows_of(small, 2, 1)
        with object_server.serving(**small.files) as store:
            if before:
                assert go(store, root, rows_of(small, *before))["changed"]
            with monkeypatch.context() as patched:
                steps = Steps(patched, last)
                go(store, root, rows, (SystemExit, Killed))
                ended = steps.left < 0
            assert sound(root, whole)
            assert not go(store, root, rows).get("failed")
            assert engram_reader.problems(root / "tiny/engram", whole) == []
            assert sorted(path.name for path in (root / "tiny/engram").iterdir()) == sorted(
                [INDEX, "engram-local.json", *(target["path"] for target in rows["targets"])]
            )
    assert last > 20


# --- while one slice changes and the other stays ----------------------------------------------------------------------


class Node:
    """One whose rows are there. change: what happens to them then. A run goes to revision two when that is what changes."""

    def __init__(self, capsys, states, root, placement, change):
        self.capsys, self.root, self.placement = capsys, root, placement
        self.change, self.asked = change, []
        self.small, self.whole = states["two" if change == "updated" else "one"]
        self.wholes = {name: whole for name, (_small, whole) in states.items()}
        self.revision = "two" if change == "updated" else "one"
        assert self.run(*states["one"], "one")["changed"]
        self.asked.clear()
        place = self.place("one")
        if change == "deleted":
            (place / SECOND).unlink()
        elif change == "drifted":
            (place / SECOND).write_bytes(b"drifted")
        elif change == "index":
            (place / INDEX).write_bytes(b"{}")

    def place(self, revision=""):
        base = self.root / "tiny"
        return base / "engram" if self.placement == "directory" else base / "revisions" / (revision or self.revision)

    def run(self, small, _whole, revision, ends=SystemExit, faults=()):
        rows = rows_of(small, 2, 1, self.placement)
        with object_server.serving(**small.files) as store:
            store.faults[SECOND] = list(faults)
            plan = row_process.plan_of(store, chunked=False, revision=revision)
            if self.placement == "shard":
                staged(small, self.root, plan, rows)
            result = call(row_process.arguments(plan, rows, self.root, store.sources(), **OPTIONS), self.capsys, ends)
            self.asked += [path for path, _headers in store.seen]
        return result

    def go(self, ends=SystemExit, **more):
        return self.run(self.small, self.whole, self.revision, ends, **more)

    def truthful(self):
        """Whether there is no record, or a true one. Of what was changed behind its back it may say what was so before."""
        record = self.place() / "engram-local.json"
        if not record.exists() or self.change != "updated":
            return True
        return engram_reader.problems(self.place(), self.wholes[json.loads(record.read_text())["revision"]]) == []


@pytest.fixture(scope="module")
def states(tiny, tmp_path_factory):
    """Two states of the checkpoint, SECOND has another byte in the rows of rank 1 in the newer one."""
    small, whole = tiny
    shard = bytearray(small.files[SECOND])
    shard[len(shard) * 3 // 4] ^= 1
    newer = replace(small, files={**small.files, SECOND: bytes(shard)})
    directory = tmp_path_factory.mktemp("newer")
    for path, body in newer.files.items():
        (directory / path).write_bytes(body)
    return {"one": (small, whole), "two": (newer, directory)}


@pytest.fixture
def node(capsys, states, tmp_path):
    return lambda name, placement, change: Node(capsys, states, tmp_path / name, placement, change)


def end(node, monkeypatch, last):
    """A run that is killed at that step; whether it was."""
    with monkeypatch.context() as patched:
        steps = Steps(patched, last)
        node.go((SystemExit, Killed))
        return steps.left < 0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("placement", "change", "times"),
    [
        ("directory", "deleted", 1),
        ("directory", "drifted", 2),
        ("directory", "index", 1),
        ("directory", "updated", 1),
        ("shard", "deleted", 2),
        ("shard", "updated", 1),
    ],
)
def test_the_slice_that_stays_is_there_after_any_end(monkeypatch, node, placement, change, times):
    last, ended = -1, True
    while ended:
        last += 1
        one = node(str(last), placement, change)
        stays = one.place("one") / THIRD
        inode = stays.stat().st_ino
        for _time in range(times):
            ended = end(one, monkeypatch, last)
            assert one.truthful()
        result = one.go()
        assert not result.get("failed"), (last, result)
        assert THIRD not in one.asked and (one.place() / THIRD).stat().st_ino == inode, last
        assert engram_reader.problems(one.place(), one.whole) == []
        assert not list(one.place().glob("*.partial"))
        if change == "index":
            assert SECOND not in one.asked
        one.asked.clear()
        assert not one.go()["changed"] and one.asked == []
    assert last > 5


def left_by_a_kill(node, monkeypatch, placement="directory"):
    """A node on which a run was killed right before its end, with one slice that stayed."""
    for last in range(100):
        one = node(str(last), placement, "deleted")
        if not end(one, monkeypatch, last):
            raise AssertionError("no run left a slice in place")
        if not (one.place() / "engram-local.json").exists() and not (one.place() / SECOND).exists():
            one.asked.clear()
            return one
    raise AssertionError("no end")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("placement", ["directory", "shard"])
def test_a_slice_that_stayed_and_was_changed_after_the_kill_is_not_trusted(monkeypatch, node, placement):
    one = left_by_a_kill(node, monkeypatch, placement)
    path = one.place() / THIRD
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert not one.go().get("failed")
    assert THIRD in one.asked and engram_reader.problems(one.place(), one.whole) == []


@pytest.mark.usefixtures("quick")
def test_what_a_journal_says_is_of_its_directory_alone(monkeypatch, node):
    one = left_by_a_kill(node, monkeypatch)
    other = one.root / "other"
    other.mkdir()
    (one.place() / THIRD).rename(other / THIRD)
    with object_server.serving(**one.small.files) as store:
        plan = row_process.plan_of(store, chunked=False, revision="one")
        given = row_process.arguments(plan, rows_of(one.small, 2, 1), one.root, store.sources(), directory=str(other))
        assert "were not brought by gb10.ring" in call(given, one.capsys)["msg"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("between", ["full", "shard"])
def test_a_run_for_another_placement_ends_nothing_that_a_killed_one_left(monkeypatch, node, between):
    """The slices in the directory are partial files of ours before it and after it."""
    one = left_by_a_kill(node, monkeypatch)
    left = {path.name: path.stat().st_ino for path in one.place().iterdir()}
    one.placement = between
    assert not one.go().get("failed")
    one.placement = "directory"
    assert {path.name: path.stat().st_ino for path in one.place().iterdir()} == left
    one.asked.clear()
    assert not one.go().get("failed")
    assert THIRD not in one.asked and engram_reader.problems(one.place(), one.whole) == []
    assert sorted(path.name for path in (one.root / "tiny/staging").iterdir()) == [".lock"]


@pytest.mark.usefixtures("quick")
def test_a_run_for_another_revision_ends_nothing_that_a_killed_one_left(monkeypatch, states, node):
    for last in range(100):
        one = node(str(last), "shard", "updated")
        assert end(one, monkeypatch, last), "no run left rows in a partial file"
        journals = (one.root / "tiny/staging").glob("*.journal")
        if any('"line": "proved"' in path.read_text() for path in journals):
            break
    assert (one.place() / f"{SECOND}.partial").exists() and not one.run(*states["one"], "one")["changed"]
    assert one.go()["moved"]["resumed_bytes"] > 0
    assert engram_reader.problems(one.place(), one.whole) == []
    assert sorted(path.name for path in (one.root / "tiny/staging").iterdir()) == [".lock"]


@pytest.mark.parametrize("placement", ["directory", "shard"])
def test_a_run_whose_addresses_expire_keeps_the_slice_that_stays(node, placement):
    one = node("node", placement, "deleted")
    result = one.go(faults=[expired] * 20)
    assert result["expired"] == [SECOND] and not (one.place() / "engram-local.json").exists()
    assert not one.go().get("failed")
    assert THIRD not in one.asked and engram_reader.problems(one.place(), one.whole) == []


@pytest.mark.usefixtures("quick")
def test_a_second_name_of_another_revisions_slice_is_no_partial_file(node):
    """Whatever a journal says of it: written into, it would change the rows that the other revision serves."""
    one = node("node", "shard", "updated")
    other, place = one.place("one"), one.place()
    place.mkdir()
    os.link(other / THIRD, place / f"{THIRD}.partial")
    body, stat = one.small.files[THIRD], (other / THIRD).stat()
    where = RowPlace(Layout(str(one.root), "tiny"), place)
    with contextlib.closing(journal.Journal(where.journal)) as lines:
        lines.begin(File(THIRD, len(body), "", f"crc64nvme:{row_process.crc(body):016x}"), "crc64nvme")
    assert not one.go().get("failed")
    assert (other / THIRD).stat().st_mtime_ns == stat.st_mtime_ns and (other / THIRD).samefile(place / THIRD)
    assert engram_reader.problems(place, one.whole) == [] and engram_reader.problems(other, one.wholes["one"]) == []
