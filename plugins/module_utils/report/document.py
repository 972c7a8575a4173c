# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON report (docs/report.schema.json), and what earlier ones say; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .checks import failed

SCHEMA = 2
RESULTS = ("ok", "warnings", "failures")
STATES = ("ok", "note", "failed")  # of all checks with one node and id; errors and warnings are failed
Key = tuple[str, str]  # node and id


@dataclass(frozen=True)
class Report:
    """One report. created: UTC, ISO 8601. site: what is shown beside the checks, as site.site gives it. benchmark: the last one, if any."""

    title: str
    created: str
    checks: Sequence[Mapping[str, Any]]
    site: Mapping[str, Any] | None = None
    benchmark: Mapping[str, Any] | None = None

    @property
    def counts(self) -> dict[str, int]:
        return counts(self.checks)

    @property
    def result(self) -> str:
        return result(self.counts)


@dataclass(frozen=True)
class Earlier:
    """What the history keeps of a report. looked: node and id of all checks that were made, each with the worst of STATES."""

    created: str
    result: str
    counts: Mapping[str, int]
    looked: Mapping[Key, str]


@dataclass(frozen=True)
class Changes:
    """What became of checks between two reports. A check that one of them did not make has not changed.

    failed: it fails now and did not then. held: it failed then and holds now. failed_new, failed_gone: it fails now, or failed then, and
    the other report has no result of it.
    """

    failed: tuple[Key, ...]
    held: tuple[Key, ...]
    failed_new: tuple[Key, ...]
    failed_gone: tuple[Key, ...]


def counts(checks: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many checks there are, how many hold, and the failed ones by severity; notes are those of severity info."""
    bad = [str(check["severity"]) for check in checks if not check["ok"]]
    notes, warnings = bad.count("info"), bad.count("warning")
    return {
        "checks": len(checks),
        "held": len(checks) - len(bad),
        "errors": len(bad) - notes - warnings,
        "warnings": warnings,
        "notes": notes,
    }


def result(numbers: Mapping[str, int]) -> str:
    """One of RESULTS: the worst that there is."""
    return "failures" if numbers["errors"] else "warnings" if numbers["warnings"] else "ok"


def document(report: Report) -> str:
    """The report as JSON, the failed checks first, worst first."""
    bad = failed(report.checks)
    text = {
        "schema": SCHEMA,
        "title": report.title,
        "created": report.created,
        "ok": report.result != "failures",
        "result": report.result,
        "counts": report.counts,
        "checks": [dict(check) for check in [*bad, *(check for check in report.checks if check["ok"])]],
        "site": report.site,
        "benchmark": report.benchmark,
    }
    return json.dumps(text, indent=2, sort_keys=False) + "\n"


def parse_earlier(texts: Iterable[str]) -> list[Earlier]:
    """The reports in these files, oldest first; what is no report of this schema is left out."""
    found = [earlier for text in texts for earlier in [_earlier(text)] if earlier]
    return sorted(found, key=lambda one: one.created)


def _earlier(text: str) -> Earlier | None:
    try:
        held = json.loads(text)
        if held["schema"] != SCHEMA or held["result"] not in RESULTS:
            return None
        numbers = {name: int(held["counts"][name]) for name in counts([])}
        return Earlier(str(held["created"]), str(held["result"]), numbers, looked(held["checks"]))
    except (ValueError, KeyError, TypeError):
        return None


def looked(checks: Iterable[Mapping[str, Any]]) -> dict[Key, str]:
    """The worst of STATES by node and id."""
    found: dict[Key, str] = {}
    for check in checks:
        key = (str(check["node"]), str(check["id"]))
        state = "ok" if check["ok"] else "note" if check["severity"] == "info" else "failed"
        found[key] = max(found.get(key, state), state, key=STATES.index)
    return found


def changes(now: Earlier, before: Earlier) -> Changes:
    """By node and id, in this order."""
    bad, was_bad = _failed(now), _failed(before)
    return Changes(
        failed=tuple(key for key in bad if before.looked.get(key, "failed") != "failed"),
        held=tuple(key for key in was_bad if now.looked.get(key) == "ok"),
        failed_new=tuple(key for key in bad if key not in before.looked),
        failed_gone=tuple(key for key in was_bad if key not in now.looked),
    )


def _failed(one: Earlier) -> list[Key]:
    return sorted(key for key, state in one.looked.items() if state == "failed")


def summary_of(report: Report) -> Earlier:
    """The report as a later one will see it."""
    return Earlier(report.created, report.result, report.counts, looked(report.checks))


def file_name(title: str, created: str) -> str:
    """Name of a report in the history: sorts by time, and is the same on every file system."""
    stamp = "".join(letter for letter in created[:19] if letter.isdigit() or letter == "T")
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in title)
    return f"{safe}-{stamp}Z.json"


def surplus(names: Iterable[str], title: str, keep: int) -> list[str]:
    """The oldest files of this title's history beyond the number to keep. Other files are left alone."""
    pattern = file_name(title, "")
    prefix = pattern.removesuffix("Z.json")
    stamp_length = len("20260101T000000")
    own = sorted(
        name
        for name in names
        if name.startswith(prefix)
        and name.endswith("Z.json")
        and len(name) == len(pattern) + stamp_length
        and name[len(prefix) : len(prefix) + 8].isdigit()
    )
    return own[: max(0, len(own) - keep)]
