# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.checkpoint_restage: gathers what the nodes said; the decision is in module_utils/checkpoint/restage.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import restage
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.objects import INDEX
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.switch import Standing
from ansible_collections.gb10.ring.plugins.module_utils.report.summary import table

SPEC = {
    "mode": {"type": "str", "choices": ["restage", "rollback"], "default": "restage"},
    "revision": {"type": "str"},
    "in_place": {"type": "bool", "default": False},
    "hosts": {"type": "list", "elements": "str"},
}

#: Checks of engram_rows that the decision treats apart.
ROOM, SERVED = "checkpoint.engram_budget", "checkpoint.engram_served"

display = Display()


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(
            argument_spec=SPEC, required_if=[("mode", "restage", ["revision"])]
        )
        known = task_vars or {}
        hosts = options["hosts"] or known.get("ansible_play_hosts_all") or []
        hostvars = known.get("hostvars") or {}
        back = options["mode"] == "rollback"
        nodes = [(standing_node if back else budget_node)(host, hostvars[host]) for host in hosts]
        lacking = [host for host, node in zip(hosts, nodes, strict=True) if node is None]
        if lacking:
            return {**result, "failed": True, "msg": f"nothing was changed: nothing was heard of {', '.join(lacking)}"}
        present = [node for node in nodes if node is not None]
        wanted = options["revision"] or ""
        decision = restage.roll_back(present, wanted) if back else restage.decide(present, wanted, options["in_place"])
        if decision.rows:
            display.display(f"\n{table(decision.rows)}\n")
        if decision.refusal:
            return {**result, "failed": True, "msg": decision.text()}
        display.display(f"{decision.text()}\n")
        told = {"changed": False, "failed": False, "msg": decision.text(), "rows": [dict(row) for row in decision.rows]}
        resumes = any(node.standing.record.open for node in present)
        return {**result, **told, **decision.to_dict(), "resumes": resumes}


def budget_node(host: str, variables: Mapping[str, Any]) -> restage.Node | None:
    """What the host said of itself with the budget; None when it said nothing."""
    found = variables.get("checkpoint_budget") or {}
    if "standing" not in found:
        return None
    rows = variables.get("checkpoint_engram_budget") or {}
    bring = rows.get("summary") or {"fetch": {"files": 0, "bytes": 0}, "link": 0}
    said = list(rows.get("checks") or [])
    # Where the old revision makes room, the budget of the checkpoint has the rows in it. What a running engine reads changes with consent.
    apart = {SERVED, *((ROOM,) if found["in_place"] else ())}
    # The index is copied beside the rows, and is none of them: tables lie where their shards have them.
    paths = tuple(path for path in bring.get("paths", ()) if path != INDEX)
    return restage.Node(
        standing=with_health(Standing.from_dict(host, found["standing"]), variables),
        unrecorded=found["stages"] or bool(rows.get("stages")),
        rows=bring["fetch"]["bytes"],
        row_files=len(paths),
        row_paths=paths,
        manifests=found.get("manifests", "manifests"),
        shares=rows["path"] if rows.get("placement") == "directory" else "",
        held=bool(rows.get("held")),
        served=[check for check in said if check["id"] == SERVED],
        summary=found["summary"],
        budget={name: value for name, value in found["budget"].items() if name != "node"},
        in_place=found["in_place"],
        frees=found["frees"],
        checks=[*found["checks"], *(check for check in said if check["id"] not in apart)],
    )


def standing_node(host: str, variables: Mapping[str, Any]) -> restage.Node | None:
    """What the host said of itself when it was looked at."""
    found = (variables.get("checkpoint_checks") or {}).get("checkpoint") or {}
    if "standing" not in found:
        return None
    return restage.Node(standing=with_health(Standing.from_dict(host, found["standing"]), variables))


def with_health(standing: Standing, variables: Mapping[str, Any]) -> Standing:
    """Whether its engine serves, where somebody looked."""
    checks = (variables.get("engine_checks") or {}).get("checks")
    return standing if checks is None else replace(standing, healthy=all(check["ok"] for check in checks))
