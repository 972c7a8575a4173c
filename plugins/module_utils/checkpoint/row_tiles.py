# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check on the Engram rows of all nodes together, from what engram_info returned of each. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..report.checks import Check
from . import units
from .row_layout import tiling_problems

#: Ranks and rows are numbers of 64 bits; what is not was never registered by engram_info.
_LIMIT = 1 << 64


class TilesError(ValueError):
    """Something that engram_info does not return; the text is the message for the user."""


@dataclass(frozen=True)
class Rows:
    """What one node holds. ranges: first row and the row after the last, by layer. tables: rows of each whole table, by layer."""

    rule: str
    tensor_parallel: int
    revision: str
    ranges: Mapping[str, tuple[int, int]]
    tables: Mapping[str, int]


def registered(name: str, result: Any) -> Mapping[str, Any]:
    """The result of engram_info of this node, empty where the task did not run. Raises TilesError."""
    found: Mapping[str, Any] = _mapping(result or {}, f"the result of {name}")
    checks = found.get("checks") or ()
    if not isinstance(checks, (list, tuple)) or any(
        not isinstance(item, Mapping) or "node" not in item for item in checks
    ):
        raise TilesError(
            f"checks of {name} is {units.shown(checks)}, expected a list of checks as gb10.ring.engram_info returns it"
        )
    return found


def parse(name: str, state: Any) -> Rows | None:
    """What engram_info returned as ``engram`` for this node; None where it returned nothing. Raises TilesError."""
    if not state:
        return None
    found = _mapping(state, f"engram of {name}")
    missing = [key for key in ("rule", "tensor_parallel", "revision", "ranges", "tables") if key not in found]
    if missing:
        raise TilesError(f"engram of {name} has no {', '.join(missing)}, which gb10.ring.engram_info returns")
    ranges = _mapping(found["ranges"], f"engram.ranges of {name}")
    tables = _mapping(found["tables"], f"engram.tables of {name}")
    return Rows(
        rule=str(found["rule"]),
        tensor_parallel=_number(found["tensor_parallel"], f"engram.tensor_parallel of {name}"),
        revision=str(found["revision"]),
        ranges={str(layer): _range(rows, f"engram.ranges[{layer}] of {name}") for layer, rows in ranges.items()},
        tables={str(layer): _number(rows, f"engram.tables[{layer}] of {name}") for layer, rows in tables.items()},
    )


def _mapping(value: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TilesError(f"{what} is {units.shown(value)}, expected a mapping as gb10.ring.engram_info returns it")
    return value


def _range(value: Any, what: str) -> tuple[int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise TilesError(f"{what} is {units.shown(value)}, expected the first row and the row after the last")
    return _number(value[0], what), _number(value[1], what)


def _number(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -_LIMIT < value < _LIMIT:
        raise TilesError(f"{what} is {units.shown(value)}, expected a whole number")
    return value


def tiles_check(found: Mapping[str, Any], node: str) -> Check:
    """Whether the rows of all nodes, together, are every row of every table once. found: ``engram`` by node. node: carries the check.

    Raises TilesError.
    """
    states = {name: parse(name, state) for name, state in found.items()}
    known = {name: state for name, state in states.items() if state}
    problems = [f"nothing is known of {name}" for name, state in states.items() if not state] + _differences(known)
    tables = next((state.tables for state in known.values() if state.tables), {})
    if not problems:
        problems += _count_problems(known) + tiling_problems([state.ranges for state in known.values()], tables)
    if known and not tables:
        problems.append("the sizes of the tables are not known of any node")
    return Check(
        id="checkpoint.engram_tiles",
        node=node,
        ok=not problems,
        found="; ".join(problems) or f"{_nodes(len(known))} hold every row once ({_whole(tables)})",
        expected="each row of each Engram table on one node",
        cure="stage the checkpoint on all nodes with the same checkpoint_engram_rule (site.yml --tags checkpoint), without --limit",
    )


def _differences(known: Mapping[str, Rows]) -> list[str]:
    """Where nodes were not cut by the same rule, for as many ranks, from the same tables. One that knows of no table says nothing of them."""
    said = {
        "rule": {name: state.rule for name, state in known.items()},
        "tensor_parallel": {name: str(state.tensor_parallel) for name, state in known.items()},
        "revision": {name: state.revision for name, state in known.items()},
        "the size of the tables": {name: _whole(state.tables) for name, state in known.items() if state.tables},
    }
    return [
        f"{what} differs: " + ", ".join(f"{name} {value}" for name, value in values.items())
        for what, values in said.items()
        if len(set(values.values())) > 1
    ]


def _count_problems(known: Mapping[str, Rows]) -> list[str]:
    tp = next((state.tensor_parallel for state in known.values()), len(known))
    return [] if tp == len(known) else [f"rows were cut for {tp} ranks, and these are {_nodes(len(known))}"]


def _whole(tables: Mapping[str, int]) -> str:
    return ", ".join(f"layer {layer} has {rows} rows" for layer, rows in sorted(tables.items()))


def untold_tiles_check(left_out: Sequence[str], node: str) -> Check:
    """The same where nodes of the group were not looked at. node: carries the check."""
    return Check(
        id="checkpoint.engram_tiles",
        node=node,
        ok=False,
        found=f"not judged without {', '.join(left_out)}, outside of this run",
        expected="each row of each Engram table on one node",
        cure="run it on all nodes, without --limit, to see whether their rows are every row once",
        severity="info",
    )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
