# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a checkpoint can go from a node, what stays and why, and what else lies there. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..plan import Change, Plan
from . import units
from .budget import freed
from .decide import Disk
from .layout import TRASH
from .receipt import Stat
from .switch import Record

Kind = Literal["revision", "unfinished staging", "half-deleted revision", "unknown directory", "Engram rows", "foreign"]


@dataclass(frozen=True)
class Left:
    """Engram rows in a directory of their own. stays: why they may not go, empty when no engine reads them."""

    files: Mapping[str, Stat]
    stays: str = ""


@dataclass(frozen=True)
class Seen:
    """What lies there. revisions: files of complete ones by name, oldest first. unknown: directories without a receipt.

    staging: files of unfinished ones by name. foreign: bytes by path of what others left elsewhere. busy: revisions that a
    replacement in place is about. serves: the revision that the engine's unit names. rows: Engram rows by their directory.
    """

    disk: Disk
    current: str = ""
    record: Record = field(default_factory=Record)
    revisions: Mapping[str, Mapping[str, Stat]] = field(default_factory=dict)
    unknown: Mapping[str, Mapping[str, Stat]] = field(default_factory=dict)
    staging: Mapping[str, Mapping[str, Stat]] = field(default_factory=dict)
    foreign: Mapping[str, int] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    serves: str = ""
    rows: Mapping[str, Left] = field(default_factory=dict)

    @property
    def protected(self) -> frozenset[str]:
        """Never touched: what is active or served, what was before, and both ends of a switch that is under way."""
        names = {
            self.current,
            self.serves,
            self.record.active,
            self.record.previous,
            self.record.target,
            self.record.left,
        }
        return frozenset(name for name in names | self.busy if name)


@dataclass(frozen=True)
class Item:
    """One thing. bytes: what it takes, or gives back when it goes. why: one clause."""

    kind: Kind
    name: str
    bytes: int
    remove: bool
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "bytes": self.bytes, "remove": self.remove, "why": self.why}


@dataclass(frozen=True)
class Pruning:
    items: tuple[Item, ...]
    frees: int

    @property
    def removed(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.remove)

    def plan(self, base: str) -> Plan:
        """base: directory of the checkpoint."""
        return Plan(
            tuple(
                Change(f"{base}: {item.kind} {item.name}", f"{units.human(item.bytes)}\n", "", item.why)
                for item in self.removed
            )
        )


def prune(seen: Seen, keep: int, unfinished: bool, unused_rows: bool = False) -> Pruning:
    """keep: revisions that stay, the active one among them. unfinished: whether begun stagings go too.

    unused_rows: whether Engram rows go that no engine reads.
    """
    going = _surplus(seen, keep)
    items = [_revision(seen, name, name in going, keep) for name in seen.revisions]
    gone = [seen.revisions[name] for name in going]
    for name, files in seen.staging.items():
        trash = name.startswith(TRASH)
        remove = trash or (unfinished and name not in seen.protected)
        size = freed([files], seen.disk)
        why = "a deletion that did not end" if trash else _staging_reason(name in seen.protected, unfinished)
        items.append(Item("half-deleted revision" if trash else "unfinished staging", name, size, remove, why))
        gone += [files] if remove else []
    for path, left in seen.rows.items():
        goes = unused_rows and not left.stays
        size = sum(stat.allocated for stat in left.files.values())  # they may lie on another disk
        items.append(Item("Engram rows", path, size, goes, left.stays or _rows_reason(goes)))
        gone += [left.files] if goes else []
    items += _others(seen)
    return Pruning(tuple(items), freed(gone, seen.disk))


def _surplus(seen: Seen, keep: int) -> tuple[str, ...]:
    loose = [name for name in seen.revisions if name not in seen.protected]
    spare = max(0, keep - sum(name in seen.protected for name in seen.revisions))
    return tuple(loose[: max(0, len(loose) - spare)])


def _revision(seen: Seen, name: str, goes: bool, keep: int) -> Item:
    roles = {
        seen.serves: "the engine serves it",
        seen.record.previous: "the one before the active one",
        seen.record.target: "a switch to it is under way",
        (seen.record.active or seen.record.left) if seen.record.open else "": "a switch from it is under way",
        seen.current: "active",
    }
    why = f"more than {keep} revisions (checkpoint_keep)" if goes else roles.get(name, f"among the last {keep}")
    return Item("revision", name, freed([seen.revisions[name]], seen.disk), goes, why)


def _staging_reason(protected: bool, unfinished: bool) -> str:
    if protected:
        return "a replacement or switch needs it"
    return "asked for" if unfinished else "the next run goes on with it; checkpoint_prune_unfinished deletes it"


def _rows_reason(goes: bool) -> str:
    return "no engine reads them" if goes else "no engine reads them; checkpoint_prune_engram deletes them"


def _others(seen: Seen) -> Iterable[Item]:
    for name, files in seen.unknown.items():
        being = name in seen.busy
        why = (
            "being replaced in place"
            if being
            else "nothing says that it was verified; delete it by hand if nobody needs it"
        )
        yield Item("unknown directory", name, freed([files], seen.disk), False, why)
    for path, size in seen.foreign.items():
        yield Item("foreign", path, size, False, "not of gb10.ring; delete it by hand if nobody needs it")


def rows(node: str, items: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """One row an item for people, from what ``to_dict`` gave."""
    return [
        {
            "node": node,
            "what": str(item["kind"]),
            "name": str(item["name"]),
            "size": units.human(int(item["bytes"])),
            "goes": "yes" if item["remove"] else "no",
            "why": str(item["why"]),
        }
        for item in items
    ]
