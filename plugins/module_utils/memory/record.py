# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the memory settings replaced, kept on the node so that they can be undone; pure."""

from __future__ import annotations

import json
from typing import Any

from .settings import MemoryPlan
from .swap import fstab_swaps

KEPT_SUFFIX = ".gb10-ring"


def merged(text: str, planned: MemoryPlan) -> str:
    """The record with this plan's earlier values added. What is recorded already stays: it is the machine's own value."""
    record: dict[str, Any] = {"sysctls": {}, "units": {}, "fstab": [], "swaps": [], **_parsed(text)}
    for change in planned.settings:
        record["sysctls"].setdefault(change.what, change.before)
    for unit in planned.mask:
        record["units"].setdefault(unit.name, unit.path + KEPT_SUFFIX if unit.own else None)
    lines = fstab_swaps(planned.fstab.before) if planned.fstab else ()
    record["fstab"] += [line for line in lines if line not in record["fstab"]]
    record["swaps"] += [area.name for area in planned.swapoff if area.name not in record["swaps"]]
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def _parsed(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"is not the JSON that memory_settings writes ({error}); move it away and run again"
        ) from error
    if not isinstance(record, dict):
        raise ValueError("is not the JSON mapping that memory_settings writes; move it away and run again")
    return record
