# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import json
import os
import random
import shutil

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_plan, row_second
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK
from ansible_collections.gb10.ring.plugins.modules import engram_rows
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import flip_at

BLOCK = 4096
WITHOUT = {"verify_share": 0.0}


#: "split": the two tensors of a table in different shards.
LAYOUTS = pytest.mark.parametrize("layout", ["official", "nvfp4", "split"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def layout(request):
    return getattr(request, "param", "official")


@pytest.fixture(scope="module")
def small(layout):
    return engram_shards.small(layout, vocabulary=40)


@pytest.fixture
def store(small):
    with object_server.serving(**small.files) as running:
        yield running


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """A directory with the whole files."""
    directory = tmp_path_factory.mktemp("whole")
    for path, body in small.files.items():
        (directory / path).write_bytes(body)
    return directory


def call(capsys, arguments):
    with patch_module_args(arguments), pytest.raises(SystemExit):
        engram_rows.main()
    return json.loads(capsys.readouterr().out)


class Case:
    """One checkpoint in a store, whole in a directory, and an empty root of a node."""

    def __init__(self, capsys, store, small, whole, root):
        self.capsys, self.store, self.small, self.whole, self.root = capsys, store, small, whole, root

    def rows(self, tp=3, rank=1, rule="vllm", placement="directory"):
        return row_process.rows_of(
            self.small.config, self.small.files, tp=tp, rank=rank, rule=rule, placement=placement
        )

    def run(self, root, rows, *, chunked=False, sources=True, revision="", **more):
        plan = row_process.plan_of(self.store, chunked=chunked, revision=revision)
        given = self.store.sources() if sources else None
        return call(self.capsys, row_process.arguments(plan, rows, root, given, **more))


@pytest.fixture
def case(capsys, store, small, whole, tmp_path):
    return Case(capsys, store, small, whole, tmp_path)


def fetched(store):
    """Bytes that left the store, and those of them that belong to shards."""
    total = 0
    for _path, headers in store.seen:
        start, last = headers["Range"].removeprefix("bytes=").split("-")
        total += int(last) - int(start) + 1
    return total


def staged(small, root, plan, rows):
    """What checkpoint_stage leaves for placement shard: a revision with every file but the shards of the tables."""
    directory = root / "tiny/revisions" / plan["revision"]
    directory.mkdir(parents=True, exist_ok=True)
    for path, body in small.files.items():
        if path not in {target["path"] for target in rows["targets"]}:
            (directory / path).write_bytes(body)
    return directory


def others_whole(small, directory, rows):
    """Whether every byte of the sliced shards that belongs to no table is there."""
    tables = engram_reader.Tables(directory)
    for target in rows["targets"]:
        mine, theirs = (directory / target["path"]).read_bytes(), small.files[target["path"]]
        spans = [
            (start, start + width * count)
            for layer in tables.layers
            for part in engram_reader.WIDTHS
            for path, start, width, count in [tables.table(layer, part)]
            if path.name == target["path"]
        ]
        at = 0
        for low, high in [*sorted(spans), (len(theirs), len(theirs))]:
            if mine[at:low] != theirs[at:low]:
                return False
            at = high
    return True


# --- every number of ranks, rule, layout and placement ----------------------------------------------------------------


@LAYOUTS
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("rule", ["vllm", "sglang"])
@pytest.mark.parametrize("placement", ["directory", "shard"])
@pytest.mark.parametrize("tp", [2, 3, 4])
def test_each_rank_holds_its_rows_and_nothing_else(case, tp, placement, rule, chunked):
    records = []
    for rank in range(tp):
        root = case.root / str(rank)
        rows = case.rows(tp, rank, rule, placement)
        plan = row_process.plan_of(case.store, chunked=chunked)
        directory = staged(case.small, root, plan, rows) if placement == "shard" else root / "tiny/engram"
        case.store.seen.clear()
        result = case.run(root, rows, chunked=chunked, **WITHOUT)
        assert result["changed"] and result["path"] == str(directory), result
        assert engram_reader.problems(directory, case.whole) == []
        wanted = sum(extent["length"] for target in rows["targets"] for extent in target["extents"])
        index = len(case.small.files[INDEX]) if placement == "directory" else 0
        edges = sum(min(CHUNK, target["size"]) for target in rows["targets"] for _extent in target["extents"])
        assert wanted + index <= fetched(case.store) <= wanted + index + (2 * edges if chunked else 0)
        if placement == "shard":
            assert others_whole(case.small, directory, rows)
        records.append(json.loads((directory / "engram-local.json").read_text()))
        assert not [path for path in directory.iterdir() if path.name.endswith(".partial")]
        assert sorted(path.name for path in (root / "tiny/staging").iterdir()) == [".lock"]
    assert engram_reader.tile(records, case.small.rows)


def test_of_large_tables_no_more_than_a_chunk_at_each_end_is_fetched(capsys, tmp_path):
    small = engram_shards.small("nvfp4", vocabulary=10_000)
    rows = row_process.rows_of(small.config, small.files, tp=4, rank=2, rule="sglang", placement="directory")
    with object_server.serving(**small.files) as store:
        case = Case(capsys, store, small, None, tmp_path)
        assert case.run(tmp_path, rows, chunked=True)["changed"]
    for target in rows["targets"]:
        asked = sum(1 + last - first for first, last in ranges_of(store, target["path"]))
        wanted = sum(extent["length"] for extent in target["extents"])
        stretches = 1 + sum(
            before["target_offset"] + before["length"] < after["target_offset"]
            for before, after in itertools.pairwise(target["extents"])
        )
        assert wanted <= asked <= wanted + 2 * CHUNK * stretches and asked < target["size"] - CHUNK / 2


def ranges_of(store, path):
    return [tuple(map(int, text.split("-"))) for text in store.ranges(path)]


@LAYOUTS
@pytest.mark.parametrize("rule", ["vllm", "sglang"])
def test_with_whole_shards_it_says_what_the_engine_has_to_be_told(case, rule):
    ranges = []
    for rank in range(3):
        result = case.run(case.root, case.rows(3, rank, rule, "full"))
        assert not result["changed"] and case.store.seen == []
        told = result["environment"]
        assert told.get("DSV41_ENGRAM_DISK", "1") == "1" and "DSV41_ENGRAM_DIR" not in told
        assert (told.get("SPARK_ENGRAM_ROWS") == result["rows_text"]) == (rule == "sglang")
        tables = engram_reader.Tables(case.whole, whole=True)
        for text in result["rows_text"].split(","):
            layer, first, end = map(int, text.split(":"))
            assert len(tables.bytes(layer, "weight", first, end)) == (end - first) * 256
        ranges.append({"layers": result["ranges"]})
    assert engram_reader.tile(ranges, case.small.rows)
    assert not list(case.root.glob("tiny/engram*"))


# --- one plan for check mode, diff and apply --------------------------------------------------------------------------


def test_four_steps(case):
    check = {"_ansible_check_mode": True, "sources": False}
    results = [case.run(case.root, case.rows(), **step) for step in (check, {}, check, {})]
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert results[0]["diff"] == results[1]["diff"] and results[2]["diff"] == results[3]["diff"] == []
    headers = [change["before_header"].rpartition("/")[2] for change in results[0]["diff"]]
    assert headers == [SECOND, THIRD, INDEX, "engram-local.json"]


def test_check_mode_and_budget_touch_nothing(case):
    rows = case.rows()
    case.run(case.root, rows, _ansible_check_mode=True, sources=False)
    result = case.run(case.root, rows, phase="budget", sources=False)
    assert not result["changed"] and list(case.root.iterdir()) == []
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [("checkpoint.engram_budget", True)]
    (small_files,) = [len(case.small.files[INDEX])]
    assert result["needed"] == small_files + sum(allocated(target) for target in rows["targets"])


def allocated(target):
    blocks = set()
    for extent in target["extents"]:
        first, end = extent["target_offset"], extent["target_offset"] + extent["length"]
        blocks |= set(range(first // BLOCK, -(-end // BLOCK)))
    return BLOCK * len(blocks)


def test_without_addresses_it_says_that_it_needs_them(case):
    result = case.run(case.root, case.rows(), sources=False)
    assert not result["changed"] and result["needs_sources"] and list(case.root.iterdir()) == []


def test_a_disk_without_room_refuses_before_the_first_byte(case):
    result = case.run(case.root, case.rows(), disk_ceiling_percent=1)
    assert result["failed"] and "not enough room for the Engram rows" in result["msg"] and case.store.seen == []


def test_a_revision_that_is_not_staged_is_refused(case):
    result = case.run(case.root, case.rows(placement="shard"))
    assert result["failed"] and "stage the revision without these shards first" in result["msg"]


def test_rows_that_are_no_plan_are_refused(case):
    result = case.run(case.root, {**case.rows(), "targets": "?"})
    assert result["failed"] and "this is no row plan" in result["msg"]


# --- another number of ranks, rank, rule or revision ------------------------------------------------------------------


def spans_of(rows):
    return {
        target["path"]: {
            offset // 8
            for extent in target["extents"]
            for offset in range(extent["target_offset"], extent["target_offset"] + extent["length"], 8)
        }
        for target in rows["targets"]
    }


def difference(old, new):
    """Bytes of the new rows that are not in the old ones, in steps of 8, which all boundaries are multiples of."""
    return sum(8 * len(spans_of(new)[path] - spans_of(old)[path]) for path in spans_of(new))


@LAYOUTS
@pytest.mark.parametrize("placement", ["directory", "shard"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"tp": 4, "rank": 1}, {"tp": 3, "rank": 1}),
        ({"tp": 3, "rank": 1}, {"tp": 4, "rank": 1}),
        ({"tp": 4, "rank": 0}, {"tp": 4, "rank": 2}),
        ({"rule": "vllm"}, {"rule": "sglang"}),
    ],
)
def test_only_the_difference_is_fetched(case, placement, before, after):
    old, new = case.rows(placement=placement, **before), case.rows(placement=placement, **after)
    plan = row_process.plan_of(case.store, chunked=False)
    directory = case.root / "tiny/engram"
    if placement == "shard":
        directory = staged(case.small, case.root, plan, old)
    case.run(case.root, old, **WITHOUT)
    inodes = [(directory / target["path"]).stat().st_ino for target in old["targets"]]
    case.store.seen.clear()
    result = case.run(case.root, new, **WITHOUT)
    assert result["changed"] and engram_reader.problems(directory, case.whole) == []
    assert fetched(case.store) == difference(old, new) == result["moved"]["s3_bytes"]
    assert [(directory / target["path"]).stat().st_ino for target in new["targets"]] == inodes
    case.store.seen.clear()
    assert not case.run(case.root, new, **WITHOUT)["changed"] and case.store.seen == []


def test_rows_that_are_not_as_recorded_are_fetched_again(case):
    """Bytes that changed behind everybody's back, size and time as they were: a change of ranks reads what it keeps."""
    old, new = case.rows(4, 1), case.rows(3, 1)
    case.run(case.root, old, **WITHOUT)
    extent = max(old["targets"][0]["extents"], key=lambda extent: extent["length"])
    path = case.root / "tiny/engram" / old["targets"][0]["path"]
    stat = path.stat()
    with path.open("r+b") as handle:
        handle.seek(extent["target_offset"] + extent["length"] - 5)
        handle.write(b"XXXXX")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    case.store.seen.clear()
    case.run(case.root, new, **WITHOUT)
    assert engram_reader.problems(path.parent, case.whole) == []
    assert fetched(case.store) > difference(old, new)


def test_a_new_revision_with_the_same_shards_moves_nothing(case):
    rows = case.rows()
    case.run(case.root, rows, revision="one", **WITHOUT)
    case.store.seen.clear()
    result = case.run(case.root, rows, revision="two", **WITHOUT)
    record = json.loads((case.root / "tiny/engram/engram-local.json").read_text())
    assert result["changed"] and record["revision"] == "two" and case.store.seen == []
    assert engram_reader.problems(case.root / "tiny/engram", case.whole) == []


def test_a_shard_with_other_bytes_is_brought_anew(case):
    rows = case.rows()
    case.run(case.root, rows, **WITHOUT)
    body = bytearray(case.store.objects[SECOND])
    body[-1] ^= 1  # not a byte that this rank has; the object is another one all the same
    case.store.objects[SECOND] = bytes(body)
    case.store.seen.clear()
    case.run(case.root, rows, **WITHOUT)
    assert {path for path, _headers in case.store.seen} == {SECOND}
    record = json.loads((case.root / "tiny/engram/engram-local.json").read_text())
    assert next(file["digest"] for file in record["files"] if file["path"] == SECOND) == (
        f"crc64nvme:{row_process.crc(body):016x}"
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
    assert result["moved"]["s3_bytes"] > 0
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
