# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories with Engram rows of ours that no engine reads any more: what is in them, why they stay, and their deletion.

The usual directory lies in that of the checkpoint and is ours as a whole. One that a user named may hold other things: of it only what
engram-local.json names is ours, and what a run that did not end left under the names of the checkpoint's files.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from .. import made
from ..host import read_text
from . import row_survey
from .layout import Layout
from .manifest import PARTIAL
from .objects import INDEX
from .prune import Left
from .receipt import Stat
from .row_place import SLICES, RowPlace
from .row_standing import Rows
from .row_state import NAME
from .survey import receipts, tree


def found(layout: Layout, rows: Rows | None, engine_record: str) -> dict[str, Left]:
    """By directory, where there is something. rows: what the engine of this node reads."""
    usual = layout.base / SLICES
    places = [usual, *([Path(rows.directory)] if rows and rows.directory else [])]
    files = {place: _files(layout, place, place == usual) for place in dict.fromkeys(places) if place.is_dir()}
    return {
        str(place): Left(held, _why_kept(place, usual, held, rows, engine_record))
        for place, held in files.items()
        if held
    }


def _files(layout: Layout, place: Path, whole: bool) -> dict[str, Stat]:
    if whole:
        return tree(place)
    state, _problem = row_survey.read_state(RowPlace(layout, place))
    names = {entry.path + PARTIAL for receipt in receipts(layout) for entry in receipt.files}
    if state:
        names |= {NAME, INDEX, *(file.path for file in state.files)}
    stats = {name: row_survey.stat_of(place / name) for name in sorted(names)}
    return {name: stat for name, stat in stats.items() if stat}


def _why_kept(place: Path, usual: Path, files: dict[str, Stat], rows: Rows | None, engine_record: str) -> str:
    if rows is None:
        return "which placement the engine has is not known"
    if rows.placement == "directory" and place == (Path(rows.directory) if rows.directory else usual):
        return "the engine reads them"
    if str(place) == _of_unit(engine_record):
        return "the engine's unit reads them; start the group with the present placement first"
    return "a process has them open" if row_survey.busy(files) else ""


def _of_unit(path: str) -> str:
    """The directory that the engine's unit was rendered with."""
    try:
        return str((json.loads(read_text(path) or "{}").get("model") or {}).get("engram", ""))
    except (ValueError, AttributeError):
        return ""


def remove(layout: Layout, directory: str, left: Left) -> None:
    """What says that rows are there goes first, as everywhere. Raises OSError, HostError."""
    place = Path(directory)
    (place / NAME).unlink(missing_ok=True)
    RowPlace(layout, place).journal.unlink(missing_ok=True)
    if place == layout.base / SLICES:
        made.remove(place)  # it may be a mount point
        return
    for name in left.files:
        (place / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: others use it
        place.rmdir()
