# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of a lab checkpoint hold: the scaled configuration, the shards' tensors, the small files, the revisions."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugins.module_utils.checkpoint import (
    engram,
)  # the collection's own rule decides how many rows the scaled tables have

from .checkpoint_inventory import BODY, ENGRAM, TRUE_SIZES, Inventory, Tensor, file_names, header, shard_name

ROOT = Path(__file__).resolve().parent.parent

DEFAULT_MIB = 300
MINIMUM_MIB = 6
LAB_EXPERTS = 8  # kept of 384 experts a layer and of 128 in the drafter: with all of them headers alone are 20 MB
DERIVED = ("MD5SUMS.body",)
# What a new revision changes unless --change says otherwise: two small files and one body shard, as after a fix upstream.
DEFAULT_CHANGE = ("tokenizer_config.json", "quantization_config.json", shard_name(20))
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the bytes.

    scale: ratio of the lab's bytes to the true ones. change: what the last revision changed. layout: of the Engram shards, whose tensors
    hold the same bytes in every layout.
    """

    seed: int = 1
    revision: int = 1
    scale: float = DEFAULT_MIB * (1 << 20) / sum(TRUE_SIZES)
    change: tuple[str, ...] = DEFAULT_CHANGE
    layout: str = "official"

    def changed_in(self, name: str) -> int:
        """The last revision in which the file got new content; earlier revisions than the last changed the default set."""
        if self.revision > 1 and name in self.change:
            return self.revision
        return self.revision - 1 if self.revision > 2 and name in DEFAULT_CHANGE else 1


def check(recipe: Recipe) -> list[str]:
    """What is wrong with the recipe, as texts for the user."""
    problems = []
    if recipe.revision < 1:
        problems.append(f"--revision is {recipe.revision}, expected 1 or more")
    if recipe.revision == 1 and recipe.change != DEFAULT_CHANGE:
        problems.append("--change says what a later revision changes: it needs --revision 2 or more")
    smallest = MINIMUM_MIB * (1 << 20) / sum(TRUE_SIZES)
    if not smallest <= recipe.scale <= 1:
        problems.append(
            f"the scale is {recipe.scale:g}, allowed: {smallest:.3g} ({MINIMUM_MIB} MiB in all) to 1 (the true size)"
        )
    for name in recipe.change:
        if name in DERIVED:
            problems.append(f"--change {name}: it follows from shards 3 to 42, change one of those")
        elif name not in file_names():
            problems.append(
                f"--change {name}: no such file; one of the 54 names that `checkpoint.py names` prints is expected"
            )
    return problems


def scaled_config(scale: float) -> dict[str, Any]:
    """The true EXL3 config.json with smaller Engram tables whose rows follow the true prime rule; all else untouched."""
    config: dict[str, Any] = json.loads((ROOT / "lab/data/config-exl3.json").read_text(encoding="utf-8"))
    text = config["text_config"]
    wanted = sum(text["engram_num_embeddings"]) * scale
    low, high = 2, text["engram_vocab_size"]
    while low < high:  # the largest vocabulary whose tables stay within the wanted number of rows
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(_table_rows(text, middle)) <= wanted else (low, middle - 1)
    text["engram_vocab_size"] = low
    text["engram_num_embeddings"] = _table_rows(text, low)
    return config


def _table_rows(text: Mapping[str, Any], vocabulary: int) -> list[int]:
    primes = engram.column_primes(engram.parse({**text, "engram_vocab_size": vocabulary}))
    return [sum(primes[layer]) for layer in text["engram_layer_ids"]]


def shard_tensors(config: Mapping[str, Any], number: int, scale: float) -> list[Tensor]:
    """The tensors of a shard, with shapes shrunk so that the shard keeps its share of the whole checkpoint."""
    if scale == 1:
        return Inventory(config).shard(number)
    if number in ENGRAM:  # the tables are scaled by the configuration
        return Inventory(config, scale, LAB_EXPERTS, LAB_EXPERTS).shard(number)
    guess = Inventory(config, scale, LAB_EXPERTS, LAB_EXPERTS).shard(number)
    wanted = TRUE_SIZES[number - 1] * scale - len(header(guess))
    low, high = scale / 16, scale * 2
    for _ in range(24):  # shapes round to whole tiles, so the factor that meets the size is searched for
        middle = (low + high) / 2
        size = sum(tensor.size for tensor in Inventory(config, middle, LAB_EXPERTS, LAB_EXPERTS).shard(number))
        low, high = (middle, high) if size <= wanted else (low, middle)
    return Inventory(config, low, LAB_EXPERTS, LAB_EXPERTS).shard(number)


def random_bytes(recipe: Recipe, name: str, size: int) -> Iterator[bytes]:
    """Bytes that depend on the seed, the file's name and the revision that last changed it, in chunks."""
    source = random.Random(f"{recipe.seed}:{name}:{recipe.changed_in(name)}")
    while size > 0:
        yield source.randbytes(min(size, _CHUNK))
        size -= _CHUNK


def small_files(recipe: Recipe, config: Mapping[str, Any], shards: Mapping[str, Sequence[Tensor]]) -> dict[str, bytes]:
    """The five JSON files by name; MD5SUMS.body needs the written shards and is made after them."""
    weight_map = {tensor.name: name for name, tensors in shards.items() for tensor in tensors}
    total = sum(tensor.size for tensors in shards.values() for tensor in tensors)
    contents: dict[str, Any] = {
        "config.json": config,
        "quantization_config.json": _quantization(config, shards),
        "model.safetensors.index.json": {
            "metadata": {"total_size": total},
            "weight_map": dict(sorted(weight_map.items())),
        },
        "tokenizer.json": _tokenizer(config),
        "tokenizer_config.json": _tokenizer_config(),
    }
    for name, content in contents.items():
        revision = recipe.changed_in(name)
        if revision > 1:  # a trace of the revision in a place that no reader minds
            if name == "config.json":
                content["transformers_version"] = f"5.6.{revision - 1}"
            else:
                content.setdefault("metadata", {})["lab_revision"] = revision
    # config.json is kept as published: indent 2, no newline at the end
    return {name: json.dumps(content, indent=2).encode() for name, content in contents.items()}


def _quantization(config: Mapping[str, Any], shards: Mapping[str, Sequence[Tensor]]) -> dict[str, Any]:
    """quantization_config.json: the EXL3 settings and, for each quantised matrix, what is stored for it."""
    dtypes = {"I16": "torch.int16", "F16": "torch.float16", "I32": "torch.int32"}
    storage: dict[str, Any] = {}
    for number in BODY:
        for tensor in shards[shard_name(number)]:
            module, _, kind = tensor.name.rpartition(".")
            if ".ffn.experts." not in module:
                continue
            entry = storage.setdefault(module, {"stored_tensors": {}, "quant_format": "exl3"})
            if kind == "trellis":
                entry["bits_per_weight"] = tensor.shape[2] // 16
            entry["stored_tensors"][tensor.name] = {
                "shape": list(tensor.shape),
                "n_bytes": tensor.size,
                "dtype": dtypes[tensor.dtype],
            }
    return {**config["quantization_config"], "tensor_storage": storage}


def _tokenizer(config: Mapping[str, Any]) -> dict[str, Any]:
    """A valid byte-level BPE tokenizer file: 256 byte tokens and the special ones."""
    special = {"<|begin_of_sentence|>": 0, "<|end_of_sentence|>": 1, "<|pad|>": 2}
    vocabulary = {**special, **{f"<0x{byte:02X}>": byte + len(special) for byte in range(256)}}
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, number in special.items()
    ]
    added.append({**added[0], "id": config["image_token_id"], "content": "<|image|>"})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "byte_fallback": True,
            "vocab": vocabulary,
            "merges": [],
        },
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": "<|begin_of_sentence|>",
        "eos_token": "<|end_of_sentence|>",
        "pad_token": "<|pad|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1048576,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
