# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last configuration of a rank that passed acceptance: what is kept of it, and how a node goes back to it; pure."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..plan import Change, Plan
from .unit import hash_of

FOLDER = "engine/passed"
FILE = "passed.json"
_NOT_ALLOWED = (
    "this run has not started it, and engine_restart_allowed is false. Cure: set it to true, and run the role again"
)


@dataclass(frozen=True)
class Passed:
    """files: text of every file that the rank ran from, by path, engine.json (record) among them. at: Unix seconds.

    group: hash of every rank by node, the same on all nodes that passed together.
    """

    hash: str
    at: float
    group: Mapping[str, str]
    files: Mapping[str, str]
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def renderer(self) -> str:
        return str(self.record.get("renderer", ""))

    @property
    def model(self) -> str:
        """Directory of the revision that it serves."""
        model = self.record.get("model")
        return str(model.get("path", "")) if isinstance(model, Mapping) else ""

    def text(self) -> str:
        """For a person."""
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.at))
        return f"{self.record.get('profile')}, configuration {self.hash}, which passed at {when}"


def of_files(files: Mapping[str, str | None], record: str, group: Mapping[str, str], now: float) -> Passed:
    """What the node runs from at present. files: text by path, None when absent. record: path of engine.json."""
    there = {path: text for path, text in files.items() if text is not None}
    return Passed(hash_of(there.get(record)), now, dict(group), there, _record(there.get(record)))


def _record(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def parse(text: str | None, record: str) -> Passed | None:
    """What was kept; None when there is nothing, or nothing of use."""
    kept = _record(text)
    files, group = kept.get("files"), kept.get("group")
    if not isinstance(files, dict) or not isinstance(group, dict) or not isinstance(kept.get("at"), (int, float)):
        return None
    if not kept.get("hash") or hash_of(files.get(record)) != kept["hash"]:
        return None
    return Passed(str(kept["hash"]), float(kept["at"]), group, files, _record(files[record]))


def render(passed: Passed) -> str:
    content = asdict(passed)
    del content["record"]
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def plan_keep(path: str, before: Passed | None, now: Passed) -> Plan:
    """Kept anew only when something differs; when it passed once more is no news."""
    if before and (before.hash, before.group, before.files) == (now.hash, now.group, now.files):
        return Plan()
    return Plan((Change(path, before.text() if before else "", now.text(), "the last configuration that passed"),))


def plan_restore(files: Mapping[str, tuple[str | None, str | None]]) -> Plan:
    """files: path to text as it is and as it was when it passed; None: absent."""
    changes = [
        Change(path, before or "", after or "", "as in the last configuration that passed")
        for path, (before, after) in files.items()
        if before != after
    ]
    return Plan(tuple(changes))


def readiness(passed: Passed | None) -> dict[str, Any]:
    """How to see that the group serves with it."""
    record = passed.record if passed else {}
    limits = record.get("readiness")
    return {
        "url": str(record.get("url", "")),
        "served_model_name": str(record.get("served_model_name", "")),
        "ready_timeout_s": int(limits.get("timeout_s", 0)) if isinstance(limits, Mapping) else 0,
    }


def memory(passed: Passed | None) -> dict[str, Any]:
    """What a rank takes with it; empty when its record does not say."""
    expected = passed.record.get("expected") if passed else None
    found = expected.get("memory") if isinstance(expected, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def unproven(passed: Passed | None, present: str) -> bool:
    """Whether a configuration with this hash is not the one that passed."""
    return passed is None or passed.hash != present


def problem(passed: Passed | None, staged: bool) -> str:
    """Why the node cannot go back to it; empty when it can. staged: whether its revision is still there."""
    if passed is None:
        return "no configuration has passed on this node"
    if not staged:
        return f"{passed.model} is not staged any more, which {passed.text()} serves"
    return ""


def way_back(
    results: Mapping[str, Mapping[str, Any]],
    failures: Mapping[str, str],
    wanted: bool,
    states: Mapping[str, str],
    allowed: bool = True,
) -> dict[str, Any]:
    """Whether all nodes can go back together, and what the run ends with. results: of engine_passed by node; failures: messages.

    states: of every rank after the return, empty before it. allowed: whether the group may be stopped for it.
    """
    reasons = [f"{node}: {text}" if len(results) > 1 else text for node, text in failures.items() if text]
    reason = "\n".join(dict.fromkeys(reasons)) or "it did not pass"
    why = "engine_rollback is false" if not wanted else _no_way(results) or ("" if allowed else _NOT_ALLOWED)
    if why and not states:
        return {"possible": False, "said": f"{reason}\nThe group was not taken back to an earlier configuration: {why}"}
    described = next((str(result.get("described")) for result in results.values()), "")
    if states and set(states.values()) == {"ready"}:
        return {"possible": True, "said": f"{reason}\nThe group is back at {described}, and serves"}
    late = ", ".join(f"{node} is {state}" for node, state in states.items() if state != "ready")
    after = f"{reason}\nThe group was taken back to {described}, which does not serve either: {late}"
    return {"possible": True, "said": after}


def _no_way(results: Mapping[str, Mapping[str, Any]]) -> str:
    problems = [f"{node}: {result['problem']}" for node, result in results.items() if result.get("problem")]
    if problems:
        return "; ".join(problems)
    if len({json.dumps(result.get("group"), sort_keys=True) for result in results.values()}) != 1:
        return "the nodes have configurations that did not pass together"
    return "" if any(result.get("differs") for result in results.values()) else "it is the one that passed last"
