# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the bytes to come fit on the disk, with the arithmetic and what could be freed."""

from __future__ import annotations

from ..report.checks import Check
from . import units
from .decide import Staging, Survey


def bytes_needed(staging: Staging, survey: Survey) -> int:
    """Bytes that the disk has to give: what is fetched, less what interrupted transfers of it hold already."""
    kept = {step.file.path for step in staging.of("staged")}
    held = sum(stat.allocated for path, stat in survey.staged.items() if path not in kept)
    return max(0, staging.size_of("fetch") - held)


def budget_check(staging: Staging, survey: Survey, ceiling_percent: int, node: str) -> Check:
    """Whether the bytes to come fit under the ceiling, with the arithmetic and what could be freed."""
    disk, needed = survey.disk, bytes_needed(staging, survey)
    limit = disk.size * ceiling_percent // 100
    after = disk.used + needed
    percent = 100 * after / disk.size if disk.size else 0.0
    found = (
        f"{units.human(disk.used)} used + {units.human(needed)} to come = {units.human(after)} "
        f"of {units.human(disk.size)} ({percent:.1f} %)"
    )
    return Check(
        id="checkpoint.budget",
        node=node,
        ok=needed == 0 or after <= limit,
        found=found,
        expected=f"at most {ceiling_percent} % = {units.human(limit)}",
        cure=_budget_cure(staging, survey, after - limit),
    )


def _budget_cure(staging: Staging, survey: Survey, short: int) -> str:
    freeable = freeable_bytes(staging.manifest.revision, survey)
    if not freeable:
        return f"free {units.human(short)} outside of the checkpoints, or raise checkpoint_disk_ceiling_percent"
    listed = ", ".join(f"{what} ({units.human(size)})" for what, size in freeable)
    return (
        f"free {units.human(short)}: of this checkpoint there is {listed}, {units.human(sum(s for _w, s in freeable))} "
        "in all; or raise checkpoint_disk_ceiling_percent"
    )


def freeable_bytes(revision: str, survey: Survey) -> list[tuple[str, int]]:
    """What could be deleted and how many bytes that gives back: files with one name only, links free nothing."""
    rows = []
    for other in survey.others:
        size = sum(stat.size for stat in other.found.values() if stat.links == 1)
        active = " which is current" if other.receipt.revision == survey.current else ""
        rows.append((f"revision {other.receipt.revision}{active}", size))
    rows += [(f"unfinished staging of {name}", size) for name, size in survey.leftovers.items() if name != revision]
    return [(what, size) for what, size in rows if size]
