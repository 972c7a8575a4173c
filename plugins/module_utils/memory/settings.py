# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what a machine's memory settings are and should be to one plan and its checks; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..plan import Change, Plan
from ..report.checks import Check
from . import swap, sysctl

_READ_BACK = "written to the running kernel and read back"
_MASK = "link to /dev/null (masked)"


@dataclass(frozen=True)
class Places:
    """Paths as they are named in plans and messages."""

    sysctl_file: str = "/etc/sysctl.d/90-gb10-ring.conf"
    fstab: str = "/etc/fstab"
    swaps: str = "/proc/swaps"
    units: str = "/etc/systemd/system"


@dataclass(frozen=True)
class State:
    """What the machine says. values: first line of each wanted /proc/sys file, None when the kernel has no such setting."""

    values: Mapping[str, str | None]
    persisted: str
    config_files: tuple[sysctl.ConfigFile, ...] = ()
    swaps: tuple[swap.Swap, ...] = ()
    available_kib: int | None = None
    fstab: str = ""
    units: tuple[swap.UnitFile, ...] = ()
    masked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """sysctls: canonical keys and normalised values. swap_off: no swap, now and at every boot."""

    sysctls: Mapping[str, str]
    swap_off: bool = True


@dataclass(frozen=True)
class MemoryPlan:
    """The steps of one call; ``plan`` shows exactly these. problems: why nothing may be applied."""

    settings: tuple[Change, ...] = ()
    sysctl_file: Change | None = None
    mask: tuple[swap.UnitFile, ...] = ()
    fstab: Change | None = None
    swapoff: tuple[swap.Swap, ...] = ()
    problems: tuple[str, ...] = ()
    foreign: tuple[sysctl.Foreign, ...] = ()
    places: Places = field(default_factory=Places)

    @property
    def plan(self) -> Plan:
        changes = [*self.settings, self.sysctl_file, *map(self._mask, self.mask), self.fstab]
        if self.swapoff:
            before = "\n".join(area.text() for area in self.swapoff)
            changes.append(Change(self.places.swaps, before, "", "swapoff -a"))
        return Plan(tuple(change for change in changes if change is not None))

    def _mask(self, unit: swap.UnitFile) -> Change:
        why = f"keeps it from starting at boot{'; the file stays beside it' if unit.own else ''}"
        return Change(f"{self.places.units}/{unit.name}", unit.text if unit.own else "", _MASK, why)


def decide(state: State, wanted: Wanted, places: Places) -> MemoryPlan:
    """Everything that differs, in the order of applying: kernel settings, their file, boot-time swap, swap in use."""
    problems = [
        f"{key}: this kernel has no such setting; take it out of sysctls"
        for key in sorted(wanted.sysctls)
        if state.values.get(key) is None
    ]
    refused = swap.refusal(state.swaps, state.available_kib) if wanted.swap_off else ""
    if refused:
        problems.append(f"swapoff refused: {refused}")
    fstab = swap.fstab_without_swap(state.fstab) if wanted.swap_off else state.fstab
    return MemoryPlan(
        settings=tuple(
            Change(key, state.values[key] or "", wanted.sysctls[key], _READ_BACK)
            for key in sorted(wanted.sysctls)
            if state.values.get(key) not in (None, wanted.sysctls[key])
        ),
        sysctl_file=_differs(places.sysctl_file, state.persisted, sysctl.render(wanted.sysctls), "read at every boot"),
        mask=swap.units_to_mask(state.units, state.masked) if wanted.swap_off else (),
        fstab=_differs(places.fstab, state.fstab, fstab, f"swap lines kept behind {swap.MARKER.strip()!r}"),
        swapoff=state.swaps if wanted.swap_off else (),
        problems=tuple(problems),
        foreign=sysctl.foreign(state.config_files, places.sysctl_file.rsplit("/", 1)[-1], wanted.sysctls),
        places=places,
    )


def _differs(what: str, before: str, after: str, why: str) -> Change | None:
    return None if before == after else Change(what, before, after, why)


def checks(node: str, state: State, wanted: Wanted, places: Places) -> list[Check]:
    """What holds of the wanted settings in this state, as checks of the node."""
    planned = decide(state, wanted, places)
    return [
        *(_swap_checks(node, state, planned, places) if wanted.swap_off else ()),
        *(_value_check(node, key, state.values.get(key), wanted.sysctls[key]) for key in sorted(wanted.sysctls)),
        _persisted_check(node, state, planned, places),
        *(_foreign_check(node, found, wanted.sysctls[found.key], places) for found in planned.foreign),
    ]


def _swap_checks(node: str, state: State, planned: MemoryPlan, places: Places) -> list[Check]:
    refused = swap.refusal(state.swaps, state.available_kib)
    boot = [
        *(f"{places.fstab}: {line}" for line in swap.fstab_swaps(state.fstab)),
        *(unit.path for unit in planned.mask),
    ]
    return [
        Check(
            "memory.swap",
            node,
            ok=not state.swaps,
            found=", ".join(area.text() for area in state.swaps) or "no swap in use",
            expected="no swap in use",
            cure=f"Not now: {refused}" if refused else "Run the memory role, or swapoff -a",
        ),
        Check(
            "memory.swap_boot",
            node,
            ok=not boot,
            found="; ".join(boot) or "nothing switches swap on at boot",
            expected="nothing switches swap on at boot",
            cure="Run the memory role; it comments the lines and masks the units",
        ),
    ]


def _value_check(node: str, key: str, found: str | None, expected: str) -> Check:
    return Check(
        "memory.sysctl",
        node,
        ok=found == expected,
        found=f"{key} = {found}" if found is not None else f"{key} is not a setting of this kernel",
        expected=f"{key} = {expected}",
        cure="Run the memory role; if the value comes back, look for a service that sets it",
    )


def _persisted_check(node: str, state: State, planned: MemoryPlan, places: Places) -> Check:
    wanted = planned.sysctl_file.after if planned.sysctl_file else state.persisted
    return Check(
        "memory.persisted",
        node,
        ok=planned.sysctl_file is None,
        found=f"{places.sysctl_file} {_settings(state.persisted)}",
        expected=f"{places.sysctl_file} {_settings(wanted)}",
        cure="Run the memory role",
    )


def _settings(text: str) -> str:
    if not text:
        return "absent"
    return "with " + (", ".join(f"{key} = {value}" for _line, key, value in sysctl.assignments(text)) or "no settings")


def _foreign_check(node: str, found: sysctl.Foreign, expected: str, places: Places) -> Check:
    return Check(
        "memory.foreign",
        node,
        ok=False,
        found=found.text(),
        expected=f"no file read after {places.sysctl_file} that sets {found.key} to other than {expected}",
        cure=f"Take line {found.line} out of {found.path}, or give memory_sysctls its value; it wins at the next boot",
        severity="warning",
    )
