# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_plan, safetensors
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.engram import ranges
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_layout import (
    Wanted,
    build,
    shards,
    tiling_problems,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_plan import RowPlanError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_probe import rows_string
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.weight_index import engram_places
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import FIRST, INDEX, LAYERS, SECOND, THIRD, small

FIXTURES = Path(__file__).parents[3] / "fixtures"
GOLDEN = json.loads((FIXTURES / "engram/golden-extents.json").read_text())
EXL3 = json.loads((FIXTURES / "checkpoint/config-exl3.json").read_text())
OFFICIAL = json.loads((FIXTURES / "checkpoint/config-official.json").read_text())
PADDED = json.loads((FIXTURES / "checkpoint/config-exl3-tp3.json").read_text())
RULES = ("vllm", "sglang")
SLICES = ("directory", "shard")


def published():
    """Places and headers of the tables in the official and EXL3 files."""
    places, headers = {}, {}
    for path, item in GOLDEN["headers"].items():
        data = item["length_field"].to_bytes(8, "little") + item["text"].encode().ljust(item["length_field"])
        assert hashlib.sha256(data).hexdigest() == item["sha256"]
        headers[path] = safetensors.parse(data, item["size"], path)
        places |= dict.fromkeys(headers[path].by_name(), path)
    return places, headers


def inputs(checkpoint):
    """What a planner reads of a small checkpoint."""
    places = engram_places(checkpoint.files[INDEX])
    paths = {path for path in checkpoint.files if path.endswith(".safetensors")}
    headers = {path: safetensors.parse(checkpoint.files[path], len(checkpoint.files[path]), path) for path in paths}
    return checkpoint.config, places, headers


def span(plan, kind, layer):
    """Place of a table's rows of this kind: file and byte range."""
    found = [
        (target.path, list(extent.span))
        for target in plan.targets
        for extent in target.extents
        if extent.kind == kind and extent.tensor == f"layers.{layer}.engram.embed.{kind}"
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("config", [EXL3, OFFICIAL, PADDED], ids=["exl3", "official", "exl3 for three ranks"])
@pytest.mark.parametrize("golden", GOLDEN["extents"], ids=lambda row: f"tp{row['tp']}-{row['rank']}-{row['layer']}")
def test_published_extents(golden, config):
    plan = build(config, *published(), Wanted(golden["tp"], golden["rank"], "vllm", "directory"))
    for kind in ("weight", "scale"):
        assert span(plan, kind, golden["layer"]) == (golden["shard"], golden[kind])


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"{row['rule']}-tp{row['tp']}-{row['rank']}")
def test_published_rows(row):
    assert ranges(OFFICIAL, row["tp"], row["rule"])[row["rank"]] == {"1": row["1"], "14": row["14"]}
    plan = build(OFFICIAL, *published(), Wanted(row["tp"], row["rank"], row["rule"], "directory"))
    assert {layer: list(part) for layer, part in plan.layers.items()} == {"1": row["1"], "14": row["14"]}
    if row["bytes"]:
        assert plan.bytes - 664 - 672 == row["bytes"]


def test_the_tail_of_the_published_shards():
    plan = build(EXL3, *published(), Wanted(3, 1, "vllm", "shard"))
    tails = [
        (target.path, [extent.span for extent in target.extents if extent.kind == "tensor"]) for target in plan.targets
    ]
    assert [(path, parts[0][0], parts[-1][1], sum(end - start for start, end in parts)) for path, parts in tails] == [
        ("model-00047-of-00048.safetensors", 101377629016, 101535150936, 157521920),
        ("model-00048-of-00048.safetensors", 101380404720, 101537926640, 157521920),
    ]


# --- every layout, by bytes -------------------------------------------------------------------------------------------


def made(plan, checkpoint):
    """The targets as the plan makes them, with 0xEE where nothing is written."""
    result = {}
    for target in plan.targets:
        data = bytearray(b"\xee" * target.size)
        for extent in target.extents:
            source = checkpoint.files[extent.source_path]
            data[extent.span[0] : extent.span[1]] = source[extent.source_offset : extent.source_offset + extent.length]
        result[target.path] = bytes(data)
    return result


def rows_of(data, tensor):
    """All rows of a tensor, read as the format says: length, JSON, data; nothing of the code under test."""
    length = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + length])[tensor]
    width = entry["shape"][1]
    begin = 8 + length + entry["data_offsets"][0]
    return [data[begin + row * width : begin + (row + 1) * width] for row in range(entry["shape"][0])]


@pytest.mark.parametrize("layout", engram_shards.SPLITS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tp", [1, 2, 3, 4])
@pytest.mark.parametrize("placement", SLICES)
def test_owned_rows_are_those_of_the_source_and_others_are_not_written(layout, rule, tp, placement):
    checkpoint = small(layout)
    for rank in range(tp):
        plan = build(*inputs(checkpoint), Wanted(tp, rank, rule, placement))
        files = made(plan, checkpoint)
        assert sorted(files) == sorted(path for path in (SECOND, THIRD) if path in checkpoint.files)
        for layer in LAYERS:
            low, high = plan.layers[str(layer)]
            for kind, width in (("weight", 256), ("scale", 8)):
                tensor = f"layers.{layer}.engram.embed.{kind}"
                path = checkpoint.places()[tensor]
                rows, true = rows_of(files[path], tensor), rows_of(checkpoint.files[path], tensor)
                assert len(rows) == checkpoint.rows[layer] and len(rows[0]) == width
                assert rows[low:high] == true[low:high]
                assert set(rows[:low] + rows[high:]) <= {b"\xee" * width}
            for name in ("q_weight", "k_weight", "wkv.weight", "wkv.scale"):
                path = checkpoint.places()[f"layers.{layer}.engram.{name}"]
                same = rows_of(files[path], f"layers.{layer}.engram.{name}") == rows_of(
                    checkpoint.files[path], f"layers.{layer}.engram.{name}"
                )
                assert same == (placement == "shard")


@pytest.mark.parametrize("layout", engram_shards.SPLITS)
def test_bytes_are_those_of_the_rows_and_little_else(layout):
    checkpoint = small(layout)
    config, places, headers = inputs(checkpoint)
    plan = build(config, places, headers, Wanted(3, 1, "vllm", "directory"))
    rows = sum(high - low for low, high in plan.layers.values())
    assert plan.bytes == rows * 264 + sum(headers[path].size for path in plan.by_path())
    for target in plan.targets:
        assert target.size == len(checkpoint.files[target.path])
        assert target.bytes <= target.allocated(512) <= target.bytes + 512 * 2 * len(target.extents)
        assert target.allocated(1 << 30) == 1 << 30


def test_without_slices():
    plan = build(*inputs(small()), Wanted(3, 2, "vllm", "full"))
    assert (plan.targets, plan.index_path, plan.bytes) == ((), "", 0)
    low, high = plan.layers["1"]
    assert rows_string(plan.layers).startswith(f"1:{low}:{high},14:")


@pytest.mark.parametrize(("placement", "index"), [("directory", INDEX), ("shard", ""), ("full", "")])
def test_who_needs_the_index_beside_the_shards(placement, index):
    assert build(*inputs(small()), Wanted(2, 0, "sglang", placement)).index_path == index


def test_the_engine_is_told_its_rows():
    plan = build(EXL3, *published(), Wanted(4, 1, "vllm", "full"))
    assert rows_string(plan.layers) == "1:96000564:192001740,14:96003054:192007016"


# --- what is refused --------------------------------------------------------------------------------------------------


def changed(edit, layout="official"):
    """Inputs with something wrong in them."""
    config, places, headers = (copy.deepcopy(value) for value in inputs(small(layout)))
    edit(config, places, headers)
    return config, places, headers


def without_tensor(path, name):
    def edit(config, places, headers):
        headers[path] = safetensors.Header(
            path,
            headers[path].file_size,
            headers[path].size,
            tuple(tensor for tensor in headers[path].tensors if tensor.name != name),
        )

    return edit


def with_tensor(path, changed_name, **values):
    def edit(config, places, headers):
        tensors = tuple(
            safetensors.Tensor(**{**vars(tensor), **values}) if tensor.name == changed_name else tensor
            for tensor in headers[path].tensors
        )
        headers[path] = safetensors.Header(path, headers[path].file_size, headers[path].size, tensors)

    return edit


def renamed_in(path, old, new):
    return with_tensor(path, old, name=new)


WEIGHT, SCALE = "layers.1.engram.embed.weight", "layers.14.engram.embed.scale"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda config, places, headers: places.pop(WEIGHT), [f"{INDEX}: no {WEIGHT}, which config.json needs"]),
        (lambda config, places, headers: places.clear(), [WEIGHT, SCALE]),
        (
            lambda config, places, headers: headers.pop(SECOND),
            [f"{INDEX} puts Engram tables into {SECOND}, but there is no such file"],
        ),
        (without_tensor(SECOND, WEIGHT), [f"{SECOND}: no tensor {WEIGHT}"]),
        (without_tensor(THIRD, "layers.14.engram.k_weight"), [f"{THIRD}: no tensor layers.14.engram.k_weight"]),
        (renamed_in(THIRD, SCALE, WEIGHT), [f"tensor {WEIGHT} is in {SECOND} and in {THIRD}", f"no tensor {SCALE}"]),
        (
            lambda config, places, headers: places.update({WEIGHT: THIRD}),
            [f"{THIRD}: no tensor {WEIGHT}", f"{SECOND}: tensor {WEIGHT} is in it, the index puts it into {THIRD}"],
        ),
        (with_tensor(SECOND, WEIGHT, dtype="U8"), [f"tensor {WEIGHT} is U8 [", "needs F8_E4M3 ["]),
        (with_tensor(THIRD, SCALE, shape=(5, 8)), [f"tensor {SCALE} is F8_E8M0 [5, 8], config.json needs F8_E8M0 ["]),
        (with_tensor(THIRD, SCALE, shape=(40,)), ["is F8_E8M0 [40]"]),
        (
            lambda config, places, headers: places.update({"layers.20.engram.embed.weight": SECOND}),
            ["layers.20.engram.embed.weight is a table of a layer that config.json does not name"],
        ),
        (
            lambda config, places, headers: places.update({"layers.1.engram.more": SECOND}),
            [f"{SECOND}: no tensor layers.1.engram.more, which the index puts there"],
        ),
        (lambda config, places, headers: config.pop("text_config"), ["config.json has no engram_layer_ids"]),
        (
            lambda config, places, headers: config["text_config"].update(engram_vocab_size=12),
            ["engram_num_embeddings", "its hash columns need"],
        ),
    ],
)
def test_what_disagrees_is_named(edit, says):
    with pytest.raises(RowPlanError) as error:
        build(*changed(edit), Wanted(3, 1, "vllm", "shard"))
    for text in says:
        assert text in str(error.value)


def test_everything_wrong_is_said_at_once():
    def edit(config, places, headers):
        with_tensor(SECOND, WEIGHT, dtype="U8")(config, places, headers)
        with_tensor(THIRD, SCALE, dtype="U8")(config, places, headers)

    with pytest.raises(RowPlanError) as error:
        build(*changed(edit), Wanted(3, 1, "vllm", "shard"))
    assert str(error.value).count(" is U8 ") == 2


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Wanted(7, 0, "vllm", "shard"), "would own no rows"),
        (Wanted(3, 3, "vllm", "shard"), "the rank is 3, expected 0 to 2"),
        (Wanted(3, -1, "sglang", "shard"), "the rank is -1, expected 0 to 2"),
        (Wanted(3, True, "sglang", "shard"), "the rank is True"),
        (Wanted(3, 1.0, "sglang", "shard"), "the rank is 1.0"),
        (Wanted(3, 0, "even", "shard"), "the Engram rule is 'even'"),
        (Wanted(3, 0, "vllm", "half"), "the placement is 'half', allowed: directory, shard, full"),
    ],
)
def test_what_cannot_be_asked_for(wanted, says):
    with pytest.raises(RowPlanError, match=says):
        build(*inputs(small()), wanted)


def test_whose_headers_are_needed():
    for layout, expected in (("official", (SECOND, THIRD)), ("split", (SECOND, THIRD)), ("one", (SECOND,))):
        config, places, _headers = inputs(small(layout))
        assert shards(config, places) == expected
        assert FIRST not in expected


# --- through JSON, and all ranks together -----------------------------------------------------------------------------


@pytest.mark.parametrize("placement", row_plan.PLACEMENTS)
def test_a_plan_survives_its_way_to_a_node(placement):
    plan = build(*inputs(small("nvfp4")), Wanted(4, 3, "sglang", placement))
    assert row_plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def damaged(edit):
    values = build(*inputs(small()), Wanted(3, 1, "vllm", "shard")).to_dict()
    edit(values)
    return values


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda values: values.pop("rank"), "KeyError: 'rank'"),
        (lambda values: values.update(layers=[]), "AttributeError"),
        (lambda values: values.update(layers={"1": [5]}), "IndexError"),
        (lambda values: values.update(tp="many"), "ValueError"),
        (lambda values: values.update(tp=float("inf")), "OverflowError"),
        (lambda values: values.update(layers={"1": [0, float("inf")]}), "OverflowError"),
        (lambda values: values["targets"][0].update(size=float("inf")), "OverflowError"),
        (lambda values: values["targets"][0]["extents"][0].update(length=10**4200), "a number is beyond 64 bits"),
        (lambda values: values.update(rank=3), "the rank is 3, expected 0 to 2"),
        (lambda values: values.update(placement="half"), "the placement is 'half'"),
        (lambda values: values["targets"][0].update(size=10), "the file has 10 bytes"),
        (lambda values: values["targets"][0].update(path="../x"), "'../x' has an empty, '.' or '..' component"),
        (lambda values: values["targets"][0]["extents"][1].update(target_offset=0), "overlaps the one before"),
        (lambda values: values["targets"][0]["extents"][1].update(length=0), "is empty"),
        (lambda values: values["targets"][0]["extents"][1].update(source_offset=-1), "is empty, out of order"),
        (lambda values: values["targets"][0]["extents"][1].update(source_path="/etc/x"), "'/etc/x' is absolute"),
        (lambda values: values["targets"][0]["extents"][1].update(kind="all"), "the kind 'all'"),
    ],
)
def test_a_plan_that_was_changed_on_its_way(edit, says):
    with pytest.raises(RowPlanError) as error:
        row_plan.from_dict(damaged(edit))
    assert says in str(error.value)


@pytest.mark.parametrize(
    "edit",
    [
        lambda values: values.update(placement="x" * 100_000),
        lambda values: values.update(rank="9" * 4000),
        lambda values: values["targets"][0].update(path="../" + "x" * 100_000),
        lambda values: values["targets"][0]["extents"][1].update(kind="x" * 100_000),
    ],
)
def test_what_is_told_of_such_a_plan_has_an_end(edit):
    with pytest.raises(RowPlanError) as error:
        row_plan.from_dict(damaged(edit))
    assert len(str(error.value)) < 1000


def test_keys_of_digests():
    plan = build(EXL3, *published(), Wanted(3, 1, "vllm", "shard"))
    assert [extent.key for extent in plan.targets[0].extents[:4]] == [
        "model-00047-of-00048.safetensors:header",
        "model-00047-of-00048.safetensors:layers.1.engram.embed.weight[128000880:256002934]",
        "model-00047-of-00048.safetensors:layers.1.engram.embed.scale[128000880:256002934]",
        "model-00047-of-00048.safetensors:layers.1.engram.q_weight",
    ]


ROWS = {"1": 90, "14": 60}


def tiles(first, second):
    return [{"1": (0, 30), "14": (0, 20)}, {"1": first, "14": second}, {"1": (60, 90), "14": (40, 60)}]


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        (tiles((30, 60), (20, 40)), []),
        (tiles((30, 61), (20, 40)), ["layer 1: rows [60, 61) are held twice"]),
        (tiles((31, 60), (20, 39)), ["layer 1: rows [30, 31) are held by nobody", "layer 14: rows [39, 40) are held"]),
        (tiles((30, 60), (20, 40))[:2], ["layer 1: the ranks hold rows up to 60, the table has 90", "layer 14"]),
        ([{"1": (0, 90)}, {}], ["layer 1: nothing of it on rank 1", "layer 14: the ranks hold rows up to 0"]),
        ([{"1": (0, 95), "14": (0, 60)}], ["layer 1: the ranks hold rows up to 95, the table has 90"]),
        ([{"1": (0, 90), "14": (0, 60)}, {"1": (2, 3), "14": (60, 60)}], ["layer 1: rows [2, 3) are held twice"]),
        ([{"1": (0, 90), "14": (0, 60)}, {"1": (10, 4), "14": (5, 60)}], ["layer 1: [10, 4) on rank 1 is no range"]),
        ([{"1": (0, 90), "14": (0, 60)}, {"1": (90, 90), "14": (5, 6)}], ["layer 1: [90, 90) on rank 1 is no range"]),
        ([{"1": (-5, 90), "14": (0, 60)}], ["layer 1: [-5, 90) on rank 0 is no range", "layer 1: the ranks hold rows"]),
        ([{"1": (0, 90), "14": (0, 60), "9": (0, 1)}], ["layer 9: rows on rank 0, and no table of it is known"]),
    ],
)
def test_tiling(layers, says):
    found = tiling_problems(layers, ROWS)
    assert bool(found) == bool(says)
    for text in says:
        assert any(line.startswith(text) for line in found)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tp", [1, 2, 3, 4, 6, 8, 12, 24])
def test_all_ranks_tile_the_published_tables(rule, tp):
    plans = [build(OFFICIAL, *published(), Wanted(tp, rank, rule, "full")) for rank in range(tp)]
    assert tiling_problems([plan.layers for plan in plans], {"1": 384006168, "14": 384016682}) == []
