# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report says to a person; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .checks import errors, failed, line


def collected(
    hostvars: Mapping[str, Mapping[str, Any]], hosts: Iterable[str], names: str | Sequence[str]
) -> list[dict[str, Any]]:
    """The ``checks`` of the registered results called names, of every host in order; hosts without them give none."""
    wanted = [names] if isinstance(names, str) else list(names)
    checks: list[dict[str, Any]] = []
    for host in hosts:
        for name in wanted:
            result = hostvars[host].get(name) or {}
            checks.extend(dict(check) for check in result.get("checks") or [])
    return checks


def verdict(title: str, checks: Sequence[Mapping[str, Any]]) -> str:
    """One message: how many checks held, then each one that did not, worst first, with its cure.

    One of severity info that does not hold is no failure, only something to know: it is listed as a note.
    """
    told = failed(checks)
    notes = sum(check["severity"] == "info" for check in told)
    bad = len(told) - notes
    judged = len(checks) - notes
    first = f"{bad} of {judged} checks failed" if bad else f"all {judged} checks hold"
    noted = f", {notes} to know" if notes else ""
    return "\n".join([f"{title}: {first}{noted}", *(f"- {line(check)}" for check in told)])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys as text columns under their keys; numbers to the right. Empty rows give empty text."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(names))]
    right = [all(isinstance(row.get(name), int) for row in rows) for name in names]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    )


def site_rows(hostvars: Mapping[str, Mapping[str, Any]], hosts: Iterable[str]) -> list[dict[str, str]]:
    """One row a node from the registered results of the roles' verify tasks: legs up, files and bytes, engine."""
    return [_site_row(host, hostvars[host]) for host in hosts]


def _site_row(host: str, variables: Mapping[str, Any]) -> dict[str, str]:
    fabric = variables.get("fabric_checks") or {}
    checkpoint = (variables.get("checkpoint_checks") or {}).get("checkpoint") or {}
    engine = variables.get("engine_checks") or {}
    current = checkpoint.get("current") or "none"
    revision: Mapping[str, Any] = next(
        (found for found in checkpoint.get("revisions", ()) if found["revision"] == current), {}
    )
    return {
        "node": host,
        "legs up": f"{fabric['legs_up']} of {fabric['legs_total']}" if "legs_up" in fabric else "not checked",
        "revision": current,
        "files": str(revision.get("files", 0)),
        "bytes": f"{revision.get('bytes', 0):,}",
        "engine": _engine(engine.get("checks")),
    }


def _engine(checks: Sequence[Mapping[str, Any]] | None) -> str:
    if not checks:
        return "not checked"
    bad = errors(checks)
    return "healthy" if not bad else f"failing: {bad[0]['id']} {bad[0]['found']}"
