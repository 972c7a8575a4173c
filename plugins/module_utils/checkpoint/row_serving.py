# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether bringing Engram rows would change those that a running engine of this node reads.

Its unit names a revision and is started again by a boot or the watchdog, whoever changed the rows meanwhile: it would serve that revision
with rows of another one, or find the rows of another rank and read holes as zeros.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..host import HostError, read_text, run
from ..report.checks import Check
from . import row_probe, row_survey, units
from .layout import Layout
from .row_decide import RowStaging
from .row_place import RowPlace
from .row_probe import NOT_OURS, Serving, digests, of_record, rows_string, same_rows
from .standing import ENGINE_RECORD, served

_UNIT = "gb10-ring-engine.service"
_RUNS = ("active", "activating", "reloading")


def check(serving: Serving, staging: RowStaging, directory: Path, node: str) -> Check | None:
    """checkpoint.engram_served where rows under the engine would change; None where they do not. directory: what holds the slices."""
    moving = [step for step in staging.steps if step.way != "keep"]
    if not (moving and _reads(serving, staging.plan.placement, staging.revision, directory)) or _stays(
        serving, staging
    ):
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


def _reads(serving: Serving, placement: str, revision: str, directory: Path) -> bool:
    """Whether the engine reads the files that are written."""
    if not serving.revision:
        return False
    if placement == "shard":
        return serving.revision == revision
    return bool(serving.directory) and Path(serving.directory) == directory


def _stays(serving: Serving, staging: RowStaging) -> bool:
    """Whether it finds the rows of its rank and revision afterwards, as when damaged ones are brought anew."""
    plan = staging.plan
    layout = (plan.rule, plan.tp, plan.rank)
    mine = same_rows(serving.rows, rows_string(plan.layers)) if serving.rows else serving.layout == layout
    return mine and all(serving.digests.get(step.target.path) == step.file.digest for step in staging.steps)


# --- the machine ------------------------------------------------------------------------------------------------------


def look(layout: Layout, engine_record: str = ENGINE_RECORD) -> Serving:
    """From the record that the engine's unit was rendered with, where that unit runs."""
    revision = served(layout, engine_record)
    if not revision or not _runs():
        return Serving()
    record = json.loads(read_text(engine_record) or "{}")
    try:
        return of_record(record, digests(layout.base, revision))
    except NOT_OURS:
        return Serving(revision, str(record["model"].get("engram") or ""))  # of which rows nobody knows


def in_use(place: RowPlace, placement: str, revision: str, paths: Iterable[str]) -> frozenset[str]:
    """Which of these files a process has open or mapped, or an engine reads that runs or is on its way up and may open them any moment."""
    found = {path: stat for path in paths for stat in [row_survey.stat_of(place.target(path))] if stat}
    if found and _reads(look(place.layout), placement, revision, place.directory):
        return frozenset(found)
    return row_survey.busy(found)


def unsafe_unit(record: Mapping[str, Any]) -> str:
    """Why an engine that is started from the unit of this engine.json would read other rows than its own, or an empty text.

    Stricter than the unit itself, which starts beside a record that is not ours: to go back there, its rows have to be known.
    """
    try:
        base, revision = Path(record["model"]["root"]), str(record["model"]["revision"])
    except (KeyError, TypeError):
        return ""  # it serves no revision of ours
    layout = Layout(str(base.parent), base.name)
    directory = Path(record["model"].get("engram") or layout.revision(revision))
    _state, problem = row_survey.read_state(RowPlace(layout, directory))
    return problem or row_probe.problem(record)


def _runs() -> bool:
    """Whether the engine serves or is on its way up. Where systemd does not answer nothing of it was started."""
    try:
        return run(["systemctl", "is-active", _UNIT], timeout=20.0, check=False).stdout.strip() in _RUNS
    except HostError:
        return False
