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
from . import row_standing, switch
from .activate import Activation, Link, activation
from .layout import Layout
from .receipt import Receipt, ReceiptError, wrong_files, wrong_text
from .row_standing import Rows
from .survey import current_revision, read_receipt, receipts, tree

#: What the engine's unit was rendered from.
ENGINE_RECORD = "/etc/gb10-ring/engine.json"


def read_record(layout: Layout) -> switch.Record:
    """Raises HostError when there is one that cannot be read."""
    try:
        return switch.parse(read_text(layout.switch), str(layout.switch))
    except switch.SwitchError as error:
        raise HostError(str(error)) from error


def state(layout: Layout, engine_record: str = ENGINE_RECORD, rows: Rows | None = None) -> dict[str, Any]:
    """The standing of this node, for a decision of the group. rows: what its engine reads."""
    known = receipts(layout)
    damaged = {one.revision: wrong_text(wrong_files(one, tree(layout.revision(one.revision)))) for one in known}
    current = current_revision(layout)
    damaged |= {current: _gone(layout, current)} if current and current not in damaged else {}
    problems = {
        receipt.revision: row_standing.unsafe(layout, receipt, rows)
        for receipt in known
        if not damaged[receipt.revision]
    }
    return {
        "current": current,
        "record": asdict(read_record(layout)),
        "complete": [name for name, problem in problems.items() if not problem],
        "unfit": {name: problem for name, problem in problems.items() if problem},
        "damaged": {name: text for name, text in damaged.items() if text},
        "serves": served(layout, engine_record),
    }


def _gone(layout: Layout, revision: str) -> str:
    """Why a revision is not among those with a receipt and a directory; empty for one that was never verified or given up."""
    receipt, problem = _receipt(layout, revision)
    return problem or ("its directory is missing" if receipt else "")


def served(layout: Layout, path: str = ENGINE_RECORD) -> str:
    """The revision of this checkpoint that the engine's unit names."""
    try:
        model = json.loads(read_text(path) or "{}").get("model") or {}
        return str(model["revision"]) if Path(model["root"]) == layout.base else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def activation_of(layout: Layout, revision: str, rows: Rows | None = None) -> Activation:
    """rows: what the engine of this node reads, where somebody says it."""
    link = Link()
    if layout.current.is_symlink():
        link = Link(str(layout.current.readlink()))
    elif layout.current.exists():
        link = Link(foreign=True)
    receipt, problem = _receipt(layout, revision)
    if receipt:
        problem = problem or row_standing.unfit(layout, receipt, rows)
    return activation(
        str(layout.current),
        link,
        layout.link_text(revision),
        receipt=receipt,
        found=tree(layout.revision(revision)),
        problem=problem,
    )


def way_back_problem(layout: Layout, wanted: switch.Step, rows: Rows | None) -> str:
    """Why the revision that a revert leaves active may not be served with the Engram rows that are here now, or an empty text."""
    receipt, problem = _receipt(layout, wanted.link) if wanted.link else (None, "")
    return problem or (row_standing.unsafe(layout, receipt, rows) if receipt else "")


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
