#!/usr/bin/env python3
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tiny Llama with random weights, in the files that an engine loads. The seed decides the weights, and so the answers."""

from __future__ import annotations

import argparse
import array
import itertools
import json
import math
import random
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HIDDEN, LAYERS, HEADS, HEAD, INNER = 96, 2, 3, 32, 192  # three heads: one for each rank of three
VOCABULARY = 384
SPECIAL = ("<s>", "</s>", "<pad>")
# Wide enough that the likeliest word is one by a margin that the order of additions, other with three ranks, does not reach.
SPREAD = {"lm_head.weight": 4.0}
CHAT = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}assistant: "


def shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor's name and shape, in the order of the file."""
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        found |= {f"{at}self_attn.{name}_proj.weight": (HEADS * HEAD, HIDDEN) for name in "qkv"}
        found[f"{at}self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD)
        found |= {f"{at}mlp.{name}_proj.weight": (INNER, HIDDEN) for name in ("gate", "up")}
        found[f"{at}mlp.down_proj.weight"] = (HIDDEN, INNER)
        found |= {f"{at}{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")}
    return found | {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}


def values(name: str, shape: Sequence[int], seed: int) -> array.array[float]:
    """A tensor's numbers: ones for a norm, else normal with the variance that keeps a layer's output the size of its input."""
    count = math.prod(shape)
    if len(shape) == 1:
        return array.array("f", [1.0]) * count
    source = random.Random(f"{seed}:{name}")
    width = SPREAD.get(name, 1.0) / math.sqrt(1 if "embed" in name else shape[1])
    numbers = array.array("f", (source.gauss(0.0, width) for _ in range(count)))
    if name == "lm_head.weight":  # answers are printable: no end, no part of a character
        for number, word in enumerate(words()):
            if number < len(SPECIAL) or not word.isascii():
                numbers[number * HIDDEN : (number + 1) * HIDDEN] = array.array("f", [0.0]) * HIDDEN
    return numbers


def weights(seed: int) -> Iterator[bytes]:
    """The file in the format safetensors: length of the header, header, tensors."""
    tensors = shapes()
    ends = list(itertools.accumulate(4 * math.prod(shape) for shape in tensors.values()))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for (name, shape), begin, end in zip(tensors.items(), [0, *ends], ends, strict=False):
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name, shape in tensors.items():
        numbers = values(name, shape, seed)
        if sys.byteorder == "big":
            numbers.byteswap()
        yield numbers.tobytes()


def byte_letters() -> list[str]:
    """The printable letter that stands for each byte in a byte-level vocabulary (GPT-2's rule)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(256)]


def pairs() -> list[tuple[str, str]]:
    """Letters that make one word together, as many as fill the vocabulary."""
    letters = "etaoinshrdlu"
    return [(one, other) for one in letters for other in letters][: VOCABULARY - len(SPECIAL) - 256]


def words() -> list[str]:
    """The vocabulary: special words, every byte, pairs of letters, so that every number is a word."""
    return [*SPECIAL, *byte_letters(), *("".join(pair) for pair in pairs())]


def tokenizer() -> dict[str, Any]:
    """Byte-level BPE."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": n, "content": word, **flags, "special": True} for n, word in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {word: number for number, word in enumerate(words())},
            "merges": [" ".join(pair) for pair in pairs()],
        },
    }


def texts() -> dict[str, dict[str, Any]]:
    """The JSON files, by name."""
    special = dict(zip(("bos_token", "eos_token", "pad_token"), SPECIAL, strict=True))
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "head_dim": HEAD,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 512,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "mlp_bias": False,
            "torch_dtype": "float32",
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 2,
        },
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "model_max_length": 512,
            "chat_template": CHAT,
            **special,
        },
    }


def write(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in texts().items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    with (folder / "model.safetensors").open("wb") as handle:
        handle.writelines(weights(seed))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lab/vllm_cpu/model.py", description=__doc__)
    parser.add_argument("folder", type=Path, help="directory to fill")
    parser.add_argument("--seed", type=int, default=1, help="decides the weights (default: 1)")
    options = parser.parse_args(arguments)
    write(options.folder, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
