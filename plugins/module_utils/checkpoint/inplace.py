# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replacing the active revision where the disk does not hold two: in which order files go and come, and how full it gets.

Values in, values out. Files that both revisions have are linked first, so from then on the new revision needs nothing of the
old one but what chunks it takes over; then one file at a time is deleted and its new state fetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import chunks, spans, units
from .decide import OtherRevision, Staging, Step, Survey
from .manifest import PARTIAL, File
from .receipt import Receipt, Stat
from .replacing import Replacing
from .row_state import NAME


@dataclass(frozen=True)
class Replacement:
    """One file. frees: bytes that deleting the old one gives back. needs: bytes that the new one takes.

    moves: the old file becomes the partial one, because most of its chunks stay.
    """

    path: str
    frees: int = 0
    needs: int = 0
    moves: bool = False


@dataclass(frozen=True)
class InPlace:
    """steps: in the order in which they are done. used: bytes in use before. peak: the most at any moment. limit: the ceiling.

    dropped: other revisions that are deleted first, because what they share with the old one would stay on the disk.
    carried: slices of Engram shards whose rows did not change: the new revision gets them, with what vouches for their rows.
    at_once: bytes that the dropped ones give back.
    """

    receipt: Receipt
    steps: tuple[Replacement, ...]
    used: int
    peak: int
    after: int
    limit: int
    dropped: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    at_once: int = 0

    @property
    def old(self) -> str:
        return self.receipt.revision

    @property
    def ok(self) -> bool:
        return self.peak <= self.limit

    @property
    def replaced(self) -> tuple[Replacement, ...]:
        """Files of the old revision that go."""
        return tuple(step for step in self.steps if step.frees or step.moves)

    def to_dict(self) -> dict[str, Any]:
        return {
            "old": self.old,
            "files": [step.path for step in self.replaced],
            "dropped": list(self.dropped),
            "frees": self.at_once + sum(step.frees for step in self.steps),
            "peak": self.peak,
            "after": self.after,
            "limit": self.limit,
            "ok": self.ok,
        }

    def text(self) -> str:
        """What is going to be lost, for a person."""
        paths = [step.path for step in self.replaced]
        first = f"revision {', '.join(self.dropped)} is deleted first; " if self.dropped else ""
        return (
            f"{first}{units.files(len(paths))} of revision {self.old} are replaced one by one ({', '.join(paths)}); the disk holds "
            f"{units.human(self.peak)} at most, {units.human(self.limit)} are allowed. There is no way back to {self.old} then but "
            f"staging it again from a prefix that holds it; its manifest is kept as manifests/{self.old}.json"
        )


def begun(survey: Survey) -> Replacing | None:
    """The replacement that an earlier run began. One whose new revision has a receipt lacks nothing but its last deletions."""
    found = survey.replacing
    ended = found is not None and any(other.receipt.revision == found.new for other in survey.others)
    return None if ended else found


def in_place(staging: Staging, survey: Survey, ceiling_percent: int, also_needed: int = 0) -> InPlace | None:
    """How the old revision is replaced: the one that an earlier run began with, or the active one. None: there is none.

    Other revisions stay when that is enough. also_needed: bytes that come afterwards, Engram rows.
    """
    unfinished = begun(survey)
    old = unfinished.old if unfinished else survey.current
    found = {other.receipt.revision: other for other in survey.others}
    if old not in found or survey.receipt is not None:
        return None
    limit = survey.disk.size * ceiling_percent // 100
    others = tuple(name for name in found if name != old)
    plan = _plan(staging, survey, found[old], {}, limit=limit, also_needed=also_needed)
    if plan.ok or not others:
        return plan
    dropped = {name: found[name] for name in others}
    return _plan(staging, survey, found[old], dropped, limit=limit, also_needed=also_needed)


def _plan(
    staging: Staging,
    survey: Survey,
    old: OtherRevision,
    dropped: Mapping[str, OtherRevision],
    *,
    limit: int,
    also_needed: int,
) -> InPlace:
    carried = tuple(file.path for file in staging.left if _same_rows(file, old))
    gone = _Gone(staging, survey, old, dropped, carried)
    fetched = {step.file.path: step for step in staging.of("fetch")}
    steps = [
        Replacement(path, stat.allocated)
        for path, stat in old.found.items()
        if path not in fetched and path != NAME and gone(stat)  # what vouches for slices goes last
    ]
    steps += [_replacement(step, old, gone, survey.staged) for step in fetched.values()]
    # Small growth first keeps the peak low.
    steps.sort(key=lambda step: (step.needs - step.frees, step.path))
    used = survey.disk.used
    running = peak = used - gone.at_once
    for step in steps:
        running += step.needs - step.frees
        peak = max(peak, running)
    running += also_needed
    return InPlace(
        receipt=old.receipt,
        steps=tuple(steps),
        used=used,
        peak=max(peak, running),
        after=running,
        limit=limit,
        dropped=tuple(dropped),
        carried=carried,
        at_once=gone.at_once,
    )


def _same_rows(file: File, old: OtherRevision) -> bool:
    """Whether the old slice is one of this state of the file too: nothing of it lies in a chunk that changed."""
    held = old.slices.get(file.path)
    if held is None:
        return False
    if held.digest == file.digest and file.algorithm != "etag":  # an ETag tells of its own revision alone
        return True
    same = chunks.alike(file, held.size, old.chunks.get(file.path, ()))
    return held.size == file.size and not spans.without(held.spans, same)


class _Gone:
    """Whether deleting a file of the old revision gives its room back. at_once: bytes that the dropped revisions give back."""

    def __init__(
        self,
        staging: Staging,
        survey: Survey,
        old: OtherRevision,
        dropped: Mapping[str, OtherRevision],
        carried: tuple[str, ...],
    ) -> None:
        self._disk = survey.disk
        trees = {old.receipt.revision: old.found, **{name: other.found for name, other in dropped.items()}}
        everything = {f"{name}/{path}": stat for name, tree in trees.items() for path, stat in tree.items()}
        # What is linked into the new revision, or was by an earlier run, keeps a name there.
        self._kept = {everything[step.source].inode for step in staging.of("link") if step.source in everything}
        self._kept |= {old.found[path].inode for path in carried}
        self._names = Counter(stat.inode for stat in everything.values())
        olds = {stat.inode for stat in old.found.values()}
        alone = {stat.inode: stat.allocated for stat in everything.values() if stat.inode not in olds and self(stat)}
        self.at_once = sum(alone.values())

    def __call__(self, stat: Stat) -> bool:
        if stat.inode in self._kept or not self._disk.holds(stat):
            return False
        return self._names[stat.inode] >= stat.links


def _replacement(step: Step, old: OtherRevision, gone: _Gone, staged: Mapping[str, Stat]) -> Replacement:
    path, size = step.file.path, step.file.size
    begun, stat = staged.get(path + PARTIAL), old.found.get(path)
    if stat is None or not gone(stat):
        return Replacement(path, needs=max(0, size - (begun.allocated if begun else 0)))
    if begun is None and step.base.source == f"{old.receipt.revision}/{path}":
        return Replacement(path, needs=max(0, size - stat.allocated), moves=True)
    return Replacement(path, stat.allocated, max(0, size - (begun.allocated if begun else 0)))
