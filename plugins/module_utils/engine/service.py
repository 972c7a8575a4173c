# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd says about the engine's unit, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..plan import Change, Plan

PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "MainPID",
    "NRestarts",
    "Result",
    "ExecMainStatus",
    "NeedDaemonReload",
)
STATES = ("started", "stopped", "restarted")


@dataclass(frozen=True)
class UnitState:
    """One look at a unit. hash: the configuration the running process was started with, empty when none runs."""

    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    enabled: str = ""
    pid: int = 0
    restarts: int = 0
    result: str = "success"
    status: int = 0
    reload: bool = False
    hash: str = ""

    @property
    def running(self) -> bool:
        return self.active == "active"

    @property
    def failed(self) -> bool:
        """The process ended by itself: the unit has failed, or systemd is about to start it again."""
        return self.active == "failed" or self.sub.startswith("auto-restart")

    def text(self) -> str:
        """For a person: state, and why and how often it ended."""
        if self.load == "not-found":
            return "no unit"
        parts = [f"{self.active} ({self.sub})"]
        if self.result not in ("", "success"):
            parts.append(f"{self.result}, status {self.status}")
        if self.restarts:
            parts.append(f"{self.restarts} restarts")
        return ", ".join(parts)


def parse_show(output: str) -> UnitState:
    """A UnitState from `systemctl show -p ...`; properties that are absent keep their defaults."""
    values = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    return UnitState(
        load=values.get("LoadState") or "not-found",
        active=values.get("ActiveState") or "inactive",
        sub=values.get("SubState") or "dead",
        enabled=values.get("UnitFileState", ""),
        pid=_number(values, "MainPID"),
        restarts=_number(values, "NRestarts"),
        result=values.get("Result", ""),
        status=_number(values, "ExecMainStatus"),
        reload=values.get("NeedDaemonReload") == "yes",
    )


def _number(values: Mapping[str, str], key: str) -> int:
    text = values.get(key, "")
    return int(text) if text.isdigit() else 0


def needs_restart(state: UnitState, wanted_hash: str) -> bool:
    """Whether the rank does not run, or runs something else than the unit as wanted."""
    return not state.running or state.hash != wanted_hash


def plan_state(unit: str, state: UnitState, wanted: str) -> Plan:
    """The change that takes the unit from its state to the wanted one of STATES."""
    before = state.text()
    if wanted == "restarted":
        return Plan((Change(unit, before, "active (restarted)", "restart asked for"),))
    if wanted == "started":
        return Plan() if state.running else Plan((Change(unit, before, "active (running)", "it does not run"),))
    if state.running or state.failed or state.active in ("activating", "reloading", "deactivating"):
        return Plan((Change(unit, before, "inactive (dead)", "stop asked for"),))
    return Plan()


def reached(state: UnitState, wanted: str) -> bool:
    return (
        state.running
        if wanted in ("started", "restarted")
        else state.active in ("inactive", "failed") and not state.pid
    )


def plan_unit(
    files: Mapping[str, tuple[str | None, str | None]], unit: str, state: UnitState, enable: bool = True
) -> Plan:
    """Changes of the owned files and of the unit's enablement. files: path to text as it is and as wanted; None: absent.

    enable: whether systemctl has to enable the unit.
    """
    changes = [
        Change(path, before or "", after or "", _why(path, after))
        for path, (before, after) in files.items()
        if before != after
    ]
    if enable and state.enabled != "enabled":
        changes.append(Change(f"{unit} at boot", state.enabled or "disabled", "enabled", "start with the machine"))
    return Plan(tuple(changes))


def _why(path: str, after: str | None) -> str:
    if after is None:
        return "another renderer's, not used any more"
    if path.endswith(".json"):
        return "what the engine is run from"
    return "finds the GIDs at each start" if path.endswith(".py") else "the engine's unit"
