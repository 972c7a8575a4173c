# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import random
import shutil

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_second
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK
from ansible_collections.gb10.ring.plugins.modules import engram_rows
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import flip_at

BLOCK = 4096
WITHOUT = {"verify_share": 0.0}


@pytest.fixture(scope="module", params=["official", "nvfp4", "split"])
def layout(request):
    return request.param


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


def rows_of(small, tp=3, rank=1, rule="vllm", placement="directory"):
    return row_process.rows_of(small.config, small.files, tp=tp, rank=rank, rule=rule, placement=placement)


def run(capsys, store, root, rows, *, chunked=False, sources=True, revision="", **more):
    plan = row_process.plan_of(store, chunked=chunked, revision=revision)
    sources = store.sources() if sources is True else sources or None
    return call(capsys, row_process.arguments(plan, rows, root, sources, **more))


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


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("rule", ["vllm", "sglang"])
@pytest.mark.parametrize("placement", ["directory", "shard"])
@pytest.mark.parametrize("tp", [2, 3, 4])
def test_each_rank_holds_its_rows_and_nothing_else(capsys, store, small, whole, tmp_path, tp, placement, rule, chunked):
    records = []
    for rank in range(tp):
        root = tmp_path / str(rank)
        rows = rows_of(small, tp, rank, rule, placement)
        plan = row_process.plan_of(store, chunked=chunked)
        directory = staged(small, root, plan, rows) if placement == "shard" else root / "tiny/engram"
        store.seen.clear()
        result = run(capsys, store, root, rows, chunked=chunked, **WITHOUT)
        assert result["changed"] and result["path"] == str(directory), result
        assert engram_reader.problems(directory, whole) == []
        wanted = sum(extent["length"] for target in rows["targets"] for extent in target["extents"])
        index = len(small.files[INDEX]) if placement == "directory" else 0
        edges = sum(min(CHUNK, target["size"]) for target in rows["targets"] for _extent in target["extents"])
        assert wanted + index <= fetched(store) <= wanted + index + (2 * edges if chunked else 0)
        if placement == "shard":
            assert others_whole(small, directory, rows)
        records.append(json.loads((directory / "engram-local.json").read_text()))
        assert not [path for path in directory.iterdir() if path.name.endswith(".partial")]
        assert sorted(path.name for path in (root / "tiny/staging").iterdir()) == [".lock"]
    assert engram_reader.tile(records, small.rows)


@pytest.mark.parametrize("rule", ["vllm", "sglang"])
def test_with_whole_shards_it_says_what_the_engine_has_to_be_told(capsys, store, small, whole, tmp_path, rule):
    ranges = []
    for rank in range(3):
        result = run(capsys, store, tmp_path, rows_of(small, 3, rank, rule, "full"))
        assert not result["changed"] and store.seen == []
        told = result["environment"]
        assert told.get("DSV41_ENGRAM_DISK", "1") == "1" and "DSV41_ENGRAM_DIR" not in told
        assert (told.get("SPARK_ENGRAM_ROWS") == result["rows_text"]) == (rule == "sglang")
        tables = engram_reader.Tables(whole, whole=True)
        for text in result["rows_text"].split(","):
            layer, first, end = map(int, text.split(":"))
            assert len(tables.bytes(layer, "weight", first, end)) == (end - first) * 256
        ranges.append({"layers": result["ranges"]})
    assert engram_reader.tile(ranges, small.rows)
    assert not list(tmp_path.glob("tiny/engram*"))
