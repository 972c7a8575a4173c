# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting and stopping one rank: the supervisor hears of it first, and a stop is looked at."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..host import HostError
from . import group_intent, machine, traces_look
from .service import UnitState

_HEARD_S = 5.0  # the supervisor looks twice a second
_POLL_S = 0.1
STALE_S = 10.0


def apply(options: Mapping[str, Any], before: UnitState, acts: bool) -> tuple[UnitState, list[str]]:
    """Bring the rank to options["state"]; its unit then, and shared memory that was removed. Raises HostError.

    acts: whether the unit is in another state. A supervisor that keeps a rank for failed is told of the stop in any case.
    """
    wanted, unit, run_root = options["state"], options["unit"], options["run_root"]
    proc = Path(options["proc_root"])
    if wanted != "stopped":
        if acts:
            _tell(run_root, "started", options["reason"])
            traces_look.keep_baseline(proc, run_root)
        return (machine.change_state(unit, wanted, options["timeout_s"]) if acts else before), []
    since = machine.began(unit)
    _tell(run_root, "stopped", options["reason"])
    after = machine.change_state(unit, wanted, options["timeout_s"]) if acts else before
    removed = traces_look.remove_segments(proc, Path(options["shm_root"]), since)
    spec = traces_look.record(options["etc_root"])
    problems = traces_look.settle(proc, run_root, spec, unit, options["memory_wait_s"])
    if problems:
        raise HostError(f"{unit} is stopped, but: {'; '.join(problems)}")
    _until_heard(run_root)
    return after, removed


def _tell(run_root: str, want: str, reason: str) -> None:
    try:
        group_intent.write(run_root, want, "role", reason)
    except OSError as error:
        raise HostError(f"cannot write {group_intent.path(run_root, 'intent')}: {error.strerror}") from error


def _until_heard(run_root: str) -> None:
    """Until the supervisor knows: what it tells the others of an earlier failure would stop a start that comes too soon."""
    limit = time.monotonic() + _HEARD_S
    while time.monotonic() < limit:
        status = group_intent.status(run_root)
        if time.monotonic() - status.get("at", 0.0) > STALE_S:
            return  # none runs here
        rank = (status.get("ranks") or {}).get(status.get("node"), {})
        if rank.get("state") in ("stopped", "absent"):
            return
        time.sleep(_POLL_S)
