# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks on the Engram rows of a node, from what was seen. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..report.checks import Check
from . import spans, units
from .objects import INDEX
from .receipt import Stat
from .row_layout import table_names
from .row_plan import Placement
from .row_probe import rows_string
from .row_state import NAME, Held, RowState

_RUN = "run the playbook that stages the checkpoint (site.yml or restage.yml)"
_CURE = f"{_RUN}: only rows that are missing or wrong are fetched"
_CURE_READ = f"{_RUN} with -e checkpoint_verify=full: only rows that are wrong are fetched"
_CURE_ANEW = f"{_RUN}: all rows are fetched"
_CURE_WHOLE = f"{_RUN}: only shards that are missing or wrong are fetched"
_SLACK = 1 << 20


@dataclass(frozen=True)
class Wanted:
    """What the node should hold. layers: the rank's rows of each table, by layer. tables: rows of each whole table.

    digests: of the revision's files, by path, as its receipt has them; empty where there is none. places: the file of each tensor of the
    tables, by the tensor's name; empty where no index says so.
    """

    node: str
    revision: str
    placement: Placement
    rule: str
    tp: int
    rank: int
    layers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """directory: where the engine reads rows. found: files there by path. damaged: what was read again and is not as recorded.

    named: whether a person named the directory. problem: why nothing can be said. broken: what is wrong with whole shards, file by file.
    unused: a directory of slices that no engine is told of, and the bytes that it takes.
    """

    directory: Path
    state: RowState | None = None
    found: Mapping[str, Stat] = field(default_factory=dict)
    block: int = 4096
    damaged: Mapping[str, str] = field(default_factory=dict)
    read_again: bool = False
    named: bool = False
    problem: str = ""
    broken: Sequence[str] = ()
    unused: tuple[str, int] | None = None


def checks(wanted: Wanted, seen: Seen) -> list[Check]:
    """checkpoint.engram, and checkpoint.engram_unused where there is something to say."""
    found = [_rows(wanted, seen)]
    if seen.unused:
        path, size = seen.unused
        found.append(
            Check(
                id="checkpoint.engram_unused",
                node=wanted.node,
                ok=False,
                found=f"{path} holds {units.human(size)} of slices, and the placement is {wanted.placement}",
                expected="no slices that no engine reads",
                cure="prune.yml with checkpoint_prune_engram: true deletes them",
                severity="warning",
            )
        )
    return found


def _rows(wanted: Wanted, seen: Seen) -> Check:
    problems = [seen.problem] if seen.problem else _problems(wanted, seen)
    rows = rows_string(wanted.layers)
    how = "digests read again" if seen.read_again else "as they were verified"
    there = "whole shards" if wanted.placement == "full" else f"slices of {units.human(allocated(seen))}, {how}"
    return Check(
        id="checkpoint.engram",
        node=wanted.node,
        ok=not problems,
        found="; ".join(problems) or f"rows {rows} by rule {wanted.rule}, {there}",
        expected=f"rows {rows} for rank {wanted.rank} of {wanted.tp} by rule {wanted.rule} in {seen.directory}",
        cure=_cure(wanted, seen),
    )


def _cure(wanted: Wanted, seen: Seen) -> str:
    if wanted.placement == "full":
        return _CURE_WHOLE
    state = seen.state
    if state:
        cure = _CURE_READ if seen.read_again and seen.damaged else _CURE
        if seen.named and _unnamed(wanted, state):
            return f"delete the slices in {seen.directory} that {NAME} does not name, and {cure}"
        return cure
    if seen.problem:
        return _CURE
    if seen.named:
        return f"delete the slices in {seen.directory} too, which may be anybody's without {NAME}, and {_CURE_ANEW}"
    return _CURE_ANEW


def _problems(wanted: Wanted, seen: Seen) -> list[str]:
    if wanted.placement == "full":
        return list(seen.broken)
    state = seen.state
    if state is None:
        return [f"there is no {NAME} in {seen.directory}"]
    pairs = {
        "placement": (state.placement, wanted.placement),
        "rule": (state.rule, wanted.rule),
        "tp_size": (state.tp_size, wanted.tp),
        "rank": (state.rank, wanted.rank),
        "revision": (_as_wanted(wanted, state), wanted.revision),
        "rows": (rows_string(state.layers), rows_string(wanted.layers)),
    }
    found = [
        f"{NAME} says {name} {units.printable(str(has), 200)}, expected {want}"
        for name, (has, want) in pairs.items()
        if has != want
    ]
    found += [_files_problem(wanted, state), _digests_problem(wanted, state)]
    found += [text for file in state.files for text in [_file_problem(file, seen)] if text]
    found += [
        f"{path} is a slice of another object than revision {wanted.revision} has" for path in _others(wanted, state)
    ]
    if INDEX in state.digests and INDEX not in seen.found:
        found.append(f"{INDEX} is missing")
    found += [f"{units.printable(key, 200)}: {what}" for key, what in sorted(seen.damaged.items())]
    return [text for text in found if text]


def _unnamed(wanted: Wanted, state: RowState) -> bool:
    """Whether a file with rows may lie there that the record does not name."""
    return not state.files or not set(wanted.places.values()) <= {file.path for file in state.files}


def _files_problem(wanted: Wanted, state: RowState) -> str:
    """The record names the files that the tables are in: of one that it does not name nothing is known."""
    named, expected = sorted(file.path for file in state.files), sorted(set(wanted.places.values()))
    if named and named == (expected or sorted(set(named))):
        return ""
    has = units.printable(", ".join(named), 200) or "none"
    return f"{NAME} names the files {has}, expected {', '.join(expected) or 'each file with rows once'}"


def _digests_problem(wanted: Wanted, state: RowState) -> str:
    """Of the header of each file and of the rows, without which nothing can be read again. Other rows are told by their ranges."""
    if rows_string(state.layers) != rows_string(wanted.layers):
        return ""
    paths = [file.path for file in state.files]
    known = {key for key, digest in state.digests.items() if digest}
    lacking = [f"{path}:header" for path in paths if f"{path}:header" not in known]
    for layer, (low, high) in wanted.layers.items():
        for name in table_names(layer):
            places = [wanted.places[name]] if name in wanted.places else paths
            keys = [f"{path}:{name}[{low}:{high}]" for path in places]
            if paths and known.isdisjoint(keys):
                lacking.append(keys[0] if len(keys) == 1 else f"{name}[{low}:{high}]")
    return f"{NAME} has no digest of {units.printable(', '.join(lacking), 400)}" if lacking else ""


def _as_wanted(wanted: Wanted, state: RowState) -> str:
    """The wanted revision where its shards are those that the rows were taken from, else the one that the record names.

    A directory is that of all revisions, and names the one that was staged last.
    """
    same = [wanted.digests.get(file.path) == file.digest for file in state.files]
    if wanted.placement == "directory" and same and all(same):
        return wanted.revision
    return state.revision


def _others(wanted: Wanted, state: RowState) -> list[str]:
    """Slices in a directory of all revisions that are not of the wanted one's shards."""
    known = wanted.digests if wanted.placement == "directory" else {}
    return [file.path for file in state.files if known.get(file.path, file.digest) != file.digest]


def _file_problem(file: Held, seen: Seen) -> str:
    stat = seen.found.get(file.path)
    if stat is None:
        return f"{file.path} is missing"
    if stat.size != file.size:
        return f"{file.path} has {stat.size} bytes instead of {file.size}"
    if stat.mtime_ns != file.mtime_ns:
        return f"{file.path} was modified since it was verified"
    expected = spans.blocks(file.spans, seen.block)
    if stat.allocated < expected:
        return f"{file.path} has {stat.allocated} bytes allocated, its rows take {expected}: some of them are holes"
    if stat.allocated > expected + _SLACK:
        return f"{file.path} has {stat.allocated} bytes allocated, its rows take {expected}"
    return ""


def allocated(seen: Seen) -> int:
    names = {file.path for file in seen.state.files} if seen.state else set()
    return sum(stat.allocated for path, stat in seen.found.items() if path in names)


def state_of(wanted: Wanted, seen: Seen, sound: bool) -> dict[str, Any]:
    """What there is, for the check over all nodes. verified_rows: 0 where something is wrong."""
    state = seen.state
    held = wanted.placement == "full" or state is None
    layers = wanted.layers if held or state is None else state.layers
    return {
        "path": str(seen.directory),
        "placement": wanted.placement,
        "rule": wanted.rule if held or state is None else state.rule,
        "tensor_parallel": wanted.tp if held or state is None else state.tp_size,
        "rank": wanted.rank if held or state is None else state.rank,
        "revision": wanted.revision if held or state is None else _as_wanted(wanted, state),
        "ranges": {layer: list(rows) for layer, rows in layers.items()} if sound or not held else {},
        "tables": dict(wanted.tables),
        "allocated": allocated(seen),
        "verified_rows": sum(high - low for low, high in layers.values()) if sound else 0,
        "created": state.created if state else "",
    }
