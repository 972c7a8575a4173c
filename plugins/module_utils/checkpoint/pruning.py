# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at what there is of a checkpoint on this node, and deletes what the plan says: out of sight by one rename first."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..host import HostError
from . import replace as replacement
from . import row_leftovers
from .layout import Layout
from .lock import locked
from .manifest import name_problem
from .prune import Item, Pruning, Seen, prune
from .receipt import ReceiptError, Stat
from .row_standing import Rows
from .standing import ENGINE_RECORD, read_record, served
from .survey import current_revision, disk_of, receipts, tree
from .switch import Record


def look(layout: Layout, foreign: Iterable[str], rows: Rows | None = None) -> Seen:
    """Raises HostError, also for a record that cannot be read: what may go is not known then.

    rows: what the engine of this node reads, where somebody says it.
    """
    try:
        replacing = replacement.read(layout)
    except ReceiptError as error:
        raise HostError(str(error)) from error
    known = [receipt.revision for receipt in receipts(layout)]
    return Seen(
        disk=disk_of(layout.base),
        current=current_revision(layout),
        record=read_record(layout),
        revisions={name: tree(layout.revision(name)) for name in known},
        unknown={name: files for name, files in _directories(layout.revisions).items() if name not in known},
        staging=_directories(layout.stagings),
        foreign=_foreign(foreign),
        serves=served(layout),
        rows=row_leftovers.found(layout, rows, ENGINE_RECORD),
        busy=frozenset({replacing.old, replacing.new}) if replacing else frozenset(),
    )


def _directories(place: Path) -> dict[str, dict[str, Stat]]:
    if not place.is_dir():
        return {}
    return {path.name: tree(path) for path in sorted(place.iterdir()) if path.is_dir() and not path.is_symlink()}


def _foreign(paths: Iterable[str]) -> dict[str, int]:
    """Allocated bytes of every directory in these ones: each is a copy of somebody's."""
    found = {}
    for place in map(Path, paths):
        inside = sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
        for path in inside or ([place] if place.is_dir() else []):
            found[str(path)] = sum(stat.allocated for stat in tree(path).values())
    return found


@dataclass(frozen=True)
class Wish:
    """What is to go. keep: revisions that stay. unfinished: begun stagings too. unused_rows: Engram rows that no engine reads too.

    rows: what the engine of this node reads, None when nobody says it.
    """

    keep: int
    unfinished: bool = False
    unused_rows: bool = False
    rows: Rows | None = None


def plan(layout: Layout, wish: Wish, foreign: Sequence[str]) -> Pruning:
    return prune(look(layout, foreign, wish.rows), wish.keep, wish.unfinished, wish.unused_rows)


def after_switch(layout: Layout, revision: str, keep: int) -> int:
    """Bytes that pruning will give back once this revision is active."""
    seen = look(layout, ())
    if seen.busy:
        return 0
    origin = (seen.record.active or seen.record.left) if seen.record.open else seen.current
    previous = origin if origin != revision else seen.record.previous
    known = {**seen.revisions, **({} if revision in seen.revisions else {revision: {}})}
    return prune(replace(seen, current=revision, record=Record(revision, previous), revisions=known), keep, False).frees


def apply(layout: Layout, wish: Wish) -> Pruning:
    """Delete what may go, seen again under the lock of the stagings. Raises HostError."""
    with locked(layout):
        seen = look(layout, (), wish.rows)
        planned = prune(seen, wish.keep, wish.unfinished, wish.unused_rows)
        try:
            for item in planned.removed:
                _remove(layout, item, seen)
        except OSError as error:
            raise HostError(f"cannot delete from {layout.base}: {error}; run again after the cure") from error
    return planned


def _remove(layout: Layout, item: Item, seen: Seen) -> None:
    if item.kind == "Engram rows":
        return row_leftovers.remove(layout, item.name, seen.rows[item.name])
    if item.kind == "revision":
        return replacement.discard(layout, item.name)
    if item.kind == "unfinished staging" and not name_problem(item.name):
        layout.journal(item.name).unlink(missing_ok=True)
        layout.progress(item.name).unlink(missing_ok=True)
    shutil.rmtree(layout.stagings / item.name)
    return None
