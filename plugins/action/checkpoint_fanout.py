# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.checkpoint_fanout: decides who fetches what from whom, and makes the token. Touches no node."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import fanout, units
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import Manifest, ManifestError, parse
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import FANOUT_OPTIONS, range_problems

_TOKEN_BYTES = 24


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(argument_spec=FANOUT_OPTIONS)
        known = task_vars or {}
        hosts = options["hosts"] or known.get("ansible_play_hosts") or []
        try:
            problems = [
                *range_problems(options),
                fanout.forks_problem(len(hosts), int(known.get("ansible_forks") or 5)),
            ]
            if any(problems):
                raise fanout.FanoutError("; ".join(problem for problem in problems if problem))
            plan = parse(options["plan"])
            nodes = fanout.nodes_of(rows(known.get("hostvars") or {}, hosts), plan.files)
        except (fanout.FanoutError, ManifestError) as error:
            return {**result, "failed": True, "msg": str(error)}
        # The result holds the token, so nobody is shown it; an error above is for everybody.
        hidden = {"changed": False, "_ansible_no_log": True}
        return {**result, **hidden, **answer(plan, nodes, options, secrets.token_urlsafe(_TOKEN_BYTES))}


def rows(hostvars: Mapping[str, Any], hosts: list[str]) -> list[dict[str, Any]]:
    """What the planner needs to know of each host."""
    found = []
    for host in hosts:
        variables = hostvars[host]
        row = {name: variables[name] for name in ("ring_rank", "fabric_ports") if name in variables}
        lacking = (variables.get("checkpoint_budget") or {}).get("lacking")
        slices = (variables.get("checkpoint_engram_budget") or {}).get("sliced")
        found.append({"name": host, "lacking": lacking, "slices": slices, **row})
    return found


def answer(plan: Manifest, nodes: tuple[fanout.Node, ...], options: Mapping[str, Any], token: str) -> dict[str, Any]:
    """The result of the task."""
    sharing = fanout.share(plan.files, nodes)
    port, patience = options["port"], options["patience_s"]
    sizes = {file.path: file.size for file in plan.files}
    home = {node.name: sum(sizes[path] for path, name in sharing.homes.items() if name == node.name) for node in nodes}
    return {
        "token": token,
        "nodes": {
            node.name: {
                "listen": fanout.listen_of(sharing, node),
                "peers": fanout.peers_of(sharing, node.name, port, token, patience),
                "home_bytes": home[node.name],
            }
            for node in nodes
        },
        "msg": ", ".join(f"{name} fetches {units.human(count)} from the store" for name, count in home.items()),
    }
