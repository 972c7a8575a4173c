# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tiny model and the list of what the real engine needs."""

from __future__ import annotations

import array
import json
import math
import struct

import pytest

from lab.vllm_cpu import model, requirements


def read(folder):
    """The tensors of a safetensors file, by name: shape and bytes."""
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    body = data[8 + length :]
    assert sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values()) == len(body)
    return {name: (entry["shape"], body[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def test_the_seed_decides_the_weights_and_nothing_else(tmp_path):
    for folder, seed in (("one", "1"), ("same", "1"), ("other", "2")):
        assert model.main([str(tmp_path / folder), "--seed", seed]) == 0
    one, same, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "same", "other")
    )
    assert one == same
    assert [name for name in sorted(one) if one[name] != other[name]] == ["model.safetensors"]
    assert len(one["model.safetensors"]) == len(other["model.safetensors"])


def test_the_weights_are_those_of_the_configuration(tmp_path):
    model.write(tmp_path, 1)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    tensors = read(tmp_path)
    assert config["num_attention_heads"] % 3 == 0 and config["intermediate_size"] % 3 == 0
    assert tensors["lm_head.weight"][0] == [config["vocab_size"], config["hidden_size"]]
    assert {name.split(".")[2] for name in tensors if ".layers." in name} == {"0", "1"}
    for name, (shape, data) in tensors.items():
        numbers = array.array("f", data)
        assert len(numbers) == math.prod(shape) and all(map(math.isfinite, numbers))
        assert set(numbers) == {1.0} if name.endswith("norm.weight") else len(set(numbers)) > len(numbers) / 2


def test_what_cannot_be_printed_is_never_the_likeliest_word():
    rows = model.values("lm_head.weight", (model.VOCABULARY, model.HIDDEN), 1)
    silent = [n for n in range(model.VOCABULARY) if not any(rows[n * model.HIDDEN : (n + 1) * model.HIDDEN])]
    said = [word for number, word in enumerate(model.words()) if number not in silent]
    assert all(word.isascii() and word.isprintable() for word in said)
    assert set(range(len(model.SPECIAL))) < set(silent) and len(said) == 94 + 125


def test_every_number_of_the_vocabulary_is_a_word():
    made = model.tokenizer()["model"]
    assert sorted(made["vocab"].values()) == list(range(model.VOCABULARY))
    assert len(set(model.byte_letters())) == 256
    for merge in made["merges"]:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= made["vocab"].keys()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("numpy", True),
        ("torch==2.13.0", False),
        ("torchvision>=0.28; platform_machine == 'x86_64'", False),
        ("torchmetrics", True),
        ("fastapi[standard]>=0.115", True),
        ("boto3; extra == 'tensorizer'", False),
        ("six>=1.16.0; python_version > '3.11'", True),
    ],
)
def test_what_is_required(line, wanted):
    assert requirements.wanted(line) is wanted
