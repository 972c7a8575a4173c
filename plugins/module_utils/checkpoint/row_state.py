# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What engram-local.json says of the rows on a node, and what a new plan keeps, fetches and gives up of them.

Readers of the file: vLLM's patched engram.py and SGLang's overlay look at ``layers`` only, the launcher of tsw2k's slices also at ``rank``,
``tp_size`` and ``revision``. The keys beyond those are ours; all three ignore what they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from . import units
from .manifest import path_problem
from .receipt import Stat
from .row_plan import PLACEMENTS, Placement, RowPlan, Target, shown, whole_number
from .row_probe import LOCAL
from .spans import Span, common, merged, without

#: The file that says which rows are there. It is written last and removed first.
NAME = LOCAL
#: Bytes that a file system may take for a file beside its data: maps of extents, a last block that was made larger.
_ALLOCATION_SLACK = 1 << 20


class RowStateError(ValueError):
    """An engram-local.json that cannot be used; the text names it and is the message for the user."""


@dataclass(frozen=True)
class Held:
    """A sparse file as it was when its rows had been verified.

    digest: of the whole object that it is a slice of, ``algorithm:hex`` from the checkpoint's plan. header: sha256 of its header bytes.
    spans: its bytes that are not a hole. mtime_ns: 0 when it is not known.
    """

    path: str
    size: int
    digest: str
    header: str
    spans: tuple[Span, ...]
    mtime_ns: int = 0


@dataclass(frozen=True)
class RowState:
    """layers: [lo, hi) by layer number as text. created: UTC, ISO 8601.

    digests: ``algorithm:hex`` of each extent, by Extent.key; of the index as planned, by its path, and of its bytes, by content_key.
    """

    source: str
    layers: Mapping[str, tuple[int, int]]
    rank: int
    tp_size: int
    rule: str
    revision: str
    placement: Placement
    created: str
    files: tuple[Held, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    note: str = "sparse copy: only these rows exist; gb10.ring"


@dataclass(frozen=True)
class Work:
    """What one target needs. keep: verified bytes that stay. fetch: bytes to bring. punch: bytes to give back to the file system.

    fresh: the file is made anew, nothing of what lies there under its name stays. why: one clause.
    """

    path: str
    size: int
    keep: tuple[Span, ...] = ()
    fetch: tuple[Span, ...] = ()
    punch: tuple[Span, ...] = ()
    fresh: bool = False
    why: str = ""

    @property
    def changed(self) -> bool:
        return self.fresh or bool(self.fetch or self.punch)


def content_key(path: str) -> str:
    """How engram-local.json names the SHA-256 of a file that is copied whole: what was planned may be no checksum, or one of awscrt's."""
    return f"{path}:content"


def part_of(state: RowState, path: str) -> RowState:
    """What it says of this file alone."""
    files = tuple(file for file in state.files if file.path == path)
    digests = {key: digest for key, digest in state.digests.items() if key == path or key.startswith(f"{path}:")}
    return replace(state, files=files, digests=digests)


def held(target: Target, digest: str, header: str, mtime_ns: int) -> Held:
    """What to record of a target whose bytes have been verified."""
    return Held(target.path, target.size, digest, header, target.spans, mtime_ns)


def work(
    plan: RowPlan,
    state: RowState | None,
    found: Mapping[str, Stat],
    digests: Mapping[str, str],
    shared: Mapping[str, tuple[Span, ...]] | None = None,
    *,
    revision: str = "",
) -> tuple[Work, ...]:
    """What each target needs. found: files in the target's directory. digests: of the whole objects, by path, as planned.

    Rows are kept only where the node's own record says that they are verified bytes of an object with the same digest, and the file
    is as it was then. shared: bytes that an object with another digest has in common with the planned one, by path. revision: the
    planned one. An object that has only an ETag is the same within its revision alone, as it is for whole files.
    """
    known = {path: digest for path, digest in digests.items() if _tells(digest, state, revision)}
    recorded = {file.path: file for file in state.files} if state else {}
    return tuple(
        _work(
            target,
            recorded.get(target.path),
            found.get(target.path),
            known.get(target.path, ""),
            (shared or {}).get(target.path, ()),
        )
        for target in plan.targets
    )


def _tells(digest: str, state: RowState | None, revision: str) -> bool:
    """Whether an equal digest in this record means equal bytes."""
    return not digest.startswith("etag:") or (state is not None and state.revision == revision)


def _work(target: Target, before: Held | None, stat: Stat | None, digest: str, shared: tuple[Span, ...]) -> Work:
    there = _there(before, digest, shared) if before else ()
    why = _why_fresh(target, before, stat, there)
    if before is None or why:
        return Work(target.path, target.size, fetch=target.spans, fresh=True, why=why)
    fetch, punch = without(target.spans, there), without(before.spans, target.spans)
    moved = "other rows than before" if fetch or punch else ""
    return Work(target.path, target.size, common(target.spans, there), fetch, punch, why=moved)


def _there(before: Held, digest: str, shared: tuple[Span, ...]) -> tuple[Span, ...]:
    """The verified bytes of a slice that are those of the planned object too."""
    same = before.digest == digest and bool(digest)
    return before.spans if same else common(before.spans, shared)


def _why_fresh(target: Target, before: Held | None, stat: Stat | None, there: tuple[Span, ...]) -> str:
    """Why nothing of what is there can be kept, or an empty text."""
    if stat is None:
        return "missing"
    if before is None:
        return f"{NAME} does not name it"
    if not there or before.size != target.size:
        return "of another object"
    if stat.size != before.size:
        return f"{stat.size} bytes instead of {before.size}"
    return "modified since it was verified" if stat.mtime_ns != before.mtime_ns else ""


def differs(plan: RowPlan, state: RowState | None, revision: str) -> str:
    """How the record differs from the plan, in a few words; an empty text when it says the same."""
    if state is None:
        return f"no {NAME}"
    pairs = {
        "placement": (state.placement, plan.placement),
        "rule": (state.rule, plan.rule),
        "tp": (state.tp_size, plan.tp),
        "rank": (state.rank, plan.rank),
        "revision": (state.revision, revision),
        "rows": (dict(state.layers), dict(plan.layers)),
        "files": (sorted(file.path for file in state.files), sorted(target.path for target in plan.targets)),
    }
    found = [f"{name} {old} -> {new}" for name, (old, new) in pairs.items() if old != new]
    return ", ".join(found) or _digests_differ(plan, state)


def _digests_differ(plan: RowPlan, state: RowState) -> str:
    """The same of the digests where all else is as planned."""
    wanted = {extent.key for target in plan.targets for extent in target.extents}
    known = {key for key, digest in state.digests.items() if digest}
    lacking = sorted(wanted - known)
    others = sorted(key for key in state.digests if key not in wanted and key.startswith(_starts(plan)))
    found = [f"no digest of {units.printable(', '.join(lacking), 200)}"] if lacking else []
    found += [f"a digest of {units.printable(', '.join(others), 200)}, which is none of its rows"] if others else []
    return ", ".join(found)


def _starts(plan: RowPlan) -> tuple[str, ...]:
    return tuple(f"{target.path}:" for target in plan.targets)


def stale(plan: RowPlan, state: RowState | None) -> tuple[str, ...]:
    """Sparse files of ours that the plan has no use for."""
    wanted = plan.by_path()
    return tuple(file.path for file in state.files if file.path not in wanted) if state else ()


def allocation_problem(target: Target, allocated: int, block: int = 4096) -> str:
    """Why so many allocated bytes cannot be those of a file with just these rows, or an empty text."""
    expected = target.allocated(block)
    if allocated < expected:
        return f"{target.path}: {allocated} bytes allocated, its rows take {expected}: some of them are holes"
    if allocated > expected + _ALLOCATION_SLACK:
        return (
            f"{target.path}: {allocated} bytes allocated, its rows take {expected}: rows of other ranks lie in it too"
        )
    return ""


# --- the file -----------------------------------------------------------------------------------------------------


def render(state: RowState) -> str:
    """The text of engram-local.json: the keys of the known readers first, in the shape in which they were first written."""
    values: dict[str, Any] = {
        "source": state.source,
        "layers": {layer: list(rows) for layer, rows in state.layers.items()},
        "created": state.created,
        "note": state.note,
        "rank": state.rank,
        "tp_size": state.tp_size,
        "rule": state.rule,
        "revision": state.revision,
        "placement": state.placement,
        "digests": dict(state.digests),
        "files": [
            {
                "path": file.path,
                "size": file.size,
                "digest": file.digest,
                "header": file.header,
                "spans": [list(span) for span in file.spans],
                "mtime_ns": file.mtime_ns,
            }
            for file in state.files
        ],
    }
    return json.dumps(values, indent=1)


def parse(text: str, where: str) -> RowState:
    """The state in this text. where: its path, for the error. Raises RowStateError."""
    try:
        values = json.loads(text)
        state = RowState(
            source=str(values["source"]),
            layers={str(layer): _pair(rows) for layer, rows in values["layers"].items()},
            rank=whole_number(values["rank"]),
            tp_size=whole_number(values["tp_size"]),
            rule=str(values["rule"]),
            revision=str(values["revision"]),
            placement=cast(Placement, str(values["placement"])),
            created=str(values["created"]),
            files=tuple(_held(item) for item in values["files"]),
            digests={str(key): str(digest) for key, digest in values["digests"].items()},
            note=str(values["note"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        said = units.printable(str(error), 80)
        raise RowStateError(
            f"{where} was not written by gb10.ring ({type(error).__name__}: {said}); what lies beside it was never verified: "
            "move that directory away, or name another one"
        ) from None
    problems = _state_problems(state)
    if problems:
        raise RowStateError(
            f"{where}: {units.printable('; '.join(problems), 500)}; delete it, in a directory that you named the slices beside it too, and run again, which "
            "fetches all rows"
        )
    return state


def _pair(value: Any) -> tuple[int, int]:
    low, high = value
    return whole_number(low), whole_number(high)


def _held(item: Mapping[str, Any]) -> Held:
    return Held(
        path=str(item["path"]),
        size=whole_number(item["size"]),
        digest=str(item["digest"]),
        header=str(item["header"]),
        spans=tuple(_pair(span) for span in item["spans"]),
        mtime_ns=whole_number(item["mtime_ns"]),
    )


def _state_problems(state: RowState) -> list[str]:
    problems = []
    if state.placement not in PLACEMENTS:
        problems.append(f"placement {shown(state.placement)} is none of {', '.join(PLACEMENTS)}")
    for file in state.files:
        wrong = path_problem(file.path)
        if wrong:
            problems.append(f"the path {shown(file.path)} {wrong}")
        if file.spans != merged(file.spans) or any(low < 0 or high > file.size for low, high in file.spans):
            problems.append(f"the spans of {units.printable(file.path, 80)} are not in order or leave the file")
    return problems
