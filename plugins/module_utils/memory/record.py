# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the memory settings replaced, kept on the node so that they can be undone; pure."""

from __future__ import annotations

from typing import Any

from .. import before
from .settings import MemoryPlan
from .swap import fstab_swaps

KEPT_SUFFIX = ".gb10-ring"
EMPTY: dict[str, Any] = {"sysctls": {}, "files": {}, "units": {}, "fstab": [], "swaps": []}


def parsed(text: str | None) -> dict[str, Any]:
    """The record with every part. Raises ValueError."""
    found = before.parse(text, "memory_settings")
    return {name: type(empty)(found.get(name, empty)) for name, empty in EMPTY.items()}


def merged(text: str, planned: MemoryPlan) -> str:
    """The record with this plan's earlier values added. What is recorded already stays: it is the machine's own value."""
    record = parsed(text)
    for change in planned.settings:
        record["sysctls"].setdefault(change.what, change.before)
    record["files"] = before.remember(record["files"], planned.files)
    for unit in planned.mask:
        record["units"].setdefault(unit.name, unit.path + KEPT_SUFFIX if unit.own else None)
    lines = fstab_swaps(planned.fstab.before) if planned.fstab else ()
    record["fstab"] += [line for line in lines if line not in record["fstab"]]
    record["swaps"] += [area.name for area in planned.swapoff if area.name not in record["swaps"]]
    return before.render(record)
