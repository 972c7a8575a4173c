# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows that are not what was verified any more, with size and time as they were, and what comes from the disk other than it was written."""

from __future__ import annotations

import json
import mmap
import os

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_again, row_apply, row_measure, sink
from ansible_collections.gb10.ring.plugins.modules import engram_info
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import WITHOUT, Case, fetched, staged

RECORD = "engram-local.json"


def extent_of(rows, path=SECOND, kind="weight"):
    target = next(target for target in rows["targets"] if target["path"] == path)
    return next(extent for extent in target["extents"] if extent["kind"] == kind)


def flip(path, at):
    stat = path.stat()
    with path.open("r+b") as handle:
        handle.seek(at)
        byte = handle.read(1)[0]
        handle.seek(at)
        handle.write(bytes([byte ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def again(case, rows, **more):
    """As the role does: a budget that reads, then the work with what it found."""
    told = case.run(case.root, rows, phase="budget", verify="full", sources=False, **more)
    case.store.seen.clear()
    return told, case.run(case.root, rows, verify="full", damaged=told["damaged"], **WITHOUT, **more)


def looked(case, revision="one"):
    """checkpoint.engram with every row read."""
    place = case.root / "tiny/revisions" / revision
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_bytes(case.small.files["config.json"])
    given = {"root": str(case.root), "name": "tiny", "revision": revision, "node": "n1", "tensor_parallel": 3}
    given |= {"rank": 1, "rule": "vllm", "placement": "directory", "verify": "full"}
    with patch_module_args(given), pytest.raises(SystemExit):
        engram_info.main()
    return json.loads(case.capsys.readouterr().out)["checks"][0]


# --- rows that are there ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["weight", "scale"])
def test_a_flipped_bit_is_repaired_and_nothing_else_is_fetched(case, kind):
    rows, place = case.rows(), case.root / "tiny/engram"
    case.run(case.root, rows, revision="one", **WITHOUT)
    extent = extent_of(rows, kind=kind)
    flip(place / SECOND, extent["target_offset"] + 5)
    seen = looked(case)
    assert not seen["ok"] and "checkpoint_verify=full" in seen["cure"]
    assert not case.run(case.root, rows, revision="one")["changed"]
    told, result = again(case, rows, revision="one")
    (key,) = told["damaged"]
    assert key.startswith(f"{place}/{SECOND}:") and told["stages"] and result["changed"]
    assert result["summary"]["fetch"]["bytes"] == extent["length"] and fetched(case.store) == extent["length"]
    assert engram_reader.problems(place, case.whole) == [] and looked(case)["ok"]
    told, result = again(case, rows, revision="one")
    assert (told["damaged"], told["stages"], result["changed"], case.store.seen) == ({}, False, False, [])


def test_check_mode_says_the_same(case):
    rows = case.rows()
    case.run(case.root, rows, revision="one", **WITHOUT)
    flip(case.root / "tiny/engram" / SECOND, extent_of(rows)["target_offset"])
    told = case.run(case.root, rows, phase="budget", verify="full", sources=False, revision="one")
    given = {"damaged": told["damaged"], "revision": "one", **WITHOUT}
    checked = case.run(case.root, rows, _ansible_check_mode=True, **given)
    assert checked["changed"] and checked["diff"] == case.run(case.root, rows, **given)["diff"]


def test_where_all_of_a_file_is_wrong_it_is_made_anew(case):
    rows, place = case.rows(), case.root / "tiny/engram"
    case.run(case.root, rows, revision="one", **WITHOUT)
    extents = next(target for target in rows["targets"] if target["path"] == SECOND)["extents"]
    for extent in extents:
        flip(place / SECOND, extent["target_offset"])
    again(case, rows, revision="one")
    assert engram_reader.problems(place, case.whole) == [] and looked(case)["ok"]
    assert fetched(case.store) == sum(extent["length"] for extent in extents)


def test_a_process_keeps_the_damaged_file_that_it_has_open(case):
    rows, place = case.rows(), case.root / "tiny/engram"
    case.run(case.root, rows, revision="one", **WITHOUT)
    flip(place / SECOND, extent_of(rows)["target_offset"])
    before = (place / SECOND).read_bytes()
    with row_process.holding(place / SECOND) as read:
        again(case, rows, revision="one")
        assert read() == before
    assert engram_reader.problems(place, case.whole) == []


@pytest.mark.parametrize("at", [b"layers", b"data_offsets", b"shape"])
def test_where_the_header_is_wrong_it_alone_is_fetched(case, at):
    rows, place = case.rows(), case.root / "tiny/engram"
    case.run(case.root, rows, revision="one", **WITHOUT)
    flip(place / SECOND, (place / SECOND).read_bytes().find(at))
    told, result = again(case, rows, revision="one")
    header = extent_of(rows, kind="header")["length"]
    assert list(told["damaged"]) == [f"{place}/{SECOND}:header"]
    assert (result["summary"]["fetch"]["bytes"], fetched(case.store)) == (header, header)
    assert engram_reader.problems(place, case.whole) == [] and looked(case)["ok"]


@pytest.mark.parametrize("carried", ["one", "staging"])
def test_what_was_found_counts_where_the_slices_were_carried(case, carried):
    """As a replacement in place does between the budget and the work: the old revision's slices, and those of a killed run's staging."""
    rows, revisions = case.rows(placement="shard"), case.root / "tiny/revisions"
    plan = row_process.plan_of(case.store, chunked=False, revision="one")
    place = staged(case.small, case.root, plan, rows)
    case.run(case.root, rows, revision="one", **WITHOUT)
    extent = extent_of(rows)
    flip(place / SECOND, extent["target_offset"] + 5)
    if carried == "staging":
        place = place.rename(case.root / "tiny/staging/two")
    told = case.run(case.root, rows, phase="budget", verify="full", sources=False, revision="two")
    assert list(told["damaged"]) == [key for key in told["damaged"] if key.startswith(f"{place}/{SECOND}:")] != []
    two = place.rename(revisions / "two")
    case.store.seen.clear()
    result = case.run(case.root, rows, verify="full", damaged=told["damaged"], revision="two", **WITHOUT)
    assert result["summary"]["fetch"]["bytes"] == extent["length"] == fetched(case.store)
    assert engram_reader.problems(two, case.whole) == []


def test_what_a_link_brings_is_said_of_that_file_alone(capsys, small, whole, tmp_path):
    """A file that stays is another object there."""
    with object_server.serving(**small.files) as store:
        case = Case(capsys, store, small, whole, tmp_path)
        rows = case.rows(placement="shard")
        staged(small, tmp_path, row_process.plan_of(store, revision="one"), rows)
        assert case.run(tmp_path, rows, revision="one", **WITHOUT)["changed"]
        body = bytearray(small.files[SECOND])
        body[extent_of(rows)["target_offset"] + 5] ^= 1
        store.objects[SECOND] = bytes(body)
        two = staged(small, tmp_path, row_process.plan_of(store, revision="two"), rows)
        assert case.run(tmp_path, rows, revision="two", **WITHOUT)["changed"]
        (two / THIRD).unlink()
        assert case.run(tmp_path, rows, revision="two", **WITHOUT)["summary"]["link"] == 1
        told = case.run(tmp_path, rows, phase="budget", verify="full", sources=False, revision="two")
        assert told["damaged"] == {} and not told["stages"]


def test_a_slice_of_another_revision_is_read_before_it_gets_a_name_here(case):
    rows = case.rows(placement="shard")
    for revision in ("one", "two", "three"):
        plan = row_process.plan_of(case.store, chunked=True, revision=revision)
        directory = staged(case.small, case.root, plan, rows)
        if revision == "two":
            flip(directory.with_name("one") / SECOND, extent_of(rows)["target_offset"] + 5)
        told, result = again(case, rows, chunked=True, revision=revision)
        assert result["changed"] and engram_reader.problems(directory, case.whole) == []
        assert len(told["damaged"]) == (revision != "one")
    one, two, three = (case.root / "tiny/revisions" / name / SECOND for name in ("one", "two", "three"))
    # The third one finds the wrong slice too, and takes the right one.
    assert two.samefile(three) and not one.samefile(two) and fetched(case.store) == 0


def test_a_file_that_cannot_be_read_is_fetched(case, monkeypatch):
    rows, place = case.rows(), case.root / "tiny/engram"
    case.run(case.root, rows, revision="one", **WITHOUT)
    real = row_again._digest

    def digest(descriptor, part, *more):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(SECOND) and part.offset:
            raise OSError(5, "Input/output error")
        return real(descriptor, part, *more)

    with monkeypatch.context() as broken:
        broken.setattr(row_again, "_digest", digest)
        told, result = again(case, rows, revision="one")
    assert list(told["damaged"]) == [f"{place}/{SECOND}"] and result["summary"]["paths"] == [SECOND]
    assert engram_reader.problems(place, case.whole) == []


def test_without_awscrt_nothing_counts_as_damaged(case, monkeypatch):
    rows = case.rows()
    case.run(case.root, rows, revision="one", **WITHOUT)
    monkeypatch.setattr(row_again, "load_crc64", lambda _path: None)
    result = case.run(case.root, rows, phase="budget", verify="full", revision="one", sources=False)
    assert result["failed"] and "awscrt cannot be imported" in result["msg"] and "zipfile -e" in result["msg"]


# --- what is written --------------------------------------------------------------------------------------------------


class Disk:
    """Changes a byte at some place of a file on its way to the disk, so many times."""

    def __init__(self, monkeypatch, name, at, times):
        self.name, self.at, self.left, self.real = name + ".partial", at, times, sink._write_all
        monkeypatch.setattr(sink, "_write_all", self.write)

    def write(self, descriptor, view, offset):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self.left and path.endswith(self.name) and offset <= self.at < offset + len(view):
            self.left -= 1
            other = mmap.mmap(-1, len(view))
            other[:] = bytes(view)
            other[self.at - offset] ^= 1
            view = memoryview(other)[: len(view)]
        return self.real(descriptor, view, offset)


@pytest.mark.parametrize("way", ["published", "read twice", "whole"])
def test_a_disk_that_changes_rows_each_time_gets_no_record(case, monkeypatch, way):
    rows, place = case.rows(), case.root / "tiny/engram"
    at = extent_of(rows)["target_offset"] + 100
    more = {"whole_directories": [str(case.whole)]} if way == "whole" else {}
    disk = Disk(monkeypatch, SECOND, at, 1 << 30)
    result = case.run(case.root, rows, chunked=way == "published", revision="one", **more)
    assert result["failed"] and f"{SECOND} at byte" in result["msg"] and "The disk or the memory" in result["msg"]
    assert not (place / RECORD).exists()
    disk.left = 0
    assert case.run(case.root, rows, chunked=way == "published", revision="one", **more)["changed"]
    assert engram_reader.problems(place, case.whole) == []


@pytest.mark.parametrize("chunked", [True, False])
def test_a_disk_that_changes_rows_once_is_given_them_again(case, monkeypatch, chunked):
    rows, place = case.rows(), case.root / "tiny/engram"
    disk = Disk(monkeypatch, SECOND, extent_of(rows)["target_offset"] + 100, 1)
    assert case.run(case.root, rows, chunked=chunked, revision="one")["changed"] and not disk.left
    assert engram_reader.problems(place, case.whole) == []


@pytest.mark.parametrize("chunked", [True, False])
def test_an_index_that_the_disk_changed_gets_no_record(case, monkeypatch, chunked):
    rows, place = case.rows(), case.root / "tiny/engram"
    disk = Disk(monkeypatch, INDEX, 40, 1)
    result = case.run(case.root, rows, chunked=chunked, revision="one")
    assert not disk.left and result["failed"] and f"{place / INDEX}: crc64nvme:" in result["msg"]
    assert not (place / RECORD).exists()
    case.store.seen.clear()
    assert case.run(case.root, rows, chunked=chunked, revision="one", **WITHOUT)["changed"]
    assert {path for path, _headers in case.store.seen} == {INDEX}  # rows that had come are kept
    assert (place / INDEX).read_bytes() == case.small.files[INDEX] and looked(case)["ok"]


def test_a_damaged_index_of_the_revision_is_not_taken(case):
    rows, revision = case.rows(), case.root / "tiny/revisions/one"
    revision.mkdir(parents=True)
    for path, body in case.small.files.items():
        (revision / path).write_bytes(body)
    for damaged in (True, False):
        if damaged:
            flip(revision / INDEX, 40)
        case.store.seen.clear()
        assert case.run(case.root, rows, revision="one")["changed"]
        asked = {path for path, _headers in case.store.seen}
        assert (case.root / "tiny/engram" / INDEX).read_bytes() == case.small.files[INDEX]
        assert (INDEX in asked) is damaged
        (case.root / "tiny/engram" / INDEX).unlink()
        (revision / INDEX).write_bytes(case.small.files[INDEX])


# --- files that come into use meanwhile -------------------------------------------------------------------------------


def test_a_file_that_is_opened_while_its_rows_are_read_stays_as_it_is(case, monkeypatch):
    """As by an engine whose unit found engram-local.json in place, when it was started."""
    old, new, place = case.rows(3, 1), case.rows(4, 1), case.root / "tiny/engram"
    case.run(case.root, old, revision="one", **WITHOUT)
    before, said = (place / SECOND).read_bytes(), (place / RECORD).read_text()
    real, held = row_measure.kept, []

    def kept(path, *more):
        if path == place / SECOND and not held:
            held.append(row_process.holding(path))
            held.append(held[0].__enter__())
        return real(path, *more)

    monkeypatch.setattr(row_apply.row_measure, "kept", kept)
    result = case.run(case.root, new, revision="one", **WITHOUT)
    assert result["failed"] and f"{SECOND} in {place} came into use while rows were read" in result["msg"]
    assert held[1]() == before == (place / SECOND).read_bytes() and (place / RECORD).read_text() == said
    case.store.seen.clear()
    assert case.run(case.root, new, revision="one", **WITHOUT)["changed"] and held[1]() == before
    held[0].__exit__(None, None, None)
    assert engram_reader.problems(place, case.whole) == []


@pytest.mark.parametrize("path", [SECOND, THIRD])
def test_check_mode_refuses_what_nobody_brought_as_the_work_does(case, path):
    place = case.root / "mine"
    place.mkdir()
    (place / path).write_bytes(case.small.files[path])
    for check in (True, False):
        result = case.run(case.root, case.rows(), directory=str(place), _ansible_check_mode=check)
        assert result["failed"] and "were not brought by gb10.ring" in result["msg"]
