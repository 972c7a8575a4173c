# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tensors of the DeepSeek-V4.1-Flash EXL3 checkpoint, shard by shard, as its config.json implies them.

At full scale this gives the published 188,245 tensors, the published size of the index, and the size of every shard: to the
byte for 1, 2, 43, 47 and 48, within 1.1 kB (the header's order of names) for the others. tests/unit/lab/test_checkpoint.py
holds it to that. The lab shrinks shapes and the number of experts, and keeps names and dtypes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SHARDS = 48
BODY = range(3, 43)  # one decoder layer each; the shards that MD5SUMS.body covers
ENGRAM = {47: 1, 48: 14}  # shard: decoder layer
SMALL_FILES = (
    "config.json",
    "quantization_config.json",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "MD5SUMS.body",
)
# Bytes of the 48 shards of bot-lab-21/DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard at revision f129e31a
# (LakyFx/deepseek-v41-flash-exl3-tp3-spark, config/checkpoint-files.json).
_BODY_SIZES = """
6982424968 6982424968 6998619672 6982424968 6982424968 6982424968 6982424968 6982424968 6998619672 6982424968
6982429608 6982429608 6982429608 6982429608 6998624320 5283736120 6982429608 6982429608 6982429608 5283736120
5860919008 6982429608 5849967304 5283736120 5855543320 5283736120 5283736120 5283736120 5289312136 5283736120
5283736120 5283736120 5289312136 5283736120 5283736120 5283736120 5289312136 5283736120 5283736120 5283736120
"""
TRUE_SIZES = (
    970533624,
    1323858272,
    *map(int, _BODY_SIZES.split()),
    1323837624,
    2652728736,
    2573998176,
    2706402896,
    101535150936,
    101537926640,
)
ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I16": 2, "I8": 1, "F8_E4M3": 1, "F8_E8M0": 1}
#: How the tensors of an Engram shard follow each other, without the part of the name that all have. official: as released, which the EXL3
#: files share. nvfp4: as in NVIDIA's NVFP4 pack, where safetensors put larger elements first, then names.
LAYOUTS = {
    "official": ("embed.weight", "embed.scale", "q_weight", "k_weight", "wkv.weight", "wkv.scale"),
    "nvfp4": ("k_weight", "q_weight", "embed.scale", "wkv.scale", "embed.weight", "wkv.weight"),
}
_BLOCK = 32  # one e8m0 scale for each 32 x 32 block of an fp8 matrix

Shrink = Callable[[int, int], int]


@dataclass(frozen=True)
class Tensor:
    """One tensor of a safetensors file."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of its data."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def shard_name(number: int) -> str:
    return f"model-{number:05d}-of-{SHARDS:05d}.safetensors"


def file_names() -> list[str]:
    """All 54 names, in the order in which LLMKube's sample lists them."""
    return [*SMALL_FILES, *map(shard_name, range(1, SHARDS + 1))]


def header(tensors: list[Tensor]) -> bytes:
    """The safetensors header: length, compact JSON, spaces up to a multiple of 8 bytes."""
    table: dict[str, Any] = {}
    offset = 0
    for tensor in tensors:
        table[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.size],
        }
        offset += tensor.size
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def arranged(tensors: list[Tensor], layout: str) -> list[Tensor]:
    """The tensors of an Engram shard in the order of this layout."""
    by_name = {tensor.name.rpartition(".engram.")[2]: tensor for tensor in tensors}
    return [by_name[name] for name in LAYOUTS[layout]]


class Inventory:
    """Builds the tensor list of a shard, with every extent shrunk by one factor and a cut number of experts.

    factor: ratio of bytes wanted to bytes in truth. experts, drafter_experts: how many to keep in a layer.
    """

    def __init__(
        self, config: Mapping[str, Any], factor: float = 1.0, experts: int = 384, drafter_experts: int = 128
    ) -> None:
        self.text: Mapping[str, Any] = config["text_config"]
        self.vision: Mapping[str, Any] = config["vision_config"]
        self.quantization: Mapping[str, Any] = config["quantization_config"]
        self.side = math.sqrt(factor)
        self.factor = factor
        self.experts = experts
        self.drafter_experts = drafter_experts
        self.out: list[Tensor] = []

    def shard(self, number: int) -> list[Tensor]:
        self.out = []
        if number == 1:
            self._vision()
        elif number == 2:
            self._add("embed.weight", "BF16", self.text["vocab_size"], self.text["hidden_size"])
            for token in ("image_start", "image_end", "image_newline"):
                self._add(token, "BF16", self.text["hidden_size"])
        elif number in BODY:
            self._layer(number - BODY.start)
        elif number == 43:
            self._add("norm.weight", "BF16", self.text["hidden_size"])
            self._add("head.weight", "BF16", self.text["vocab_size"], self.text["hidden_size"])
        elif number in ENGRAM:
            self._engram(ENGRAM[number])
        else:
            self._drafter(number - 44)
        return self.out if number in ENGRAM else sorted(self.out, key=lambda tensor: tensor.name)

    def _extent(self, true: int, step: int = 1, one_dimension: bool = False) -> int:
        ratio = self.factor if one_dimension else self.side
        return max(step, round(true * ratio / step) * step)

    def _add(self, name: str, dtype: str, *shape: int) -> None:
        self.out.append(Tensor(name, dtype, tuple(self._extent(size, one_dimension=len(shape) == 1) for size in shape)))

    def _fp8(self, name: str, rows: int, columns: int) -> None:
        rows, columns = self._extent(rows, _BLOCK), self._extent(columns, _BLOCK)
        self.out.append(Tensor(f"{name}.weight", "F8_E4M3", (rows, columns)))
        self.out.append(Tensor(f"{name}.scale", "F8_E8M0", (rows // _BLOCK, columns // _BLOCK)))

    def _attention(self, prefix: str) -> None:
        text = self.text
        heads, hidden = text["num_attention_heads"] * text["head_dim"], text["hidden_size"]
        low_rank = text["o_groups"] * text["o_lora_rank"]
        self._fp8(f"{prefix}attn.wq_a", text["q_lora_rank"], hidden)
        self._fp8(f"{prefix}attn.wq_b", heads, text["q_lora_rank"])
        self._fp8(f"{prefix}attn.wkv", text["head_dim"], hidden)
        self._fp8(f"{prefix}attn.wo_a", low_rank, heads // text["o_groups"])
        self._fp8(f"{prefix}attn.wo_b", hidden, low_rank)
        self._add(f"{prefix}attn.q_norm.weight", "BF16", text["q_lora_rank"])
        self._add(f"{prefix}attn.kv_norm.weight", "BF16", text["head_dim"])
        self._add(f"{prefix}attn.attn_sink", "F32", text["num_attention_heads"])
        self._add(f"{prefix}attn_norm.weight", "BF16", hidden)
        self._add(f"{prefix}ffn_norm.weight", "BF16", hidden)
        mixes = (2 + text["hc_mult"]) * text["hc_mult"]
        for part in ("attn", "ffn"):
            self._add(f"{prefix}hc_{part}_fn", "F32", mixes, text["hc_mult"] * hidden)
            self._add(f"{prefix}hc_{part}_base", "F32", mixes)
            self._add(f"{prefix}hc_{part}_scale", "F32", 3)

    def _gate(self, prefix: str, experts: int) -> None:
        hidden, inner = self.text["hidden_size"], self.text["moe_intermediate_size"] * self.text["n_shared_experts"]
        self._add(f"{prefix}ffn.gate.weight", "BF16", experts, hidden)
        self._add(f"{prefix}ffn.gate.bias", "F32", experts)
        self._add(f"{prefix}ffn.gate.bias_vl", "F32", experts)
        self._fp8(f"{prefix}ffn.shared_experts.w1", inner, hidden)
        self._fp8(f"{prefix}ffn.shared_experts.w3", inner, hidden)
        self._fp8(f"{prefix}ffn.shared_experts.w2", hidden, inner)

    def _sources(self, layer: int) -> None:
        """Compressor and indexer, in the layers that other layers take their keys or their index from."""
        text, prefix = self.text, f"layers.{layer}.attn."
        if layer in text["kv_source_layer_ids"]:
            self._add(f"{prefix}compressor.wkv.weight", "BF16", text["head_dim"], text["hidden_size"])
            if text["compress_ratios"][layer] != 1:
                self._add(f"{prefix}compressor.wgate.weight", "BF16", text["head_dim"], text["hidden_size"])
            self._add(f"{prefix}compressor.norm.weight", "BF16", text["head_dim"])
            self._add(f"{prefix}indexer.wk.weight", "BF16", text["index_head_dim"], text["head_dim"])
            self._add(f"{prefix}indexer.k_norm.weight", "BF16", text["index_head_dim"])
        if layer in text["index_source_layer_ids"]:
            self._fp8(f"{prefix}indexer.wq_b", text["index_n_heads"] * text["index_head_dim"], text["q_lora_rank"])
            self._add(f"{prefix}indexer.weights_proj.weight", "BF16", text["index_n_heads"], text["hidden_size"])

    def _layer(self, layer: int) -> None:
        prefix = f"layers.{layer}."
        self._attention(prefix)
        self._sources(layer)
        self._gate(prefix, self.text["n_routed_experts"])
        bits = self.quantization["expert_bits"][str(layer)]
        codebook = self.quantization["codebook"]
        kept = self.side * math.sqrt(self.text["n_routed_experts"] / self.experts)
        for expert in range(self.experts):
            for matrix, inner, outer, key in (
                ("w1", "hidden_size", "moe_intermediate_size", "gu"),
                ("w3", "hidden_size", "moe_intermediate_size", "gu"),
                ("w2", "moe_intermediate_size", "hidden_size", "down"),
            ):
                tiles = [max(1, round(self.text[size] * kept / 16)) for size in (inner, outer)]
                name = f"{prefix}ffn.experts.{expert}.{matrix}."
                self.out.append(Tensor(f"{name}trellis", "I16", (tiles[0], tiles[1], 16 * bits[key])))
                self.out.append(Tensor(f"{name}suh", "F16", (tiles[0] * 16,)))
                self.out.append(Tensor(f"{name}svh", "F16", (tiles[1] * 16,)))
                self.out.append(Tensor(f"{name}{codebook}", "I32", ()))

    def _drafter(self, stage: int) -> None:
        text, prefix = self.text, f"mtp.{stage}."
        hidden, vocabulary, rank = text["hidden_size"], text["vocab_size"], text["dspark_markov_rank"]
        self._attention(prefix)
        self._gate(prefix, text["dspark_n_routed_experts"])
        kept = self.side * math.sqrt(text["dspark_n_routed_experts"] / self.drafter_experts)
        inner = text["moe_intermediate_size"]
        for expert in range(self.drafter_experts):
            for matrix, true_rows, true_columns in (
                ("w1", inner, hidden),
                ("w3", inner, hidden),
                ("w2", hidden, inner),
            ):
                rows, columns = (
                    max(_BLOCK, round(size * kept / _BLOCK) * _BLOCK) for size in (true_rows, true_columns)
                )
                name = f"{prefix}ffn.experts.{expert}.{matrix}."
                self.out.append(Tensor(f"{name}weight", "I8", (rows, columns // 2)))  # two fp4 values a byte
                self.out.append(Tensor(f"{name}scale", "F8_E8M0", (rows, columns // _BLOCK)))
        if stage == 0:
            self._fp8(f"{prefix}main_proj", hidden, len(text["dspark_target_layer_ids"]) * hidden)
            self._add(f"{prefix}main_norm.weight", "BF16", hidden)
        if stage == text["num_nextn_predict_layers"] - 1:
            self._add(f"{prefix}norm.weight", "BF16", hidden)
            self._add(f"{prefix}markov_head.embed.weight", "BF16", vocabulary, rank)
            self._add(f"{prefix}markov_head.head.weight", "BF16", vocabulary, rank)
            self._add(f"{prefix}confidence_head.proj.weight", "BF16", 1, hidden + rank)

    def _vision(self) -> None:
        hidden, inner = self.vision["hidden_size"], self.vision["intermediate_size"]
        patch, down, model = self.vision["patch_size"], self.vision["downsample_ratio"], self.text["hidden_size"]
        for block in range(self.vision["num_hidden_layers"]):
            prefix = f"vision.blocks.{block}."
            self._add(f"{prefix}attn.wqkv.weight", "BF16", 3 * hidden, hidden)
            self._add(f"{prefix}attn.wqkv.bias", "BF16", 3 * hidden)
            self._add(f"{prefix}attn.wo.weight", "BF16", hidden, hidden)
            self._add(f"{prefix}attn.wo.bias", "BF16", hidden)
            self._add(f"{prefix}mlp.w1.weight", "BF16", 2 * inner, hidden)
            self._add(f"{prefix}mlp.w2.weight", "BF16", hidden, inner)
            self._add(f"{prefix}norm1.weight", "BF16", hidden)
            self._add(f"{prefix}norm2.weight", "BF16", hidden)
        self._add("vision.norm.weight", "BF16", hidden)
        self._add("vision.patch_embed.proj.weight", "BF16", hidden, 3 * patch * patch)
        self._add("vision.patch_embed.proj.bias", "BF16", hidden)
        self._add("aligner.w1.weight", "BF16", model, hidden * down * down)
        self._add("aligner.w1.bias", "BF16", model)
        self._add("aligner.w2.weight", "BF16", model, model)
        self._add("aligner.w2.bias", "BF16", model)

    def _engram(self, layer: int) -> None:
        """The six tensors of an Engram shard, in the true order; rows and q/k come from the configuration unshrunk."""
        text, prefix = self.text, f"layers.{layer}.engram."
        rows = text["engram_num_embeddings"][text["engram_layer_ids"].index(layer)]
        width, hidden = text["engram_head_dim"], text["hidden_size"]
        columns = (text["engram_max_ngram_size"] - 1) * text["engram_n_heads"]
        self.out.append(Tensor(f"{prefix}embed.weight", "F8_E4M3", (rows, width)))
        self.out.append(Tensor(f"{prefix}embed.scale", "F8_E8M0", (rows, width // _BLOCK)))
        self.out.append(Tensor(f"{prefix}q_weight", "BF16", (text["hc_mult"], hidden)))
        self.out.append(Tensor(f"{prefix}k_weight", "BF16", (text["hc_mult"], hidden)))
        self._fp8(f"{prefix}wkv", (text["hc_mult"] + 1) * hidden, columns * width)
