# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From config.json, the index and the headers of the shards to the plan of one rank's rows. Every problem is collected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import engram, units
from .engram import EngramError
from .objects import INDEX
from .row_plan import PLACEMENTS, Extent, Kind, Placement, RowPlan, RowPlanError, Target
from .safetensors import Header, Tensor, names_in_several

#: Of a table's two tensors: end of the name, dtype, columns. 256 fp8 values share 8 scales, one for 32 columns.
_PARTS: tuple[tuple[Kind, str, int], ...] = (("weight", "F8_E4M3", 256), ("scale", "F8_E8M0", 8))


@dataclass(frozen=True)
class Wanted:
    """What is asked for: one rank of tp, by a rule, in a placement."""

    tp: int
    rank: int
    rule: str
    placement: Placement


@dataclass(frozen=True)
class _Part:
    """One tensor of a table, as the configuration wants it. rows: those of the rank."""

    name: str
    kind: Kind
    dtype: str
    shape: tuple[int, int]
    rows: tuple[int, int]

    def problem(self, tensor: Tensor | None) -> str:
        """What is wrong with the one in the file, or an empty text."""
        if tensor is None:
            return f"no tensor {self.name}"
        if (tensor.dtype, tensor.shape) == (self.dtype, self.shape):
            return ""
        found = units.printable(f"{tensor.dtype} {list(tensor.shape)}")
        return f"tensor {self.name} is {found}, config.json needs {self.dtype} {list(self.shape)}"


def shards(config: Mapping[str, Any], places: Mapping[str, str]) -> tuple[str, ...]:
    """The files whose headers a plan needs, in order: those that the index names for the tables. Raises RowPlanError."""
    return tuple(sorted(set(table_places(config, places).values())))


def table_places(config: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, str]:
    """The file of each tensor of the tables, by the tensor's name. Raises RowPlanError."""
    try:
        layers = engram.parse(config).layers
    except EngramError as error:
        raise RowPlanError(str(error)) from None
    names = [name for layer in layers for name in table_names(layer)]
    missing = [name for name in names if name not in places]
    if missing:
        raise RowPlanError(f"{INDEX}: no {', '.join(missing)}, which config.json needs")
    return {name: places[name] for name in names}


def table_names(layer: int | str) -> tuple[str, ...]:
    """Of the tensors of a layer's table."""
    return tuple(_name(layer, kind) for kind, _dtype, _columns in _PARTS)


def _name(layer: int | str, kind: Kind) -> str:
    return f"layers.{layer}.engram.embed.{kind}"


def build(
    config: Mapping[str, Any], places: Mapping[str, str], headers: Mapping[str, Header], wanted: Wanted
) -> RowPlan:
    """The plan of one rank. headers: of each file that shards names. Raises RowPlanError with everything that is wrong."""
    if wanted.placement not in PLACEMENTS:
        raise RowPlanError(f"the placement is {wanted.placement!r}, allowed: {', '.join(PLACEMENTS)}")
    parts = _parts(config, wanted)
    needed = shards(config, places)
    absent = [path for path in needed if path not in headers]
    if absent:
        raise RowPlanError(f"{INDEX} puts Engram tables into {', '.join(absent)}, but there is no such file")
    problems = _problems(parts, places, {path: headers[path] for path in needed})
    if problems:
        raise RowPlanError("; ".join(problems))
    full = wanted.placement == "full"
    return RowPlan(
        rank=wanted.rank,
        tp=wanted.tp,
        rule=wanted.rule,
        placement=wanted.placement,
        layers=_rows(config, wanted),
        targets=() if full else tuple(_target(headers[path], parts, wanted.placement) for path in needed),
        index_path=INDEX if wanted.placement == "directory" else "",
    )


def _rows(config: Mapping[str, Any], wanted: Wanted) -> dict[str, tuple[int, int]]:
    try:
        split = engram.ranges(config, wanted.tp, wanted.rule)
    except EngramError as error:
        raise RowPlanError(str(error)) from None
    if isinstance(wanted.rank, bool) or not isinstance(wanted.rank, int) or wanted.rank not in range(wanted.tp):
        raise RowPlanError(f"the rank is {wanted.rank!r}, expected 0 to {wanted.tp - 1}")
    return {layer: (low, high) for layer, (low, high) in split[wanted.rank].items()}


def _parts(config: Mapping[str, Any], wanted: Wanted) -> dict[str, _Part]:
    """The tensors of all tables by name."""
    rows = _rows(config, wanted)
    parsed = engram.parse(config)
    found = {}
    for layer, count in zip(parsed.layers, parsed.rows, strict=True):
        for kind, dtype, columns in _PARTS:
            name = _name(layer, kind)
            found[name] = _Part(name, kind, dtype, (count, columns), rows[str(layer)])
    return found


def _problems(parts: Mapping[str, _Part], places: Mapping[str, str], headers: Mapping[str, Header]) -> list[str]:
    several = names_in_several(headers)
    found = [f"tensor {_shown(name)} is in {' and in '.join(paths)}" for name, paths in sorted(several.items())]
    for path, header in headers.items():
        tensors = header.by_name()
        wrong = [part.problem(tensors.get(name)) for name, part in parts.items() if places[name] == path]
        wrong += [
            f"no tensor {_shown(name)}, which the index puts there"
            for name, place in places.items()
            if place == path and name not in tensors and name not in parts
        ]
        wrong += [
            f"tensor {_shown(name)} is in it, the index puts it into {places[name]}"
            for name in tensors
            if name not in several and places.get(name, path) != path
        ]
        found += [f"{path}: {text}" for text in wrong if text]
    strange = sorted(name for name in places if _is_table(name) and name not in parts)
    return found + [f"{INDEX}: {_shown(name)} is a table of a layer that config.json does not name" for name in strange]


def _shown(name: str) -> str:
    return units.printable(name, 200)


def _is_table(name: str) -> bool:
    return any(name.endswith(f".engram.embed.{kind}") for kind, _dtype, _columns in _PARTS)


def _target(header: Header, parts: Mapping[str, _Part], placement: Placement) -> Target:
    extents = [Extent(header.path, 0, header.size, 0, "header")]
    extents += _extents(header, parts, whole=placement == "shard")
    return Target(
        path=header.path,
        size=header.file_size,
        header_size=header.size,
        extents=tuple(extents),
        row_bytes={tensor.name: parts[tensor.name].shape[1] for tensor in header.tensors if tensor.name in parts},
    )


def _extents(header: Header, parts: Mapping[str, _Part], whole: bool) -> Iterable[Extent]:
    """Rows of the tables in this file, and with whole everything else of it; a file's tensors are in the order of offsets."""
    for tensor in header.tensors:
        part = parts.get(tensor.name)
        if part is not None:
            width, (low, high) = part.shape[1], part.rows
            start = tensor.offset + low * width
            yield Extent(header.path, start, (high - low) * width, start, part.kind, tensor.name, part.rows)
        elif whole and tensor.size:
            yield Extent(header.path, tensor.offset, tensor.size, tensor.offset, "tensor", tensor.name)


def tiling_problems(layers: Iterable[Mapping[str, tuple[int, int]]], rows: Mapping[str, int]) -> list[str]:
    """Where the ranges of all ranks do not cover each table once. rows: of each table, by layer number as text."""
    ranks = list(layers)
    problems = [
        f"layer {layer}: rows on rank {number}, and no table of it is known"
        for number, rank in enumerate(ranks)
        for layer in rank
        if layer not in rows
    ]
    for layer, count in rows.items():
        held = {number: rank[layer] for number, rank in enumerate(ranks) if layer in rank}
        empty = {number: (low, high) for number, (low, high) in held.items() if not 0 <= low < high}
        problems += [
            f"layer {layer}: [{low}, {high}) on rank {number} is no range" for number, (low, high) in empty.items()
        ]
        problems += _cover_problems(layer, sorted(held[number] for number in held if number not in empty), count)
        without = [str(number) for number in range(len(ranks)) if number not in held]
        if without:
            problems.append(f"layer {layer}: nothing of it on rank {', '.join(without)}")
    return problems


def _cover_problems(layer: str, ranges: Iterable[tuple[int, int]], count: int) -> list[str]:
    """Where these ranges, in order, do not cover so many rows once."""
    problems = []
    end = 0
    for low, high in ranges:
        if low > end:
            problems.append(f"layer {layer}: rows [{end}, {low}) are held by nobody")
        elif low < end:
            problems.append(f"layer {layer}: rows [{low}, {min(high, end)}) are held twice")
        end = max(end, high)
    if end != count:
        problems.append(f"layer {layer}: the ranks hold rows up to {end}, the table has {count}")
    return problems
