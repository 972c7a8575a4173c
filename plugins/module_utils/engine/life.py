# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting and stopping one rank: the supervisor hears of it first, and a stop is looked at."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..host import HostError
from . import group_intent, machine, traces_look
from .service import UnitState

_HEARD_S = 5.0  # the supervisor looks twice a second
_LAG_S = 3.0
_POLL_S = 0.1
STALE_S = 10.0


class Done(NamedTuple):
    """unit: as it is then. removed: shared memory. note: what a person should know, empty for nothing."""

    unit: UnitState
    removed: list[str]
    note: str = ""


def apply(options: Mapping[str, Any], before: UnitState, acts: bool) -> Done:
    """Bring the rank to options["state"]. Raises HostError.

    acts: whether the unit is in another state. A supervisor that keeps a rank for failed is told of the stop in any case.
    """
    wanted, unit = options["state"], options["unit"]
    if wanted == "stopped":
        return _stop(options, before, acts)
    if not acts or failed_elsewhere(options["run_root"]):
        return Done(before, [])
    _tell(options["run_root"], "started", options["reason"])
    traces_look.keep_baseline(Path(options["proc_root"]), options["run_root"])
    # A rank that ends as it starts is no error here: the report on all ranks says why.
    return Done(machine.change_state(unit, wanted, options["timeout_s"], may_end=True), [])


def _stop(options: Mapping[str, Any], before: UnitState, acts: bool) -> Done:
    unit, run_root, proc = options["unit"], options["run_root"], Path(options["proc_root"])
    since = machine.began(unit)
    if acts or Path(run_root, group_intent.FOLDER).exists():  # where nothing was ever started there is nobody to tell
        _tell(run_root, "stopped", options["reason"])
    after = machine.change_state(unit, "stopped", options["timeout_s"]) if acts else before
    removed = traces_look.remove_segments(proc, Path(options["shm_root"]), since)
    spec = traces_look.record(options["etc_root"])
    problems, note = traces_look.settle(options, spec, acts)
    if problems:
        raise HostError(f"{unit} is stopped, but: {'; '.join(problems)}")
    _until_heard(run_root)
    return Done(after, removed, note)


def ranks(run_root: str) -> dict[str, dict[str, Any]]:
    """The group as this node's supervisor knows it; empty when none runs."""
    status = group_intent.status(run_root)
    fresh = time.monotonic() - status.get("at", float("-inf")) < STALE_S
    return dict(status.get("ranks") or {}) if fresh else {}


def own_rank(run_root: str) -> dict[str, Any]:
    """This node's rank as its supervisor knows it; empty when none runs."""
    return ranks(run_root).get(str(group_intent.status(run_root).get("node")), {})


def failed_elsewhere(run_root: str) -> bool:
    """Whether a rank has failed since the group was stopped: this one would wait for it. What others said before may lag."""
    limit = time.monotonic() + _LAG_S
    while any(rank.get("state") == "failed" for rank in ranks(run_root).values()):
        if time.monotonic() > limit:
            return True
        time.sleep(_POLL_S)
    return False


def _tell(run_root: str, want: str, reason: str) -> None:
    try:
        group_intent.write(run_root, want, "role", reason)
    except OSError as error:
        raise HostError(f"cannot write {group_intent.path(run_root, 'intent')}: {error.strerror}") from error


def _until_heard(run_root: str) -> None:
    """Until the supervisor knows: what it tells the others of an earlier failure would stop a start that comes too soon."""
    limit = time.monotonic() + _HEARD_S
    while time.monotonic() < limit:
        if own_rank(run_root).get("state", "absent") in ("stopped", "absent"):
            return
        time.sleep(_POLL_S)
