# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import random
import shutil

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_plan, row_second
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.source import Source
from ansible_collections.gb10.ring.plugins.modules import engram_rows
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import expired, flip_at
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import (
    WITHOUT,
    call,
    difference,
    fetched,
    others_whole,
    staged,
)

# --- slices that somebody else has too --------------------------------------------------------------------------------


def receipt_of(root, revision):
    """A receipt by which the revision counts as there."""
    place = root / "tiny/receipts" / f"{revision}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps({"name": "tiny", "revision": revision, "created": revision, "files": []}))


def two_revisions(case, rows, then):
    """Rows in revision one, then in revision two of the same shards; what left the store for the second."""
    for revision, wanted in (("one", rows), ("two", then)):
        plan = row_process.plan_of(case.store, chunked=False, revision=revision)
        directory = staged(case.small, case.root, plan, wanted)
        receipt_of(case.root, revision)
        case.store.seen.clear()
        result = case.run(case.root, wanted, revision=revision, **WITHOUT)
        assert result["changed"], result
    return directory


def test_a_second_revision_links_the_slices_of_the_first(case):
    rows = case.rows(placement="shard")
    two = two_revisions(case, rows, rows)
    assert case.store.seen == [] and engram_reader.problems(two, case.whole) == []
    one = case.root / "tiny/revisions/one"
    assert all((one / target["path"]).samefile(two / target["path"]) for target in rows["targets"])


def test_with_other_ranks_it_copies_what_the_first_has(case):
    old, new = case.rows(4, 1, placement="shard"), case.rows(3, 1, placement="shard")
    two = two_revisions(case, old, new)
    assert fetched(case.store) == difference(old, new)
    assert (
        engram_reader.problems(two, case.whole)
        == []
        == engram_reader.problems(case.root / "tiny/revisions/one", case.whole)
    )


def test_a_linked_slice_is_not_changed_for_the_other_revision(case):
    old, new = case.rows(4, 1, placement="shard"), case.rows(3, 1, placement="shard")
    two = two_revisions(case, old, old)
    case.store.seen.clear()
    case.run(case.root, new, revision="two", **WITHOUT)
    assert fetched(case.store) == difference(old, new)
    assert (
        engram_reader.problems(two, case.whole)
        == []
        == engram_reader.problems(case.root / "tiny/revisions/one", case.whole)
    )


def test_a_slice_that_a_process_reads_is_replaced_and_not_changed(case):
    old, new = case.rows(4, 1), case.rows(3, 1)
    case.run(case.root, old, **WITHOUT)
    path = case.root / "tiny/engram" / old["targets"][0]["path"]
    before = path.read_bytes()
    with row_process.holding(path) as seen:
        case.run(case.root, new, **WITHOUT)
        assert seen() == before
    assert path.read_bytes() != before and engram_reader.problems(path.parent, case.whole) == []


# --- whole shards of this node ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [True, False])
def test_rows_come_from_a_whole_shard_of_the_node(case, chunked):
    result = case.run(case.root, case.rows(), chunked=chunked, whole_directories=[str(case.whole)], **WITHOUT)
    assert {path for path, _headers in case.store.seen} == {INDEX}
    assert result["moved"]["disk_bytes"] >= sum(
        extent["length"] for target in case.rows()["targets"] for extent in target["extents"]
    )
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_a_whole_shard_in_the_revision_becomes_a_slice(case):
    rows = case.rows(placement="shard")
    directory = staged(case.small, case.root, row_process.plan_of(case.store, chunked=False), rows)
    for target in rows["targets"]:
        shutil.copy(case.whole / target["path"], directory)
    result = case.run(case.root, rows, **WITHOUT)
    assert case.store.seen == [] and result["moved"]["s3_bytes"] == 0
    assert engram_reader.problems(directory, case.whole) == [] and others_whole(case.small, directory, rows)


def test_a_sparse_file_is_never_taken_for_a_whole_one(case):
    rows = case.rows()
    case.run(case.root / "other", case.rows(3, 0), **WITHOUT)
    result = case.run(case.root / "mine", rows, whole_directories=[str(case.root / "other/tiny/engram")], **WITHOUT)
    assert result["moved"]["disk_bytes"] == 0
    assert engram_reader.problems(case.root / "mine/tiny/engram", case.whole) == []


def test_a_damaged_whole_shard_is_left_for_the_store(case):
    rows, damaged = case.rows(), case.root / "damaged"
    damaged.mkdir()
    for target in rows["targets"]:
        extent = target["extents"][-1]
        body = bytearray(case.small.files[target["path"]])
        body[extent["source_offset"]] ^= 1
        (damaged / target["path"]).write_bytes(body)
    result = case.run(case.root, rows, chunked=True, whole_directories=[str(damaged)], **WITHOUT)
    assert result["moved"]["s3_bytes"] > 0, result
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_rows_come_from_a_neighbour_with_whole_shards_first(case):
    rows = case.rows()
    with object_server.serving(**case.small.files) as neighbour:
        peers = {path: [Source(neighbour.url(path), "peer", 60.0)] for path in (SECOND, THIRD)}
        sources = {path: (*peers.get(path, ()), *own) for path, own in case.store.sources().items()}
        plan = row_process.plan_of(case.store)
        result = call(case.capsys, row_process.arguments(plan, rows, case.root, sources))
    assert {path for path, _headers in case.store.seen} == {INDEX}
    assert result["moved"]["peer_bytes"] > 0
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_a_neighbour_that_has_none_is_left_for_the_store(case):
    rows = case.rows()
    with object_server.serving() as neighbour:
        sources = {path: (Source(neighbour.url(path), "peer"), *own) for path, own in case.store.sources().items()}
        plan = row_process.plan_of(case.store)
        assert call(case.capsys, row_process.arguments(plan, rows, case.root, sources))["changed"]
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


# --- damage -----------------------------------------------------------------------------------------------------------


def row_in(rows, path, at=0.5):
    extent = max(
        (extent for target in rows["targets"] if target["path"] == path for extent in target["extents"]),
        key=lambda extent: extent["length"],
    )
    return extent["source_offset"] + int(extent["length"] * at)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_flipped_bit_never_gets_a_record(case, chunked):
    """Every answer but those of a second reading has it."""
    rows = case.rows()
    offset = row_in(rows, SECOND)
    case.store.faults[SECOND] = [flip_at(offset)] * 20
    failed = case.run(case.root, rows, chunked=chunked, verify_share=1.0) if chunked else None
    if not chunked:
        case.store.faults[SECOND] = [flip_at(offset)] * len(rows["targets"][0]["extents"])
        failed = case.run(case.root, rows, verify_share=1.0)
    assert failed["failed"] and SECOND in failed["msg"], failed
    assert not (case.root / "tiny/engram/engram-local.json").exists()
    case.store.faults[SECOND] = []
    again = case.run(case.root, rows, chunked=chunked, verify_share=1.0)
    assert again["changed"] and engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_a_second_reading_that_is_wrong_once_is_read_once_more(case):
    rows = case.rows()
    case.run(case.root / "counted", rows, **WITHOUT)
    first = len(case.store.requests(SECOND))
    case.store.faults[SECOND] = [lambda *_request: False] * first + [flip_at(row_in(rows, SECOND))] * 2
    result = case.run(case.root / "mine", rows, verify_share=1.0, workers=1)
    assert result["changed"] and engram_reader.problems(case.root / "mine/tiny/engram", case.whole) == []


def test_rows_that_the_disk_changed_are_fetched_once_more(case, monkeypatch):
    rows, partial = case.rows(), case.root / "tiny/engram" / f"{SECOND}.partial"
    moved = engram_rows.row_frontend.row_apply._read_back

    def damaging(job, journal, stored):
        with partial.open("r+b") as handle:
            handle.seek(row_in(rows, SECOND))
            handle.write(b"\0\0\0")
        return moved(job, journal, stored)

    monkeypatch.setattr(engram_rows.row_frontend.row_apply, "_read_back", damaging)
    assert case.run(case.root, rows, **WITHOUT)["changed"]
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_an_object_that_was_replaced_is_not_mixed(case):
    rows, plan = case.rows(), row_process.plan_of(case.store, chunked=False)
    case.store.etags[SECOND] = '"another"'
    result = call(case.capsys, row_process.arguments(plan, rows, case.root, case.store.sources(), **WITHOUT))
    assert result["replaced"] == [SECOND] and not (case.root / "tiny/engram/engram-local.json").exists()


def test_with_new_addresses_it_goes_on_where_the_old_ones_expired(case):
    rows = case.rows()
    case.store.faults[SECOND] = [expired] * 9
    result = case.run(case.root, rows, **WITHOUT)
    assert result["expired"] == [SECOND] and "url_expiry_s" in result["reason"]
    assert not (case.root / "tiny/engram/engram-local.json").exists()
    case.store.faults[SECOND] = []
    case.store.seen.clear()
    again = case.run(case.root, rows, **WITHOUT)
    assert again["changed"] and not again.get("expired")
    assert {path for path, _headers in case.store.seen} <= {SECOND, INDEX}
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_shards_in_a_directory_that_somebody_named_are_not_replaced(case):
    place = case.root / "models"
    shutil.copytree(case.whole, place)
    result = case.run(case.root, case.rows(), directory=str(place))
    assert result["failed"] and f"{SECOND}, {THIRD} in {place} were not brought by gb10.ring" in result["msg"]
    assert (place / SECOND).read_bytes() == case.small.files[SECOND] and case.store.seen == []


def test_a_record_of_somebody_else_is_left_alone(case):
    place = case.root / "tiny/engram"
    place.mkdir(parents=True)
    (place / "engram-local.json").write_text('{"source": "/mnt", "layers": {"1": [0, 5]}}')
    result = case.run(case.root, case.rows())
    assert result["failed"] and "was not written by gb10.ring" in result["msg"] and case.store.seen == []


# --- the second reading's sample --------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_the_sample_has_both_ends_and_its_share(case, share):
    rows = case.rows(2, 1, placement="shard")
    for target in row_plan.from_dict(rows).targets:
        found = row_second.sample(target, share, random.Random(1).random)
        extents = [extent.span for extent in target.extents]
        assert all(any(low <= part.offset and part.end <= high for low, high in extents) for part in found)
        for extent in target.extents:
            inside = [part for part in found if extent.span[0] <= part.offset < extent.span[1]]
            assert inside[0].offset == extent.span[0] and inside[-1].end == extent.span[1]
            read = sum(part.length for part in inside)
            assert share * extent.length * 0.9 <= read <= max(extent.length * share * 1.6, 2000) + 600 or share == 1
        if share == 1:
            assert [(part.offset, part.end) for part in found] == extents
