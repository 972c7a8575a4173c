# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what a machine's memory settings are and should be to one plan; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..plan import Change, Plan
from . import swap, sysctl
from .serving_unit import ServingPlaces
from .serving_unit import files as serving_files

THP = "transparent_hugepage"  # stands among the settings, though it lies in /sys
THP_PATH = "/sys/kernel/mm/transparent_hugepage/enabled"

_RESERVE = "vm.min_free_kbytes"
_READ_BACK = "written to the running kernel and read back"
_MASK = "link to /dev/null (masked)"


@dataclass(frozen=True)
class Places:
    """Paths as they are named in plans and messages."""

    sysctl_file: str = "/etc/sysctl.d/90-gb10-ring.conf"
    thp_file: str = "/etc/tmpfiles.d/90-gb10-ring.conf"
    logind_file: str = "/etc/systemd/logind.conf.d/90-gb10-ring.conf"
    fstab: str = "/etc/fstab"
    swaps: str = "/proc/swaps"
    units: str = "/etc/systemd/system"
    serving: ServingPlaces = field(default_factory=ServingPlaces)

    @property
    def owned(self) -> tuple[str, ...]:
        """Every file of ours."""
        serving = self.serving
        return (self.sysctl_file, self.thp_file, self.logind_file, serving.program, serving.settings, serving.unit)


@dataclass(frozen=True)
class ServingState:
    """The unit that sets values while the engine serves. values: those in force by its state file; empty while it waits."""

    linked: bool = False
    engine: bool = False
    running: bool = False
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """What the machine says. values: first line of each /proc/sys file (and THP), None when the kernel has no such setting.

    files: texts of our files by path, empty for an absent one. remove_ipc: logind's answer, None when it cannot be asked.
    engine: whether the engine runs, which is asked where there are serving settings.
    """

    values: Mapping[str, str | None]
    files: Mapping[str, str] = field(default_factory=dict)
    config_files: tuple[sysctl.ConfigFile, ...] = ()
    swaps: tuple[swap.Swap, ...] = ()
    available_kib: int | None = None
    fstab: str = ""
    units: tuple[swap.UnitFile, ...] = ()
    masked: tuple[str, ...] = ()
    serving: ServingState = field(default_factory=ServingState)
    remove_ipc: bool | None = None
    engine: bool = False


@dataclass(frozen=True)
class Wanted:
    """sysctls: canonical keys and normalised values. swap_off: no swap, now and at every boot.

    serving: settings in force only while the engine serves; program: text of what sets them. thp: mode, empty for unmanaged.
    keep_ipc: logind leaves semaphores and shared memory of users alone.
    """

    sysctls: Mapping[str, str]
    swap_off: bool = True
    serving: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    thp: str = ""
    keep_ipc: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """All that is written to the kernel now."""
        return {**self.sysctls, **({THP: self.thp} if self.thp else {})}


@dataclass(frozen=True)
class MemoryPlan:
    """The steps of one call; ``plan`` shows exactly these. problems: why nothing may be applied.

    trial: serving settings that are written, read back and put back before anything else; nothing of it stays.
    """

    trial: tuple[Change, ...] = ()
    settings: tuple[Change, ...] = ()
    files: tuple[Change, ...] = ()
    link: Change | None = None
    mask: tuple[swap.UnitFile, ...] = ()
    fstab: Change | None = None
    swapoff: tuple[swap.Swap, ...] = ()
    problems: tuple[str, ...] = ()
    foreign: tuple[sysctl.Foreign, ...] = ()
    places: Places = field(default_factory=Places)

    @property
    def plan(self) -> Plan:
        changes = [*self.settings, *self.files, self.link, *map(self._mask, self.mask), self.fstab]
        if self.swapoff:
            before = "\n".join(area.text() for area in self.swapoff)
            changes.append(Change(self.places.swaps, before, "", "swapoff -a"))
        return Plan(tuple(change for change in changes if change is not None))

    def touches(self, *paths: str) -> bool:
        """Whether one of these files changes."""
        return any(change.what in paths for change in self.files)

    def _mask(self, unit: swap.UnitFile) -> Change:
        why = f"keeps it from starting at boot{'; the file stays beside it' if unit.own else ''}"
        return Change(f"{self.places.units}/{unit.name}", unit.text if unit.own else "", _MASK, why)


def texts(wanted: Wanted, places: Places) -> dict[str, tuple[str, str]]:
    """Text and reason of each file of ours by path; an empty text stands for no file."""
    thp = f"{sysctl.HEADER}w {THP_PATH} - - - - {wanted.thp}\n"
    logind = f"{sysctl.HEADER}[Login]\nRemoveIPC=no\n"
    serving = serving_files(wanted.serving, wanted.program, places.serving)
    return {
        places.sysctl_file: (sysctl.render(wanted.sysctls), "read at every boot"),
        places.thp_file: (thp if wanted.thp else "", "written at every boot"),
        places.logind_file: (logind if wanted.keep_ipc else "", "a rank keeps its semaphores when a login ends"),
        **{path: (text, "settings in force while the engine serves") for path, text in serving.items()},
    }


def decide(state: State, wanted: Wanted, places: Places) -> MemoryPlan:
    """Everything that differs, in the order of applying: kernel settings, our files, boot-time swap, swap in use."""
    settings = wanted.settings
    fstab = swap.fstab_without_swap(state.fstab) if wanted.swap_off else state.fstab
    trial = _trial(state, wanted, places)
    return MemoryPlan(
        trial=trial,
        settings=tuple(
            Change(key, state.values[key] or "", settings[key], _READ_BACK)
            for key in sorted(settings)
            if state.values.get(key) not in (None, settings[key])
        ),
        files=tuple(
            Change(path, state.files.get(path, ""), text, why)
            for path, (text, why) in texts(wanted, places).items()
            if state.files.get(path, "") != text
        ),
        link=_link(state.serving.linked, bool(wanted.serving), places.serving.link),
        mask=swap.units_to_mask(state.units, state.masked) if wanted.swap_off else (),
        fstab=None
        if fstab == state.fstab
        else Change(places.fstab, state.fstab, fstab, f"swap lines kept behind {swap.MARKER.strip()!r}"),
        swapoff=state.swaps if wanted.swap_off else (),
        problems=(*_problems(state, wanted), *_reserve_problems(trial, state.available_kib)),
        foreign=sysctl.foreign(state.config_files, places.sysctl_file.rsplit("/", 1)[-1], wanted.sysctls),
        places=places,
    )


def _trial(state: State, wanted: Wanted, places: Places) -> tuple[Change, ...]:
    """Values that are about to be persisted for later; under a running engine none is tried, since it would lose memory."""
    path = places.serving.settings
    if state.files.get(path, "") == texts(wanted, places)[path][0] or state.engine:
        return ()
    return tuple(
        Change(key, state.values[key] or "", value, _READ_BACK)
        for key, value in sorted(wanted.serving.items())
        if state.values.get(key) not in (None, value)
    )


def _link(linked: bool, wanted: bool, path: str) -> Change | None:
    if linked == wanted:
        return None
    return Change(path, "linked" if linked else "", "linked" if wanted else "", "started with the engine")


def _problems(state: State, wanted: Wanted) -> list[str]:
    """Why nothing may be applied, a message each."""
    unknown = [
        f"{key}: this kernel has no such setting; take it out of sysctls"
        if key != THP
        else "thp: this kernel has no transparent huge pages; set thp to unmanaged"
        for key in sorted({**wanted.settings, **wanted.serving})
        if state.values.get(key) is None
    ]
    twice = sorted(set(wanted.sysctls) & set(wanted.serving))
    refused = swap.refusal(state.swaps, state.available_kib) if wanted.swap_off else ""
    return [
        *unknown,
        *(f"{key}: wanted both always and while serving; leave it in one of them" for key in twice),
        *([f"swapoff refused: {refused}"] if refused else ()),
    ]


def _reserve_problems(trial: tuple[Change, ...], available_kib: int | None) -> list[str]:
    """A reserve that could end processes when it is tried."""
    tried = [change.after for change in trial if change.what == _RESERVE and change.after.isdecimal()]
    return [
        f"{_RESERVE} = {value} while serving is more than half of the {available_kib} KiB that are available now. Allowed: up to half; "
        "the number is in KiB"
        for value in tried
        if available_kib is not None and int(value) > available_kib // 2
    ]
