# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of objects whose chunks nobody published checksums of, with the defaults: what proves them, and what that costs."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import disk
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import expired, flip_at
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import call, difference, fetched, staged

RECORD = "tiny/engram/engram-local.json"


def wanted_of(rows):
    return sum(extent["length"] for target in rows["targets"] for extent in target["extents"])


def asked(store, path):
    """How often each byte of a file was asked for."""
    counts = [0] * len(store.objects[path])
    for text in store.ranges(path):
        first, last = map(int, text.split("-"))
        for offset in range(first, last + 1):
            counts[offset] += 1
    return counts


def test_every_byte_is_asked_for_twice_and_nothing_else(case):
    rows = case.rows()
    result = case.run(case.root, rows)
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []
    for target in rows["targets"]:
        twice = {
            offset
            for extent in target["extents"]
            for offset in range(extent["source_offset"], extent["source_offset"] + extent["length"])
        }
        assert asked(case.store, target["path"]) == [2 if at in twice else 0 for at in range(target["size"])]
    moved, index = result["moved"], len(case.small.files[INDEX])
    assert (moved["s3_bytes"], moved["second_bytes"]) == (wanted_of(rows) + index, wanted_of(rows))


def test_with_published_checksums_nothing_is_asked_for_twice(case):
    result = case.run(case.root, case.rows(), chunked=True)
    assert result["moved"]["second_bytes"] == 0
    assert max(asked(case.store, SECOND)) == max(asked(case.store, THIRD)) == 1


@pytest.mark.parametrize("placement", ["directory", "shard"])
def test_rows_that_stay_are_not_read_again(case, placement):
    old, new = case.rows(4, 1, placement=placement), case.rows(3, 1, placement=placement)
    if placement == "shard":
        staged(case.small, case.root, row_process.plan_of(case.store, chunked=False), old)
    case.run(case.root, old)
    case.store.seen.clear()
    result = case.run(case.root, new)
    assert fetched(case.store) == 2 * difference(old, new) == 2 * result["moved"]["second_bytes"]


def test_a_second_reading_is_gone_on_with(case):
    """The addresses of one file expire in its second reading: what was compared is not read a third time."""
    rows = case.rows()
    first = len(rows["targets"][0]["extents"])
    case.store.faults[SECOND] = [lambda *_request: False] * (first + 1) + [expired] * 9
    result = case.run(case.root, rows, workers=1)
    assert result["expired"] == [SECOND] and not (case.root / RECORD).exists()
    compared = result["moved"]["second_bytes"]
    assert 0 < compared < wanted_of(rows)
    case.store.faults[SECOND] = []
    case.store.seen.clear()
    again = case.run(case.root, rows)
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []
    assert again["moved"]["second_bytes"] == wanted_of(rows) - compared


@pytest.mark.parametrize("before", [True, False])
def test_rows_that_came_before_checksums_were_published_are_proved_too(case, before):
    """A first run ends with one file there and the other expired; then the checkpoint is published, and the run goes on."""
    rows = case.rows()
    case.store.faults[THIRD] = [expired] * 9
    if before:
        case.store.faults[SECOND] = [flip_at(rows["targets"][0]["extents"][0]["source_offset"])]
    # One worker: the fault is for the first request, which has to be that of the first range.
    assert case.run(case.root, rows, chunked=not before, workers=1)["expired"] == [THIRD]
    case.store.faults[THIRD] = []
    again = case.run(case.root, rows, chunked=True)
    if before:
        assert again["failed"] and f"{SECOND}: bytes" in again["msg"] and not (case.root / RECORD).exists()
        again = case.run(case.root, rows, chunked=True)
    assert again["moved"]["second_bytes"] == 0
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


# --- whole shards of the node -----------------------------------------------------------------------------------------


def copied(case, **changes):
    """A directory with whole shards, of which some bytes are others. changes: offset by name."""
    directory = case.root / "copied"
    directory.mkdir(parents=True)
    for name, path in (("second", SECOND), ("third", THIRD)):
        body = bytearray(case.small.files[path])
        if name in changes:
            body[changes[name]] ^= 1
        (directory / path).write_bytes(body)
    return directory


@pytest.mark.parametrize("placement", ["directory", "shard"])
@pytest.mark.parametrize("tp", [1, 3])
def test_rows_that_complete_a_whole_shard_need_no_second_reading(case, placement, tp):
    rows = case.rows(tp, 0, placement=placement)
    directory = case.root / "tiny/engram"
    if placement == "shard":
        directory = staged(case.small, case.root, row_process.plan_of(case.store, chunked=False), rows)
    result = case.run(case.root, rows, whole_directories=[str(copied(case))])
    assert result["moved"]["second_bytes"] == 0 and {path for path, _headers in case.store.seen} <= {INDEX}
    assert engram_reader.problems(directory, case.whole) == []


def test_one_rank_that_has_all_of_an_object_needs_no_second_reading(case):
    rows = case.rows(1, 0, placement="shard")
    directory = staged(case.small, case.root, row_process.plan_of(case.store, chunked=False), rows)
    result = case.run(case.root, rows)
    assert (
        fetched(case.store) == wanted_of(rows) == result["moved"]["s3_bytes"]
        and engram_reader.problems(directory, case.whole) == []
    )


def outside(rows):
    """A byte of the second shard that the rank does not have."""
    first = rows["targets"][0]["extents"][0]
    return first["source_offset"] - 1 if first["source_offset"] > 8 else first["source_offset"] + first["length"]


def test_a_whole_shard_that_is_wrong_elsewhere_costs_a_second_reading(case):
    rows = case.rows()
    result = case.run(case.root, rows, whole_directories=[str(copied(case, second=outside(rows)))])
    second = sum(extent["length"] for extent in rows["targets"][0]["extents"])
    assert result["changed"] and result["moved"]["second_bytes"] == second
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_wrong_rows_of_a_whole_shard_never_get_a_record(case):
    rows = case.rows()
    directory = copied(case, second=rows["targets"][0]["extents"][0]["source_offset"])
    result = case.run(case.root, rows, whole_directories=[str(directory)])
    assert (
        result["failed"]
        and f"They came from {directory / SECOND}" in result["msg"]
        and "delete it, or" in result["msg"]
    )
    assert not (case.root / RECORD).exists()
    (directory / SECOND).unlink()
    assert case.run(case.root, rows, whole_directories=[str(directory)])["changed"]
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_a_bit_that_flips_between_a_good_shard_and_the_slice_never_gets_a_record(case, monkeypatch):
    rows, flips = case.rows(), [1]
    real = disk.DiskReader.some

    def some(self, view):
        count = real(self, view)
        if flips:
            view[count // 2] ^= flips.pop()
        return count

    monkeypatch.setattr(disk.DiskReader, "some", some)
    directory = copied(case)
    result = case.run(case.root, rows, whole_directories=[str(directory)], workers=1)
    assert result["failed"] and not (case.root / RECORD).exists() and not flips
    assert case.run(case.root, rows, whole_directories=[str(directory)])["changed"]
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_another_kind_of_checksum_cannot_be_completed(case):
    """SHA-256 needs every byte in order, so rows are read a second time."""
    plan = row_process.plan_of(case.store, chunked=False)
    for file in plan["files"]:
        file["digest"] = "sha256:" + "0" * 64 if file["path"] == SECOND else file["digest"]
    rows = case.rows()
    given = row_process.arguments(plan, rows, case.root, case.store.sources(), whole_directories=[str(copied(case))])
    result = call(case.capsys, given)
    assert result["moved"]["second_bytes"] == sum(extent["length"] for extent in rows["targets"][0]["extents"])
