# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens the checkpoint as an engine would: every file there, every shard whole, the rank's Engram rows readable."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import EngineError

# The collection's own rule; the vllm script puts its folder on the path, which differs between a node and a checkout.
engram = importlib.import_module("engram")

SMALL_FILES = (
    "config.json",
    "quantization_config.json",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
_HEADER_LIMIT = 100 << 20  # as the safetensors reader has it
_SAMPLES = 64
_ITEM_BYTES = {"F8_E4M3": 1, "F8_E8M0": 1}


@dataclass(frozen=True)
class Model:
    """A checkpoint whose files are all there."""

    directory: Path
    config: Mapping[str, Any]
    weight_map: Mapping[str, str]
    fingerprint: str

    @property
    def text(self) -> Mapping[str, Any]:
        nested = self.config.get("text_config")
        return nested if isinstance(nested, dict) else self.config


@dataclass(frozen=True)
class Header:
    """A safetensors header and where the data begins."""

    tensors: Mapping[str, Any]
    data_at: int
    size: int


def open_model(directory: Path) -> Model:
    """Read the small files and check that every shard of the index is there and as long as its header says."""
    if not directory.is_dir():
        raise EngineError(f"{directory} is not a directory: no model there")
    missing = [name for name in SMALL_FILES if not (directory / name).is_file()]
    if missing:
        raise EngineError(f"{directory}: missing {', '.join(missing)}")
    config = _json(directory / "config.json")
    weight_map = _json(directory / "model.safetensors.index.json").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise EngineError(f"{directory}/model.safetensors.index.json: no weight_map")
    shards = sorted(set(weight_map.values()))
    missing = [name for name in shards if not (directory / name).is_file()]
    if missing:
        raise EngineError(f"{directory}: missing {', '.join(missing)} of the {len(shards)} shards that the index names")
    for name in shards:
        header = read_header(directory / name)
        held = {tensor for tensor, shard in weight_map.items() if shard == name}
        if held - header.tensors.keys():
            raise EngineError(
                f"{directory / name}: no tensor {sorted(held - header.tensors.keys())[0]}, which the index puts there"
            )
    return Model(directory, config, weight_map, _fingerprint(directory))


def _fingerprint(directory: Path) -> str:
    digest = hashlib.sha256()
    for name in ("config.json", "model.safetensors.index.json"):
        digest.update((directory / name).read_bytes())
    return digest.hexdigest()


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise EngineError(f"{path}: expected a JSON object")
    return content


def read_header(path: Path) -> Header:
    """The header of a shard, after a check that the file has the length it says."""
    with path.open("rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        length = int.from_bytes(handle.read(8), "little")
        if size < 8 or not 0 < length <= min(_HEADER_LIMIT, size - 8):
            raise EngineError(f"{path}: no safetensors header (length field {length}, file {size} bytes)")
        try:
            tensors = json.loads(handle.read(length))
        except ValueError as error:
            raise EngineError(f"{path}: the safetensors header is not JSON: {error}") from error
    tensors.pop("__metadata__", None)
    end = 8 + length + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
    if end != size:
        raise EngineError(f"{path}: {size} bytes, its header says {end}: the file is incomplete")
    return Header(tensors, 8 + length, size)


def split_problems(model: Model, tensor_parallel: int, max_model_len: int | None) -> list[str]:
    """What of the configuration cannot be split over so many ranks."""
    found = []
    hint = " (three ranks need the padded configuration, 72 heads and 9 groups)" if tensor_parallel == 3 else ""
    for key in ("num_attention_heads", "o_groups"):
        value = model.text.get(key)
        if isinstance(value, int) and value % tensor_parallel:
            found.append(f"config.json: {key} {value} is not divisible by tensor parallel size {tensor_parallel}{hint}")
    longest = model.text.get("max_position_embeddings")
    if max_model_len and isinstance(longest, int) and max_model_len > longest:
        found.append(f"--max-model-len {max_model_len} is above max_position_embeddings {longest} of config.json")
    return found


def check_engram(model: Model, rank: int, tensor_parallel: int, local: str | None) -> Iterator[str]:
    """Read first, last and sampled rows of the rank's part of each table; yields the log lines of what was read."""
    try:
        wanted = engram.ranges(model.config, tensor_parallel, "vllm")[rank]
        rows = dict(zip(map(str, model.text["engram_layer_ids"]), model.text["engram_num_embeddings"], strict=True))
    except engram.EngramError as error:
        raise EngineError(f"{model.directory}: {error}") from error
    for layer, (low, high) in wanted.items():
        directory, line = _source(model, layer, low, high, local)
        if line:
            yield line
        width = int(model.text["engram_head_dim"])
        path, offset = _read_rows(
            model, directory, f"layers.{layer}.engram.embed.weight", (rows[layer], width), (low, high)
        )
        _read_rows(model, directory, f"layers.{layer}.engram.embed.scale", (rows[layer], width // 32), (low, high))
        yield f"Engram DISK mode: layer {layer} rows [{low}, {high}) read from {path} (off={offset})"


def _source(model: Model, layer: str, low: int, high: int, local: str | None) -> tuple[Path, str]:
    """Where the rows of a layer are read: the node-local copy if it covers them, else the model directory."""
    if not local:
        return model.directory, ""
    try:
        held = json.loads((Path(local) / "engram-local.json").read_text(encoding="utf-8"))["layers"][layer]
        first, last = int(held[0]), int(held[1])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        return (
            model.directory,
            f"WARNING DSV41_ENGRAM_DIR={local} unusable for layer {layer}: {error!r}; reading {model.directory}",
        )
    if not (first <= low and high <= last):
        return model.directory, (
            f"WARNING {local} holds layer {layer} rows [{first}, {last}), this rank needs [{low}, {high}); reading {model.directory}"
        )
    return Path(local), f"Engram layer {layer} rows [{low}, {high}) read from node-local {local}"


def _read_rows(
    model: Model, directory: Path, name: str, shape: tuple[int, int], part: tuple[int, int]
) -> tuple[Path, int]:
    path = directory / model.weight_map.get(name, "")
    if name not in model.weight_map or not path.is_file():
        raise EngineError(f"{path}: no file for {name}")
    header = read_header(path)
    entry = header.tensors.get(name, {})
    if tuple(entry.get("shape", ())) != shape or entry.get("dtype") not in _ITEM_BYTES:
        raise EngineError(
            f"{path}: {name} is {entry.get('dtype')} {entry.get('shape')}, config.json needs fp8 {list(shape)}"
        )
    start, width = header.data_at + entry["data_offsets"][0], math.prod(shape[1:])
    low, high = part
    picked = random.Random(f"{name}:{low}").sample(range(low, high), min(_SAMPLES, high - low))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for row in sorted({low, high - 1, *picked}):
            if len(os.pread(descriptor, width, start + row * width)) != width:
                raise EngineError(f"{path}: row {row} of {name} cannot be read whole")
    except OSError as error:
        raise EngineError(f"{path}: cannot read {name}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return path, start
