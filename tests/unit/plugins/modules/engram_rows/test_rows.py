# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import json
import os

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import (
    WITHOUT,
    Case,
    difference,
    fetched,
    others_whole,
    staged,
)

BLOCK = 4096
#: "split": the two tensors of a table in different shards.
LAYOUTS = pytest.mark.parametrize("layout", ["official", "nvfp4", "split"], indirect=True, scope="module")


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
@pytest.mark.parametrize("tp", [2, 3, 4])
def test_with_whole_shards_it_says_what_the_engine_has_to_be_told(case, tp, rule):
    ranges = []
    for rank in range(tp):
        result = case.run(case.root, case.rows(tp, rank, rule, "full"))
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


@pytest.mark.parametrize(
    ("directory", "says"),
    [
        ("{root}/tiny/revisions/one", "which lies in {root}/tiny/revisions; allowed is a directory of its own"),
        ("{root}/tiny/current", "which lies in {root}/tiny/revisions"),
        ("{root}/tiny/engram/../revisions", "which lies in {root}/tiny/revisions"),
        ("{root}/other/revisions/one", "which lies in {root}/other/revisions"),
        ("{root}/tiny/staging/one/x", "which lies in {root}/tiny/staging"),
        ("rows/here", "is rows/here, allowed is an absolute path"),
    ],
)
def test_slices_lie_in_no_directory_of_revisions(case, directory, says):
    """They would take the place of the revision's own shards there, and of these lack all that belongs to no table."""
    rows = case.rows(placement="shard")
    plan = row_process.plan_of(case.store, chunked=False, revision="one")
    revision = staged(case.small, case.root, plan, rows)
    case.run(case.root, rows, revision="one", **WITHOUT)
    (case.root / "tiny/current").symlink_to("revisions/one")
    (case.root / "other/revisions").mkdir(parents=True)
    named = directory.format(root=case.root)
    for phase in ("budget", "stage"):
        result = case.run(case.root, case.rows(), directory=named, revision="one", phase=phase)
        assert result["failed"] and says.format(root=case.root) in result["msg"]
    assert others_whole(case.small, revision, rows) and engram_reader.problems(revision, case.whole) == []


def test_a_disk_without_room_says_what_could_be_freed_beside(case):
    left = case.root / "tiny/staging/older/model.safetensors"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(1 << 20))
    result = case.run(case.root, case.rows(), disk_ceiling_percent=1)
    assert result["failed"] and "there is unfinished staging of older (1.0 MB), 1.0 MB in all" in result["msg"]
    (check,) = case.run(case.root, case.rows(), disk_ceiling_percent=1, phase="budget", sources=False)["checks"]
    assert not check["ok"] and "unfinished staging of older (1.0 MB)" in check["cure"]


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
