# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether bringing Engram rows would change those that a running engine of this node reads.

Its unit names a revision and is started again by a boot or the watchdog, whoever changed the rows meanwhile: it would serve that revision
with rows of another one, or find the rows of another rank and read holes as zeros.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..host import HostError, read_text, run
from ..report.checks import Check
from . import row_survey, units
from .layout import Layout
from .manifest import ManifestError, parse
from .receipt import ReceiptError
from .row_decide import RowStaging
from .row_layout import rows_string
from .row_place import RowPlace, place_of
from .row_state import RowState
from .standing import ENGINE_RECORD, served
from .survey import read_receipt

_UNIT = "gb10-ring-engine.service"
_RUNS = ("active", "activating", "reloading")


@dataclass(frozen=True)
class Serving:
    """What the running engine of this node reads. revision: of this checkpoint; empty where none runs, or one of another checkpoint.

    directory: of its rows, empty where they lie in the revision. rows: its ranges, ``LAYER:FIRST:AFTER``, where the unit names them; else they
    are those of rule, tp and rank. digests: of the revision's files by path, as far as they are known.
    """

    revision: str = ""
    directory: str = ""
    rule: str = ""
    tp: int = 0
    rank: int = 0
    rows: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)


def check(serving: Serving, staging: RowStaging, directory: Path, node: str) -> Check | None:
    """checkpoint.engram_served where rows under the engine would change; None where they do not. directory: what holds the slices."""
    moving = [step for step in staging.steps if step.way != "keep"]
    if not (moving and _reads(serving, staging, directory)) or _stays(serving, staging):
        return None
    return Check(
        id="checkpoint.engram_served",
        node=node,
        ok=False,
        found=f"the engine serves revision {serving.revision}, and {units.files(len(moving))} of Engram rows in {directory} would become others",
        expected="rows that a running engine reads stay as they are",
        cure="stop the group first (site.yml --tags engine with engine_state: stopped), or run restage.yml with checkpoint_in_place: true: "
        "the group is stopped first, and there is no way back but staging the old revision again",
    )


def _reads(serving: Serving, staging: RowStaging, directory: Path) -> bool:
    """Whether the engine reads the files that are written."""
    if not serving.revision:
        return False
    if staging.plan.placement == "shard":
        return serving.revision == staging.revision
    return bool(serving.directory) and Path(serving.directory) == directory


def _stays(serving: Serving, staging: RowStaging) -> bool:
    """Whether it finds the rows of its rank and revision afterwards, as when damaged ones are brought anew."""
    plan = staging.plan
    mine = (
        rows_string(plan.layers) == serving.rows
        if serving.rows
        else _layout(serving) == (plan.rule, plan.tp, plan.rank)
    )
    return mine and all(serving.digests.get(step.target.path) == step.file.digest for step in staging.steps)


def _layout(serving: Serving) -> tuple[str, int, int]:
    return serving.rule, serving.tp, serving.rank


def unsafe(serving: Serving, state: RowState | None, directory: Path) -> str:
    """Why an engine that is started from this unit would read rows of another revision or rank, or an empty text. state: of that directory."""
    if state is None:
        return ""  # it finds no rows there, and takes those of the whole shards
    known = serving.digests
    wrong = [file.path for file in state.files if file.path in known and file.digest != known[file.path]]
    if wrong:
        return (
            f"{directory} holds Engram rows of {', '.join(wrong)} as revision {state.revision} has them, not as {serving.revision} does, "
            "which it serves"
        )
    ranges = rows_string(state.layers)
    mine = ranges == serving.rows if serving.rows else _layout(serving) == (state.rule, state.tp_size, state.rank)
    return "" if mine else f"{directory} holds the Engram rows {ranges}, which are not those of its rank"


# --- the machine ------------------------------------------------------------------------------------------------------


def look(layout: Layout, engine_record: str = ENGINE_RECORD) -> Serving:
    """From the record that the engine's unit was rendered with, where that unit runs."""
    revision = served(layout, engine_record)
    if not revision or not _runs():
        return Serving()
    return of_record(json.loads(read_text(engine_record) or "{}"), digests(layout, revision))


def of_record(record: Mapping[str, Any], known: Mapping[str, str]) -> Serving:
    """record: engine.json of a rank. known: digests of its revision's files."""
    model, env = record["model"], record.get("env") or {}
    return Serving(
        revision=str(model["revision"]),
        directory=str(model.get("engram") or ""),
        rule=str(record.get("engine") or ""),
        tp=int(record.get("size") or 0),
        rank=int(record.get("rank") or 0),
        rows=str(env.get("SPARK_ENGRAM_ROWS") or ""),
        digests=known,
    )


def unsafe_unit(record: Mapping[str, Any]) -> str:
    """The same of a unit that was rendered earlier, from its engine.json and what is on the node now."""
    try:
        base = Path(record["model"]["root"])
        layout, revision = Layout(str(base.parent), base.name), str(record["model"]["revision"])
    except (KeyError, TypeError):
        return ""  # it serves no revision of ours
    serving = of_record(record, digests(layout, revision))
    directory = Path(serving.directory) if serving.directory else layout.revision(revision)
    state, problem = row_survey.read_state(RowPlace(layout, directory))
    return problem or unsafe(serving, state, directory)


def _runs() -> bool:
    """Whether the engine serves or is on its way up. Where systemd does not answer nothing of it was started."""
    try:
        return run(["systemctl", "is-active", _UNIT], timeout=20.0, check=False).stdout.strip() in _RUNS
    except HostError:
        return False


def digests(layout: Layout, revision: str) -> dict[str, str]:
    """Of the whole files of a revision, by path: also of shards that are slices there, which its receipt does not name."""
    found: dict[str, str] = {}
    try:
        planned = parse(json.loads(read_text(layout.manifest(revision)) or "{}"))
        found |= {file.path: file.digest for file in planned.files}
    except (ManifestError, ValueError, HostError):
        pass  # what the revision itself says is enough, or nothing is known
    state, _problem = row_survey.read_state(place_of(layout, revision, "shard"))
    found |= {file.path: file.digest for file in state.files} if state else {}
    try:
        receipt = read_receipt(layout, revision)
    except ReceiptError:
        receipt = None
    return found | ({entry.path: entry.digest for entry in receipt.files} if receipt else {})
