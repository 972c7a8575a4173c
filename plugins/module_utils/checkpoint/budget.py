# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the bytes to come fit on the disk, with the arithmetic and what could be freed. Values in, values out.

Everything is counted in allocated bytes, once an inode: a sparse file takes what it has, a file with names elsewhere gives
nothing back, and what lies on another file system neither takes nor gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..report.checks import Check
from . import units
from .decide import Disk, Staging, Survey
from .layout import left_in_staging
from .manifest import PARTIAL
from .receipt import Stat


@dataclass(frozen=True)
class Reclaimable:
    """What deleting gives back. rows: what and how many bytes, each by itself. total: of all rows together.

    current: bytes of the active revision, which is not among the rows: an engine may have it open.
    """

    rows: tuple[tuple[str, int], ...] = ()
    total: int = 0
    current: int = 0


@dataclass(frozen=True)
class Budget:
    """The arithmetic of one node. needed: bytes that the disk has to give. reusable: bytes of the plan that it has already."""

    disk: Disk
    needed: int
    reusable: int
    reclaimable: Reclaimable
    ceiling_percent: int

    @property
    def limit(self) -> int:
        return self.disk.size * self.ceiling_percent // 100

    @property
    def after(self) -> int:
        return self.disk.used + self.needed

    @property
    def short(self) -> int:
        """Bytes too many, 0 when it fits. A disk that is too full already is no reason against taking nothing."""
        return max(0, self.after - self.limit) if self.needed else 0

    @property
    def ok(self) -> bool:
        return not self.short

    def to_dict(self, node: str) -> dict[str, Any]:
        """All numbers in bytes, for a table of all nodes."""
        return {
            "node": node,
            "needed": self.needed,
            "reusable": self.reusable,
            "reclaimable": self.reclaimable.total,
            "free": self.disk.available,
            "reserved": self.disk.reserved,
            "used": self.disk.used,
            "size": self.disk.size,
            "after": self.after,
            "ceiling": self.limit,
            "short": self.short,
        }


def budget(staging: Staging, survey: Survey, ceiling_percent: int, also_needed: int = 0) -> Budget:
    """The budget of this staging on this node. also_needed: bytes that something else is about to take there."""
    partials = [survey.staged.get(step.file.path + PARTIAL) for step in staging.of("fetch")]
    begun = sum(
        min(step.file.size, stat.allocated)
        for step, stat in zip(staging.of("fetch"), partials, strict=True)
        if stat is not None
    )
    there = sum(staging.size_of(action) for action in ("keep", "staged", "link"))
    linked = frozenset(step.source for step in staging.of("link"))
    return Budget(
        disk=survey.disk,
        needed=bytes_needed(staging, survey) + also_needed,
        reusable=there + begun,
        reclaimable=reclaimable(staging.manifest.revision, survey, linked),
        ceiling_percent=ceiling_percent,
    )


def bytes_needed(staging: Staging, survey: Survey) -> int:
    """What is fetched, less what the staging directory holds beside finished files: it is taken over or deleted first."""
    kept = {step.file.path for step in staging.of("staged")}
    going = {path: stat for path, stat in survey.staged.items() if path not in kept and not staging.spares(path)}
    held = freed([going], survey.disk)
    return max(0, staging.size_of("fetch") - held)


def freed(trees: Iterable[Mapping[str, Stat]], disk: Disk) -> int:
    """Bytes that deleting all these files gives back to this disk."""
    names: dict[object, list[Stat]] = {}
    for stat in (stat for tree in trees for stat in tree.values()):
        if disk.holds(stat):
            # Without an inode number (0) every file is its own.
            names.setdefault((stat.device, stat.inode) if stat.inode else object(), []).append(stat)
    return sum(same[0].allocated for same in names.values() if len(same) >= same[0].links)


def reclaimable(revision: str, survey: Survey, linked: frozenset[str] = frozenset()) -> Reclaimable:
    """What could be deleted beside this revision. linked: ``REVISION/PATH`` that are about to get another name."""
    trees: dict[str, Mapping[str, Stat]] = {}
    for other in survey.others:
        name = other.receipt.revision
        trees[name] = {path: stat for path, stat in other.found.items() if f"{name}/{path}" not in linked}
    current = freed([trees.pop(survey.current, {})], survey.disk)
    rows = [(f"revision {name}", freed([tree], survey.disk)) for name, tree in trees.items()]
    unfinished = [(left_in_staging(name), size) for name, size in survey.leftovers.items() if name != revision]
    # Old revisions that share files give these back only together, so the total can be more than the sum of the rows.
    total = freed(trees.values(), survey.disk) + sum(size for _what, size in unfinished)
    return Reclaimable(tuple(row for row in [*rows, *unfinished] if row[1]), total, current)


def budget_check(found: Budget, node: str) -> Check:
    """Whether the bytes to come fit under the ceiling, with the arithmetic and what could be freed."""
    disk = found.disk
    percent = 100 * found.after / disk.size if disk.size else 0.0
    reserved = f" ({units.human(disk.reserved)} of that reserved for root)" if disk.reserved else ""
    return Check(
        id="checkpoint.budget",
        node=node,
        ok=found.ok,
        found=f"{units.human(disk.used)} used{reserved} + {units.human(found.needed)} to come = {units.human(found.after)} "
        f"of {units.human(disk.size)} ({percent:.1f} %)",
        expected=f"at most {found.ceiling_percent} % = {units.human(found.limit)}",
        cure=_cure(found),
    )


def _cure(found: Budget) -> str:
    """Only for a budget that does not fit."""
    if found.ok:
        return ""
    old, where = found.reclaimable, " outside of the checkpoints"
    if old.total:
        where = f": of this checkpoint there is {listed(old)}, {units.human(old.total)} in all"
    if old.current:
        where += f" (the active revision holds {units.human(old.current)})"
    return f"free {units.human(found.short)}{where}; or raise checkpoint_disk_ceiling_percent"


def listed(found: Reclaimable) -> str:
    """``revision a (3.0 GB), revision b (1.0 GB)``."""
    rows = [f"{what} ({units.human(size)})" for what, size in found.rows]
    return ", ".join(rows) or "what old revisions share with each other"


def table(budgets: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """One row a node for people, from what ``to_dict`` gave."""
    return [
        {
            "node": str(row["node"]),
            **{name: units.human(int(row[name])) for name in ("needed", "reusable", "reclaimable", "free")},
            "after": f"{units.human(int(row['after']))} of {units.human(int(row['size']))}",
            "ceiling": units.human(int(row["ceiling"])),
            "verdict": _verdict(row),
        }
        for row in budgets
    ]


def _verdict(row: Mapping[str, Any]) -> str:
    if row["short"]:
        return f"{units.human(int(row['short']))} short"
    return "fits" if row["needed"] else "nothing to fetch"
