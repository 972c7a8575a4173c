# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back from the memory settings, from what their record keeps and what the machine says now; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import before
from ..plan import Change, Plan
from . import swap, sysctl
from .settings import THP, Places, State


@dataclass(frozen=True)
class UndoPlan:
    """The steps back; ``plan`` shows exactly these. unmask: name of a masked unit -> where its own file is kept, or None.

    notes: what stays as it is, since somebody else has changed it.
    """

    settings: tuple[Change, ...] = ()
    files: tuple[Change, ...] = ()
    link: Change | None = None
    unmask: Mapping[str, str | None] = field(default_factory=dict)
    fstab: Change | None = None
    swapon: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    places: Places = field(default_factory=Places)

    @property
    def plan(self) -> Plan:
        changes = [*self.settings, *self.files, self.link, self.fstab]
        changes += [
            Change(
                f"{self.places.units}/{name}", "link to /dev/null (masked)", kept or "", "as it was before gb10.ring"
            )
            for name, kept in self.unmask.items()
        ]
        if self.swapon:
            changes.append(Change(self.places.swaps, "", "\n".join(self.swapon), "swapon -a"))
        return Plan(tuple(change for change in changes if change is not None))


def decide(record: Mapping[str, Any], state: State, places: Places) -> UndoPlan:
    """record: as record.parsed gives it. state: with the values of every recorded setting."""
    settings, stay = _settings(record["sysctls"], state, places)
    known = {**before.absent_before(state.files), **record["files"]}
    files, notes = before.returning(known, state.files)
    fstab = swap.fstab_with_swap(state.fstab, record["fstab"])
    active = {area.name for area in state.swaps}
    return UndoPlan(
        settings=tuple(settings),
        files=tuple(files),
        link=Change(places.serving.link, "linked", "", "as it was before gb10.ring") if state.serving.linked else None,
        unmask={name: kept for name, kept in sorted(record["units"].items()) if name in state.masked},
        fstab=None if fstab == state.fstab else Change(places.fstab, state.fstab, fstab, "as it was before gb10.ring"),
        swapon=tuple(name for name in record["swaps"] if name not in active),
        notes=tuple([*stay, *notes]),
        places=places,
    )


def swap_notes(wanted: Iterable[str], active: Collection[str], gone: Collection[str]) -> list[str]:
    """A note for each area that should be in use again and is not. active, gone: names of those in use, and of those that do not exist."""
    return [
        f"swap area {name} is not in use again: it does not exist any more. What named it at boot (its line of /etc/fstab or its unit) is as "
        "it was before gb10.ring; take that out, or make the area again (mkswap) and run sudo swapon -a"
        if name in gone
        else f"swap area {name} is not in use again; it comes with the next boot"
        for name in wanted
        if name not in active
    ]


def _settings(known: Mapping[str, str], state: State, places: Places) -> tuple[list[Change], list[str]]:
    """Values to return to, and a note for each that is no longer the one we set."""
    ours = {key: value for _line, key, value in sysctl.assignments(state.files.get(places.sysctl_file, ""))}
    thp = state.files.get(places.thp_file, "").split()
    ours.update({THP: thp[-1]} if thp else {})
    changes, notes = [], []
    for key, value in sorted(known.items()):
        now = state.values.get(key)
        if now is None or now == value:
            continue
        if now == ours.get(key, now):
            changes.append(Change(key, now, value, "as it was before gb10.ring"))
        else:
            notes.append(f"{key} is {now}, which gb10.ring did not set; it stays (before gb10.ring it was {value})")
    return changes, notes
