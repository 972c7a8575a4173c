# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Debian packages came with the collection, and which of them can go again; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .plan import Change, Plan

ABSENT, CONFIGURED = "not-installed", "config-files"  # dpkg's own words for what a package was before
INSTALLED = "installed"
# `Inst NAME (NEW ...)` brings a package, `Inst NAME [OLD] (NEW ...)` upgrades one.
_NEW = re.compile(r"^Inst (\S+) \(", re.MULTILINE)
_GOES = re.compile(r"^(?:Remv|Purg) (\S+)", re.MULTILINE)
_ANY_INSTALL = re.compile(r"^Inst (\S+)", re.MULTILINE)


def states(listed: str, native: str) -> dict[str, str]:
    """Each package's state by name, as apt names it. listed: lines `NAME ARCHITECTURE STATUS` of dpkg-query."""
    found = {}
    for line in listed.splitlines():
        name, architecture, status = line.split(" ")  # one that only dselect knows has no architecture
        found[name if architecture in (native, "all", "") else f"{name}:{architecture}"] = status
    return found


def brought(simulated: str, before: Mapping[str, str]) -> dict[str, str]:
    """What an installation would bring anew, by the output of its simulation: what each was before."""
    new = [name for name in _NEW.findall(simulated) if before.get(name) != INSTALLED]
    return {name: CONFIGURED if before.get(name) == CONFIGURED else ABSENT for name in new}


def noted(known: Mapping[str, str], new: Mapping[str, str], path: str) -> tuple[dict[str, str], Plan]:
    """The record with what is about to come; what is on record stays. path: of the record."""
    after = {**new, **known}
    changes = [Change(path, "", name, "on record before it is installed") for name in sorted(set(after) - set(known))]
    return after, Plan(tuple(changes))


@dataclass(frozen=True)
class Removal:
    """What goes. purge: those of which not even a configuration was there before. refused: why nothing goes, or empty."""

    names: tuple[str, ...] = ()
    purge: tuple[str, ...] = ()
    refused: str = ""

    @property
    def plan(self) -> Plan:
        if self.refused:
            return Plan()
        return Plan(
            tuple(Change(f"package {name}", INSTALLED, "", "not there before gb10.ring") for name in self.names)
        )


def candidates(known: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Packages on record that are installed."""
    return tuple(sorted(name for name in known if now.get(name) == INSTALLED))


def removal(known: Mapping[str, str], now: Mapping[str, str], simulated: str) -> Removal:
    """What goes, by the simulation of removing the candidates: exactly these, or nothing."""
    names = candidates(known, now)
    purge = tuple(sorted(name for name, was in known.items() if was == ABSENT and now.get(name, ABSENT) != ABSENT))
    others = _others(_GOES.findall(simulated), names)
    more = _others(_ANY_INSTALL.findall(simulated), ())
    if not (others or more):
        return Removal(names, purge)
    why = [f"remove {', '.join(others)} too, which others need them for"] if others else []
    why += [f"install {', '.join(more)}"] if more else []
    return Removal(
        refused=f"packages stay ({', '.join(names)}): apt would {' and '.join(why)}. Remove those first, then run uninstall.yml again"
    )


def _others(found: Iterable[str], names: Iterable[str]) -> list[str]:
    return sorted(set(found) - set(names))
