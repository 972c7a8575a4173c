# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import engram
from lab import checkpoint, checkpoint_content
from lab.checkpoint_content import Recipe, scaled_config, shard_tensors
from lab.checkpoint_inventory import SHARDS, TRUE_SIZES, Inventory, arranged, file_names, header, shard_name

TRUE_CONFIG = Path(__file__).parents[3] / "lab/data/config-exl3.json"
TINY = 8 * (1 << 20) / sum(TRUE_SIZES)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Revision 1, 8 MiB."""
    out = tmp_path_factory.mktemp("checkpoint") / "r1"
    assert checkpoint.generate(out, Recipe(scale=TINY))
    return out


def digests(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def read_header(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), 8 + length, len(data)


def test_the_54_names(tiny):
    assert sorted(path.name for path in tiny.iterdir()) == sorted(file_names())
    assert len(file_names()) == 54


def test_every_shard_is_valid_safetensors(tiny):
    for number in range(1, SHARDS + 1):
        tensors, begin, size = read_header(tiny / shard_name(number))
        spans = sorted(entry["data_offsets"] for entry in tensors.values())
        assert spans[0][0] == 0
        assert all(left[1] == right[0] for left, right in itertools.pairwise(spans))
        assert begin % 8 == 0
        assert begin + spans[-1][1] == size


def test_the_index_agrees_with_the_headers(tiny):
    index = json.loads((tiny / "model.safetensors.index.json").read_text())
    found, total = {}, 0
    for number in range(1, SHARDS + 1):
        tensors, begin, size = read_header(tiny / shard_name(number))
        found.update(dict.fromkeys(tensors, shard_name(number)))
        total += size - begin
    assert index["weight_map"] == found
    assert index["metadata"]["total_size"] == total


@pytest.mark.parametrize(("number", "layer"), [(47, 1), (48, 14)])
def test_engram_shards_have_the_six_tensors_in_the_true_order(tiny, number, layer):
    tensors = read_header(tiny / shard_name(number))[0]
    text = json.loads((tiny / "config.json").read_text())["text_config"]
    rows = dict(zip(text["engram_layer_ids"], text["engram_num_embeddings"], strict=True))[layer]
    assert list(tensors) == [
        f"layers.{layer}.engram.{name}"
        for name in ("embed.weight", "embed.scale", "q_weight", "k_weight", "wkv.weight", "wkv.scale")
    ]
    shapes = {name.rpartition("engram.")[2]: (entry["dtype"], entry["shape"]) for name, entry in tensors.items()}
    assert shapes["embed.weight"] == ("F8_E4M3", [rows, 256])
    assert shapes["embed.scale"] == ("F8_E8M0", [rows, 8])
    assert shapes["q_weight"] == shapes["k_weight"] == ("BF16", [4, 5120])
    assert [32 * side for side in shapes["wkv.scale"][1]] == shapes["wkv.weight"][1]


def tensors_of(path):
    """Bytes of every tensor by name, and where the first one is."""
    tensors, begin, _size = read_header(path)
    data = path.read_bytes()[begin:]
    return {name: data[slice(*entry["data_offsets"])] for name, entry in tensors.items()}, next(iter(tensors))


def test_the_nvfp4_layout_holds_the_same_tensors_elsewhere(tiny, tmp_path):
    out = tmp_path / "nvfp4"
    assert checkpoint.main(["generate", "--out", str(out), "--scale", str(TINY), "--layout", "nvfp4"]) == 0
    for number, layer in ((47, 1), (48, 14)):
        before, first = tensors_of(tiny / shard_name(number))
        after, k_weight = tensors_of(out / shard_name(number))
        assert (first, k_weight) == (f"layers.{layer}.engram.embed.weight", f"layers.{layer}.engram.k_weight")
        assert after == before
    changed = {name for name, digest in digests(out).items() if digests(tiny)[name] != digest}
    assert changed == {shard_name(47), shard_name(48)}


def test_md5sums_cover_the_40_body_shards(tiny):
    lines = (tiny / "MD5SUMS.body").read_text().splitlines()
    assert len(lines) == 40
    assert (tiny / "MD5SUMS.body").stat().st_size == 2680  # as published
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.md5((tiny / name).read_bytes()).hexdigest() == digest
    assert [line.split("  ")[1] for line in lines] == [shard_name(number) for number in range(3, 43)]


def test_the_configuration_is_the_true_one_but_for_the_tables(tiny):
    true = json.loads(TRUE_CONFIG.read_text())
    made = json.loads((tiny / "config.json").read_text())
    assert list(made) == list(true)
    for key in ("engram_vocab_size", "engram_num_embeddings"):
        assert made["text_config"].pop(key) != true["text_config"].pop(key)
    assert made == true


@pytest.mark.parametrize("tp", [2, 3, 4])
def test_the_scaled_tables_follow_the_prime_rule(tiny, tp):
    split = engram.ranges(json.loads((tiny / "config.json").read_text()), tp, "vllm")
    assert all(low < high for part in split for low, high in part.values())


def test_the_same_arguments_give_the_same_bytes(tiny, tmp_path):
    checkpoint.generate(tmp_path / "again", Recipe(scale=TINY))
    assert digests(tmp_path / "again") == digests(tiny)


def test_another_seed_gives_other_weights(tiny, tmp_path):
    checkpoint.generate(tmp_path / "other", Recipe(seed=2, scale=TINY))
    changed = {name for name, digest in digests(tmp_path / "other").items() if digests(tiny)[name] != digest}
    assert changed == {*map(shard_name, range(1, SHARDS + 1)), "MD5SUMS.body"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (None, {"tokenizer_config.json", "quantization_config.json", shard_name(20), "MD5SUMS.body"}),
        (("config.json",), {"config.json"}),
        ((shard_name(47),), {shard_name(47)}),
    ],
)
def test_a_revision_changes_what_it_says(tiny, tmp_path, change, expected):
    recipe = Recipe(revision=2, scale=TINY, **({"change": change} if change else {}))
    checkpoint.generate(tmp_path / "r2", recipe)
    before = digests(tiny)
    assert {name for name, digest in digests(tmp_path / "r2").items() if before[name] != digest} == expected
    assert {path.name: path.stat().st_size for path in tmp_path.glob("r2/*.safetensors")} == {
        path.name: path.stat().st_size for path in tiny.glob("*.safetensors")
    }


@pytest.mark.parametrize(
    ("revision", "name", "last"),
    [
        (1, shard_name(20), 1),
        (2, shard_name(20), 2),
        (3, shard_name(20), 2),  # revision 3 of the recipe below changes something else
        (3, "config.json", 3),
        (3, shard_name(1), 1),
    ],
)
def test_a_file_keeps_the_content_of_the_last_revision_that_changed_it(revision, name, last):
    change = checkpoint_content.DEFAULT_CHANGE if revision < 3 else ("config.json",)
    assert Recipe(revision=revision, change=change).changed_in(name) == last


def test_a_current_directory_is_left_alone_and_a_damaged_one_is_made_again(tmp_path):
    out = tmp_path / "r1"
    assert checkpoint.generate(out, Recipe(scale=TINY))
    stamp = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert not checkpoint.generate(out, Recipe(scale=TINY))
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == stamp
    (out / "tokenizer.json").unlink()
    assert checkpoint.generate(out, Recipe(scale=TINY))
    assert len(list(out.iterdir())) == 54
    assert checkpoint.generate(out, Recipe(seed=3, scale=TINY))


def test_leftovers_of_a_killed_run_are_cleared(tmp_path):
    (tmp_path / "r1.building").mkdir()
    (tmp_path / "r1.building/junk").write_text("x")
    checkpoint.generate(tmp_path / "r1", Recipe(scale=TINY))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r1", "r1.lock", "r1.stamp.json"]


def test_a_failed_run_leaves_the_earlier_checkpoint(tmp_path, monkeypatch):
    out = tmp_path / "r1"
    checkpoint.generate(out, Recipe(scale=TINY))
    before = digests(out)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_content, "small_files", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.generate(out, Recipe(seed=2, scale=TINY))
    assert digests(out) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--revision", "0"], "--revision is 0, expected 1 or more"),
        (["--total-mib", "1"], "allowed:"),
        (["--scale", "2"], "the scale is 2, allowed:"),
        (["--revision", "2", "--change", "README.md"], "no such file; one of the 54 names"),
        (["--revision", "2", "--change", "MD5SUMS.body"], "it follows from shards 3 to 42"),
        (["--change", "config.json"], "needs --revision 2 or more"),
    ],
)
def test_bad_arguments(tmp_path, capsys, arguments, says):
    assert checkpoint.main(["generate", "--out", str(tmp_path / "x"), *arguments]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_command_line(tmp_path, capsys):
    arguments = ["generate", "--out", str(tmp_path / "x"), "--total-mib", "8"]
    assert checkpoint.main(arguments) == 0
    assert checkpoint.main(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [f"{tmp_path}/x: written", f"{tmp_path}/x: is current"]
    assert checkpoint.main(["names"]) == 0
    assert capsys.readouterr().out.split() == file_names()


# --- the shape of the real thing


@pytest.fixture(scope="module")
def true_shards():
    inventory = Inventory(json.loads(TRUE_CONFIG.read_text()))
    return {shard_name(number): inventory.shard(number) for number in range(1, SHARDS + 1)}


def test_at_full_scale_sizes_and_counts_are_the_published_ones(true_shards):
    assert sum(TRUE_SIZES) == 460029545016
    assert sum(len(tensors) for tensors in true_shards.values()) == 188245
    for number, published in enumerate(TRUE_SIZES, start=1):
        tensors = true_shards[shard_name(number)]
        off = abs(len(header(tensors)) + sum(tensor.size for tensor in tensors) - published)
        assert off <= (0 if number in (1, 2, 43, 47, 48) else 1100), number


def test_at_full_scale_the_index_has_the_published_length(true_shards):
    weight_map = {tensor.name: name for name, tensors in true_shards.items() for tensor in tensors}
    total = sum(tensor.size for tensors in true_shards.values() for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    assert len(json.dumps(index, indent=2)) == 14425014


@pytest.mark.parametrize(
    ("number", "digest"),
    [
        (47, "9055d06658af74f431f6675f6880f187b24a3f648b3f70ae949edc328b7702fc"),
        (48, "ffc9da89096525ea191d967531f8063db66327b0880a9d2f4d7d73a42d641f28"),
    ],
)
def test_at_full_scale_engram_headers_are_the_published_bytes(true_shards, number, digest):
    assert hashlib.sha256(header(true_shards[shard_name(number)])).hexdigest() == digest


@pytest.mark.parametrize(
    ("number", "size", "at"),
    # NVIDIA's NVFP4 pack, revision 3431dde3 (tsw2k/Deepseek-4.1-Flash-Quad-DGX-Sparks, weights/manifest-nvfp4-3431dde3.tsv)
    [(47, 101535150904, 3072284864), (48, 101537926600, 3072368976)],
)
def test_at_full_scale_the_nvfp4_layout_has_the_published_sizes(true_shards, number, size, at):
    tensors = arranged(true_shards[shard_name(number)], "nvfp4")
    head = header(tensors)
    assert len(head) + sum(tensor.size for tensor in tensors) == size
    entries = json.loads(head[8:])
    assert next(iter(entries)).endswith("k_weight")
    assert [entry["data_offsets"][0] for name, entry in entries.items() if name.endswith("embed.weight")] == [at]


def test_at_full_scale_the_configuration_is_the_published_file():
    text = json.dumps(scaled_config(1), indent=2).encode()
    assert hashlib.sha256(text).hexdigest() == "66a773c913a1c7265e5abc4ea4469ef00dbcdb91eec9ada1722f1126d23eca33"


def test_shards_keep_their_share_at_the_default_size():
    scale = Recipe().scale
    config = scaled_config(scale)
    for number in range(1, SHARDS + 1):
        tensors = shard_tensors(config, number, scale)
        share = (len(header(tensors)) + sum(tensor.size for tensor in tensors)) / (TRUE_SIZES[number - 1] * scale)
        assert 0.95 < share < 1.05, number
