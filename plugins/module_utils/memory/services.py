# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services and targets of a node that decide what happens to an engine, other than memory settings: one plan and its checks; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import before
from ..plan import Change, Plan
from ..report.checks import Check
from .serving_unit import ENGINE

HEADER = "# Managed by gb10.ring (module platform_settings); changes are overwritten.\n"
CLOCK_UNIT = "gb10-ring-clock-lock.service"
UPGRADES_FILE = "systemd/system/apt-daily-upgrade.service.d/90-gb10-ring.conf"
JOURNAL_FILE = "systemd/journald.conf.d/90-gb10-ring.conf"
CLOCK_FILE = f"systemd/system/{CLOCK_UNIT}"
EARLYOOM, OOMD = "earlyoom.service", "systemd-oomd.service"
PERSISTENCED = "nvidia-persistenced.service"
UNITS = (EARLYOOM, OOMD, PERSISTENCED, CLOCK_UNIT)
SET_LINE = "GPU clocks set to"  # what nvidia-smi -lgc answers
HEADLESS, DESKTOP = "multi-user.target", "graphical.target"

_WHY = {
    UPGRADES_FILE: "no unattended upgrade while the engine runs",
    JOURNAL_FILE: "what a node said before it stopped is there after the restart",
    CLOCK_FILE: "GPU clocks are limited at boot",
}


@dataclass(frozen=True)
class Unit:
    """A unit as systemd sees it. enabled: UnitFileState."""

    enabled: str = ""
    active: bool = False

    @property
    def startable(self) -> bool:
        """Whether enabling means anything: a static unit is started by others."""
        return self.enabled not in ("static", "indirect", "generated", "transient")


@dataclass(frozen=True)
class State:
    """files: texts of ours by path below /etc, empty for absent. units: those that exist. target: systemd's default target.

    target_link: where default.target in /etc points to, empty when the distribution's own is in force.
    clocks: the journal of this boot shows that the limit was set, None when that was not asked.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, Unit] = field(default_factory=dict)
    target: str = ""
    target_link: str = ""
    clocks: bool | None = None


@dataclass(frozen=True)
class Wanted:
    """oom_daemon: earlyoom, none, or keep. clock_lock: MIN,MAX in MHz, empty for no limit. Others: whether it is wanted."""

    oom_daemon: str = "keep"
    clock_lock: str = ""
    headless: bool = False
    hold_upgrades: bool = True
    journal: bool = True
    persistence: bool = True
    nvidia_smi: str = "/usr/bin/nvidia-smi"


@dataclass(frozen=True)
class UnitStep:
    """What to do with one unit: to be on or off, from boot and now."""

    name: str
    now: Unit
    on: bool

    @property
    def change(self) -> Change:
        state = f"{self.now.enabled or 'disabled'}, {'active' if self.now.active else 'inactive'}"
        return Change(self.name, state, "enabled, active" if self.on else "disabled, inactive", "now and at boot")


@dataclass(frozen=True)
class ServicesPlan:
    """The steps of one call; plan shows exactly these. record: text after it. notes: what stays as it is."""

    files: tuple[Change, ...] = ()
    units: tuple[UnitStep, ...] = ()
    target: Change | None = None
    target_link: str | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        changes = [*self.files, *(step.change for step in self.units), self.target]
        return Plan(tuple(change for change in changes if change is not None))


def option_problems(wanted: Wanted) -> list[str]:
    if wanted.clock_lock and not re.fullmatch(r"\d+,\d+", wanted.clock_lock):
        return [f"clock_lock is {wanted.clock_lock!r}; MIN,MAX in MHz such as 300,2200, or empty, is allowed"]
    return []


def clock_command(wanted: Wanted) -> tuple[str, ...]:
    """What limits the clocks now."""
    return wanted.nvidia_smi, "-lgc", wanted.clock_lock


def clock_trial(planned: ServicesPlan, wanted: Wanted) -> tuple[str, ...]:
    """The command whose success the plan needs before anything of it is done; empty when it sets no limit."""
    sets = any(change.what.endswith(CLOCK_FILE) and change.after for change in planned.files)
    starts = any(step.name == CLOCK_UNIT and step.on for step in planned.units)
    return clock_command(wanted) if sets or starts else ()


def clock_refusal(value: str, rc: int, said: str) -> str:
    """Why nvidia-smi's answer to a limit is a refusal, empty when it took it. Of a GPU that knows no limit it only warns, with exit 0."""
    if rc == 0 and SET_LINE in said:
        return ""
    words = " / ".join(line.strip() for line in said.splitlines() if line.strip()) or "no output"
    return (
        f"clock_lock is {value!r}, which nvidia-smi does not take (exit {rc}: {words}). Allowed: clocks of this GPU (nvidia-smi -q -d "
        "SUPPORTED_CLOCKS), the lower one first, or empty for no limit"
    )


def files(wanted: Wanted) -> dict[str, str]:
    """Texts of our files by path below /etc; empty stands for no file."""
    upgrades = f"{HEADER}[Service]\nExecCondition=/bin/sh -c '! systemctl is-active --quiet {ENGINE}'\n"
    journal = f"{HEADER}[Journal]\nStorage=persistent\n"
    clock = (
        f"{HEADER}[Unit]\nDescription=Limit of the GPU clocks (gb10.ring)\nAfter={PERSISTENCED}\nBefore={ENGINE}\n\n"
        f"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={' '.join(clock_command(wanted))}\n"
        f"ExecStop={wanted.nvidia_smi} -rgc\n\n[Install]\nWantedBy=multi-user.target\n"
    )
    return {
        UPGRADES_FILE: upgrades if wanted.hold_upgrades else "",
        JOURNAL_FILE: journal if wanted.journal else "",
        CLOCK_FILE: clock if wanted.clock_lock else "",
    }


def _wishes(wanted: Wanted, units: Mapping[str, Unit]) -> dict[str, bool]:
    """Units that should be on or off; others are left alone."""
    wishes = {}
    if wanted.oom_daemon != "keep":
        wishes = {EARLYOOM: wanted.oom_daemon == "earlyoom", OOMD: False}
    if wanted.persistence:
        wishes[PERSISTENCED] = True
    if wanted.clock_lock or CLOCK_UNIT in units:
        wishes[CLOCK_UNIT] = bool(wanted.clock_lock)
    return wishes


def _problems(wanted: Wanted, state: State) -> list[str]:
    if wanted.oom_daemon == "earlyoom" and EARLYOOM not in state.units:
        return [
            "oom_daemon is earlyoom, which is not installed here. Cure: sudo apt-get install earlyoom, or set memory_oom_daemon to none or keep"
        ]
    return []


def decide(state: State, wanted: Wanted, etc: str) -> ServicesPlan:
    """Everything that differs."""
    steps = []
    for name, on in _wishes(wanted, state.units).items():
        now = state.units.get(name, Unit())
        exists = name in state.units or (name == CLOCK_UNIT and on)
        settled = now.active == on and (not now.startable or (now.enabled == "enabled") == on)
        if exists and not settled:
            steps.append(UnitStep(name, now, on))
    target = HEADLESS if wanted.headless else state.target
    return ServicesPlan(
        files=tuple(
            Change(f"{etc}/{path}", state.files.get(path, ""), text, _WHY[path])
            for path, text in files(wanted).items()
            if state.files.get(path, "") != text
        ),
        units=tuple(steps),
        target=Change("default target", state.target, target, "no desktop from the next boot on")
        if target != state.target
        else None,
        problems=tuple(_problems(wanted, state)),
    )


def merged(record: Mapping[str, Any], planned: ServicesPlan, state: State) -> dict[str, Any]:
    """The record with what this plan replaces in this state; what is recorded already stays."""
    units = dict(record.get("units", {}))
    for step in planned.units:
        if step.name != CLOCK_UNIT:
            units.setdefault(step.name, {"enabled": step.now.enabled, "active": step.now.active})
    target = record.get("target") or ({"name": state.target, "link": state.target_link} if planned.target else {})
    return {"files": before.remember(record.get("files", {}), planned.files), "units": units, "target": target}


def way_back(record: Mapping[str, Any], state: State, etc: str) -> ServicesPlan:
    """From what is recorded and what is now to the machine as it was."""
    texts = {f"{etc}/{path}": text for path, text in state.files.items()}
    changes, notes = before.returning({**before.absent_before(texts), **record.get("files", {})}, texts)
    steps = []
    for name, held in record.get("units", {}).items():
        on, now = bool(held["active"]), state.units.get(name)
        if now is not None and (now.active != on or (now.startable and now.enabled != held["enabled"])):
            steps.append(UnitStep(name, now, on))
    if CLOCK_UNIT in state.units and (state.units[CLOCK_UNIT].active or state.units[CLOCK_UNIT].enabled == "enabled"):
        steps.append(UnitStep(CLOCK_UNIT, state.units[CLOCK_UNIT], False))
    target, link = _target_back(record.get("target", {}), state, notes)
    return ServicesPlan(tuple(changes), tuple(steps), target, link, notes=tuple(notes))


def _target_back(held: Mapping[str, str], state: State, notes: list[str]) -> tuple[Change | None, str | None]:
    if not held or state.target_link == held["link"]:
        return None, None
    if state.target != HEADLESS:
        notes.append(
            f"the default target is {state.target}, which gb10.ring did not set; it stays (before it was {held['name']})"
        )
        return None, None
    return Change("default target", state.target, held["name"], "as it was before gb10.ring"), held["link"]


def checks(node: str, state: State, wanted: Wanted, etc: str) -> list[Check]:
    """What holds of the wanted services."""
    planned = decide(state, wanted, etc)
    open_steps = {step.name: step.change for step in planned.units}
    differing = [change.what for change in planned.files]
    found = [
        Check(
            "memory.services",
            node,
            ok=not differing,
            found="; ".join(f"{path} differs" for path in differing) or "as the role writes them",
            expected="the role's files for journald, unattended upgrades and the clock limit",
            cure="Run the memory role",
            severity="warning",
        )
    ]
    if wanted.oom_daemon != "keep":
        found.append(_oom_check(node, state, wanted, planned))
    if wanted.persistence and PERSISTENCED in state.units:
        found.append(
            _unit_check("memory.persistence", node, PERSISTENCED, open_steps.get(PERSISTENCED), "Run the memory role")
        )
    if wanted.clock_lock:
        found.append(_clock_check(node, state, wanted, open_steps.get(CLOCK_UNIT)))
    if wanted.headless:
        found.append(
            Check(
                "memory.headless",
                node,
                planned.target is None,
                state.target,
                HEADLESS,
                "Run the memory role",
                "warning",
            )
        )
    return found


def _unit_check(check_id: str, node: str, name: str, change: Change | None, cure: str) -> Check:
    found = change.before if change else "enabled, active"
    return Check(check_id, node, change is None, f"{name} {found}", f"{name} enabled, active", cure, "warning")


def _oom_check(node: str, state: State, wanted: Wanted, planned: ServicesPlan) -> Check:
    running = [name for name in (EARLYOOM, OOMD) if state.units.get(name, Unit()).active]
    wrong = [step.name for step in planned.units if step.name in (EARLYOOM, OOMD)]
    return Check(
        "memory.oom_daemon",
        node,
        ok=not (wrong or planned.problems),
        found=" and ".join(running) or "none",
        expected=wanted.oom_daemon,
        cure=planned.problems[0] if planned.problems else "Run the memory role",
    )


def _clock_check(node: str, state: State, wanted: Wanted, change: Change | None) -> Check:
    """nvidia-smi shows no limit back and NVML has no getter: the unit's state and its line of this boot are what there is."""
    said = {True: "limited in this boot", False: "no line of nvidia-smi in this boot", None: "not asked"}[state.clocks]
    return Check(
        "memory.clock_lock",
        node,
        ok=change is None and state.clocks is True,
        found=f"{CLOCK_UNIT} {change.before if change else 'enabled, active'}; {said}",
        expected=f"GPU clocks limited to {wanted.clock_lock} MHz since boot",
        cure=f"sudo systemctl restart {CLOCK_UNIT}; journalctl -b -u {CLOCK_UNIT} tells what nvidia-smi answered",
        severity="warning",
    )
