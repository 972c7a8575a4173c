# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which bytes of which shards a rank needs: from config.json, the index and the shards' real headers to a frozen plan.

A row's place follows from the header of the object at hand: the official and EXL3 files begin with the table, NVIDIA's NVFP4 files do
not. Extents keep the offsets of the source, so that a target is the source with holes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from . import units
from .manifest import path_problem
from .spans import Span, blocks, merged

#: directory: a separate directory with sparse shards that hold only the table rows. shard: the slice is the shard of the revision, with
#: everything but the other ranks' rows. full: whole shards, the engine is told its rows.
Placement = Literal["directory", "shard", "full"]
PLACEMENTS: tuple[Placement, ...] = ("directory", "shard", "full")
#: header: the safetensors header with its length field. weight, scale: rows of a table. tensor: a whole other tensor.
Kind = Literal["header", "weight", "scale", "tensor"]
KINDS: tuple[Kind, ...] = ("header", "weight", "scale", "tensor")


#: No number of a plan or a record is beyond this.
_NUMBER_LIMIT = 1 << 63


class RowPlanError(ValueError):
    """Rows that cannot be planned; the text is the message for the user."""


@dataclass(frozen=True)
class Extent:
    """One run of bytes to bring. tensor: its name, empty for the header. rows: [lo, hi) of the table, (0, 0) otherwise."""

    source_path: str
    source_offset: int
    length: int
    target_offset: int
    kind: Kind
    tensor: str = ""
    rows: tuple[int, int] = (0, 0)

    @property
    def span(self) -> Span:
        """Where it lies in the target."""
        return self.target_offset, self.target_offset + self.length

    @property
    def key(self) -> str:
        """How engram-local.json names its digest: ``SHARD:TENSOR[lo:hi]``, with ``header`` for the header."""
        rows = f"[{self.rows[0]}:{self.rows[1]}]" if self.kind in ("weight", "scale") else ""
        return f"{self.source_path}:{self.tensor or 'header'}{rows}"


@dataclass(frozen=True)
class Target:
    """One file on the node. size: as the source has it, holes included. extents: in the order of their offsets, disjoint.

    row_bytes: bytes of a row of each table tensor in it, by tensor name.
    """

    path: str
    size: int
    header_size: int
    extents: tuple[Extent, ...]
    row_bytes: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """Bytes to bring."""
        return sum(extent.length for extent in self.extents)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The target's bytes that are not a hole."""
        return merged(extent.span for extent in self.extents)

    def allocated(self, block: int = 4096) -> int:
        """Bytes that a file system of this block size allocates for it."""
        return blocks(self.spans, block)


@dataclass(frozen=True)
class RowPlan:
    """What one rank needs. layers: [lo, hi) of each table, by layer number as text. targets: none with placement full.

    index_path: file to copy whole beside the shards, for placement directory; empty otherwise.
    """

    rank: int
    tp: int
    rule: str
    placement: Placement
    layers: Mapping[str, tuple[int, int]]
    targets: tuple[Target, ...] = ()
    index_path: str = ""

    @property
    def bytes(self) -> int:
        return sum(target.bytes for target in self.targets)

    def by_path(self) -> dict[str, Target]:
        return {target.path: target for target in self.targets}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for an action plugin to hand to a node; from_dict reads them."""
        return {
            "rank": self.rank,
            "tp": self.tp,
            "rule": self.rule,
            "placement": self.placement,
            "layers": {layer: list(rows) for layer, rows in self.layers.items()},
            "targets": [_target_to_dict(target) for target in self.targets],
            "index_path": self.index_path,
        }


def _target_to_dict(target: Target) -> dict[str, Any]:
    return {
        "path": target.path,
        "size": target.size,
        "header_size": target.header_size,
        "row_bytes": dict(target.row_bytes),
        "extents": [
            {
                "source_path": extent.source_path,
                "source_offset": extent.source_offset,
                "length": extent.length,
                "target_offset": extent.target_offset,
                "kind": extent.kind,
                "tensor": extent.tensor,
                "rows": list(extent.rows),
            }
            for extent in target.extents
        ],
    }


def whole_number(value: Any) -> int:
    """Raises ValueError, TypeError and OverflowError."""
    number = int(value)
    if not -_NUMBER_LIMIT <= number < _NUMBER_LIMIT:
        raise ValueError("a number is beyond 64 bits")
    return number


def shown(value: object) -> str:
    """What somebody else wrote, for a message."""
    return units.shown(value, 80)


def from_dict(values: Mapping[str, Any]) -> RowPlan:
    """The plan that to_dict gave. Raises RowPlanError when it is not one."""
    try:
        plan = RowPlan(
            rank=whole_number(values["rank"]),
            tp=whole_number(values["tp"]),
            rule=str(values["rule"]),
            placement=cast(Placement, str(values["placement"])),
            layers={
                str(layer): (whole_number(rows[0]), whole_number(rows[1])) for layer, rows in values["layers"].items()
            },
            targets=tuple(_target_from_dict(item) for item in values["targets"]),
            index_path=str(values["index_path"]),
        )
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        said = units.printable(str(error), 80)
        raise RowPlanError(f"this is no row plan: {type(error).__name__}: {said}") from error
    problems = _plan_problems(plan)
    if problems:
        raise RowPlanError("; ".join(problems))
    return plan


def _target_from_dict(item: Mapping[str, Any]) -> Target:
    extents = (
        Extent(
            source_path=str(row["source_path"]),
            source_offset=whole_number(row["source_offset"]),
            length=whole_number(row["length"]),
            target_offset=whole_number(row["target_offset"]),
            kind=cast(Kind, str(row["kind"])),
            tensor=str(row["tensor"]),
            rows=(whole_number(row["rows"][0]), whole_number(row["rows"][1])),
        )
        for row in item["extents"]
    )
    return Target(
        path=str(item["path"]),
        size=whole_number(item["size"]),
        header_size=whole_number(item["header_size"]),
        extents=tuple(extents),
        row_bytes={str(name): whole_number(size) for name, size in item["row_bytes"].items()},
    )


def _plan_problems(plan: RowPlan) -> list[str]:
    problems = []
    if plan.placement not in PLACEMENTS:
        problems.append(f"the placement is {shown(plan.placement)}, allowed: {', '.join(PLACEMENTS)}")
    if not 0 <= plan.rank < plan.tp:
        problems.append(f"the rank is {plan.rank}, expected 0 to {plan.tp - 1}")
    for target in plan.targets:
        problems += [f"{units.printable(target.path, 80)}: {text}" for text in _target_problems(target)]
    return problems


def _target_problems(target: Target) -> list[str]:
    """A plan comes from the controller, but what it says is written with the node's rights: it may not leave the file."""
    problems = []
    for path in sorted({target.path, *(extent.source_path for extent in target.extents)}):
        wrong = path_problem(path)
        if wrong:
            problems.append(f"the path {shown(path)} {wrong}")
    end = 0
    for extent in target.extents:
        if extent.kind not in KINDS:
            problems.append(f"the kind {shown(extent.kind)} of an extent is none of {', '.join(KINDS)}")
        if extent.source_offset < 0 or extent.length <= 0 or extent.target_offset < end:
            problems.append(f"the extent at {extent.target_offset} is empty, out of order or overlaps the one before")
        end = extent.target_offset + extent.length
    if end > target.size:
        problems.append(f"its extents end at {end}, the file has {target.size} bytes")
    return problems
