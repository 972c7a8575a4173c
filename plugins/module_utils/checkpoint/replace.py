# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes the old revision apart file by file while the new one comes. What is left at any point is in ``replacing.json``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..host import HostError, read_text, sync_directory, write_text
from . import config_edit, replacing, row_state
from .inplace import InPlace, Replacement
from .layout import TRASH, Layout
from .manifest import PARTIAL
from .receipt import ReceiptError, render
from .row_place import RowPlace


def read(layout: Layout) -> replacing.Replacing | None:
    """What an earlier run began. Raises ReceiptError."""
    return replacing.parse(read_text(layout.replacing), str(layout.replacing))


def begin(layout: Layout, plan: InPlace, new: str) -> None:
    """From here on the old revision does not count as complete: its receipt moves into the record. Raises HostError."""
    if read_text(layout.manifest(plan.old)) is None:
        write_text(layout.manifest(plan.old), render(plan.receipt))
    write_text(layout.replacing, replacing.render(replacing.Replacing(new, plan.receipt)))
    layout.receipt(plan.old).unlink(missing_ok=True)
    sync_directory(layout.receipts)
    _carry(layout, plan, layout.staging(new))
    for name in plan.dropped:
        discard(layout, name)


def _carry(layout: Layout, plan: InPlace, staged: Path) -> None:
    """Give the new revision the slices that stay. What vouches for their rows comes last, as a copy: it is written anew there."""
    if not plan.carried:
        return
    old = layout.revision(plan.old)
    text = read_text(old / row_state.NAME)
    try:
        for path in plan.carried:
            if not (staged / path).exists():
                (staged / path).parent.mkdir(parents=True, exist_ok=True)
                os.link(old / path, staged / path)
    except OSError as error:
        raise HostError(f"cannot link the slices in {old} to {staged}: {error.strerror}; run again") from error
    if text is not None:
        write_text(staged / row_state.NAME, text)


def discard(layout: Layout, revision: str) -> None:
    """Delete a revision: out of sight by one rename first, so that it is there whole or not at all. Raises HostError."""
    place = layout.stagings / f"{TRASH}{revision}"
    try:
        if layout.revision(revision).is_dir():
            shutil.rmtree(place, ignore_errors=True)
            layout.revision(revision).rename(place)
            sync_directory(layout.revisions)
        layout.receipt(revision).unlink(missing_ok=True)
        layout.manifest(revision).unlink(missing_ok=True)
        forget_config(layout, revision)
        RowPlace(layout, layout.revision(revision)).journal.unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise HostError(
            f"cannot delete revision {revision} from {layout.base}: {error}; run again after the cure"
        ) from error


def forget_config(layout: Layout, revision: str) -> None:
    """Remove what stands in for config.json of a revision that goes, and originals that no other revision's edit has."""
    layout.config_record(revision).unlink(missing_ok=True)
    records = (config_edit.parse(read_text(path)) for path in layout.config_records.glob("*.json"))
    known = {record.original for record in records if record}
    for path in layout.config_originals.glob("*.json"):
        if path.stem not in known:
            path.unlink(missing_ok=True)


def release(layout: Layout, old: str, step: Replacement, staged: Path) -> None:
    """Give up the old state of one file; staged: where its new state comes together. Raises HostError."""
    path = layout.revision(old) / step.path
    try:
        if step.moves and path.exists():
            partial = staged.with_name(staged.name + PARTIAL)
            partial.parent.mkdir(parents=True, exist_ok=True)
            path.replace(partial)
            sync_directory(partial.parent)
        elif step.frees:
            path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_directory(path.parent)
    except OSError as error:
        raise HostError(
            f"cannot make room for {step.path} in {path.parent}: {error.strerror}; run again after the cure"
        ) from error


def finish(layout: Layout, complete: str) -> None:
    """A revision is complete: nothing is being replaced any more. What is left of the old one are names of shared files."""
    try:
        record = read(layout)
    except ReceiptError:
        return
    if record is None:
        return
    if record.old != complete:
        shutil.rmtree(layout.revision(record.old), ignore_errors=True)
        forget_config(layout, record.old)
    layout.replacing.unlink(missing_ok=True)
    sync_directory(layout.base)


def finish_ended(layout: Layout) -> None:
    """Finish a replacement whose new revision is complete already: its run ended before it did."""
    try:
        record = read(layout)
    except ReceiptError:
        return
    if record and layout.receipt(record.new).exists() and layout.revision(record.new).is_dir():
        finish(layout, record.new)
