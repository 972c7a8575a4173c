# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where this node stands between revisions: reads the record of its switch, and carries out a phase of one."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..host import HostError, read_text, sync_directory, write_text
from ..plan import Plan
from . import row_place, row_survey, switch
from .activate import Activation, Link, activation
from .layout import Layout
from .receipt import Receipt, ReceiptError, wrong_files
from .survey import current_revision, read_receipt, receipts, tree

#: What the engine's unit was rendered from.
ENGINE_RECORD = "/etc/gb10-ring/engine.json"


def read_record(layout: Layout) -> switch.Record:
    """Raises HostError when there is one that cannot be read."""
    try:
        return switch.parse(read_text(layout.switch), str(layout.switch))
    except switch.SwitchError as error:
        raise HostError(str(error)) from error


def state(layout: Layout, engine_record: str = ENGINE_RECORD) -> dict[str, Any]:
    """The standing of this node, for a decision of the group."""
    complete = [
        receipt.revision
        for receipt in receipts(layout)
        if not wrong_files(receipt, tree(layout.revision(receipt.revision)))
        and not (receipt.sliced and slices_problem(layout, receipt))
    ]
    return {
        "current": current_revision(layout),
        "record": asdict(read_record(layout)),
        "complete": complete,
        "serves": served(layout, engine_record),
    }


def served(layout: Layout, path: str = ENGINE_RECORD) -> str:
    """The revision of this checkpoint that the engine's unit names."""
    try:
        model = json.loads(read_text(path) or "{}").get("model") or {}
        return str(model["revision"]) if Path(model["root"]) == layout.base else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def activation_of(layout: Layout, revision: str, engram_directory: str = "") -> Activation:
    """engram_directory: where the engine reads Engram rows, when that is not the revision itself."""
    link = Link()
    if layout.current.is_symlink():
        link = Link(str(layout.current.readlink()))
    elif layout.current.exists():
        link = Link(foreign=True)
    receipt, problem = _receipt(layout, revision)
    if receipt and receipt.sliced:
        problem = problem or slices_problem(layout, receipt)
    if receipt and engram_directory:
        problem = problem or _rows_problem(layout, receipt, engram_directory)
    return activation(
        str(layout.current),
        link,
        layout.link_text(revision),
        receipt=receipt,
        found=tree(layout.revision(revision)),
        problem=problem,
    )


def slices_problem(layout: Layout, receipt: Receipt) -> str:
    """Why the slices of a revision are not there, or an empty text."""
    place = row_place.place_of(layout, receipt.revision, "shard")
    state, problem = row_survey.read_state(place)
    if problem:
        return problem
    held = {file.path: (file.size, file.mtime_ns) for file in state.files} if state else {}
    stats = {path: row_survey.stat_of(place.target(path)) for path in receipt.sliced}
    wrong = [path for path, stat in stats.items() if stat is None or held.get(path) != (stat.size, stat.mtime_ns)]
    if not wrong:
        return ""
    return (
        f"revisions/{receipt.revision} is to have slices of {', '.join(wrong)}, and nothing says that their rows are there; bring "
        "them (gb10.ring.engram_rows with placement shard, or the playbook that stages the checkpoint)"
    )


def _rows_problem(layout: Layout, receipt: Receipt, directory: str) -> str:
    """Why the rows in a directory that all revisions share are not those of this one, or an empty text."""
    state, _problem = row_survey.read_state(row_place.place_of(layout, receipt.revision, "directory", directory))
    digests = {entry.path: entry.digest for entry in receipt.files}
    held = state.files if state else ()
    wrong = [file.path for file in held if file.path in digests and file.digest != digests[file.path]]
    if not wrong or state is None:
        return ""
    return (
        f"{directory} holds Engram rows of {', '.join(wrong)} as revision {state.revision} has them, not as {receipt.revision} does; "
        "bring those of this revision first (restage.yml), or let each revision have its own (checkpoint_engram_placement: shard)"
    )


def _receipt(layout: Layout, revision: str) -> tuple[Receipt | None, str]:
    try:
        return read_receipt(layout, revision), ""
    except ReceiptError as error:
        return None, str(error)


def step(
    layout: Layout, phase: switch.Phase, revision: str, origin: str | None, downtime_s: float | None = None
) -> tuple[switch.Step, Plan]:
    """What the phase does here. downtime_s: what the switch cost, for the record. Raises HostError."""
    record, current = read_record(layout), current_revision(layout)
    try:
        wanted = switch.step(phase, record, current, revision, origin)
        if downtime_s is not None:
            wanted = replace(wanted, record=replace(wanted.record, downtime_s=round(downtime_s, 2)))
    except switch.SwitchError as error:
        raise HostError(f"cannot {phase} the switch to {revision}: {error}") from error
    return wanted, switch.plan_of(wanted, record, current, str(layout.current), str(layout.switch))


def apply(layout: Layout, wanted: switch.Step) -> None:
    """Link first: the record says what the link means, and a run that ends between them is told by both. Raises HostError."""
    if wanted.link != current_revision(layout):
        point(layout, wanted.link)
    write_text(layout.switch, switch.render(wanted.record))


def point(layout: Layout, revision: str) -> None:
    """Move the link in one rename; an empty revision takes it away. Raises HostError."""
    fresh = layout.base / ".current.new"
    try:
        fresh.unlink(missing_ok=True)
        if revision:
            fresh.symlink_to(layout.link_text(revision))
            fresh.replace(layout.current)
        else:
            layout.current.unlink(missing_ok=True)
        sync_directory(layout.base)
    except OSError as error:
        raise HostError(f"cannot point {layout.current} to {revision or 'nothing'}: {error.strerror}") from error
