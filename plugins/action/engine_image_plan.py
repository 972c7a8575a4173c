# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.engine_image_plan: decides who brings the image from where, and makes the token. Touches no node."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.fanout import FanoutError
from ansible_collections.gb10.ring.plugins.module_utils.engine import image

_TOKEN_BYTES = 24
SPEC = {
    "runtime": {"type": "str", "choices": list(image.RUNTIMES), "required": True},
    "image": {"type": "str", "default": ""},
    "image_id": {"type": "str", "default": ""},
    "archive": {"type": "path", "default": ""},
    "assumed_gib": {"type": "float", "default": 22},
    "ceiling_percent": {"type": "int", "default": 85},
    "hosts": {"type": "list", "elements": "str"},
    "phase": {"type": "str", "choices": ["move", "arrived", "unit"], "default": "move"},
    "node": {"type": "str"},
}


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(argument_spec=SPEC, required_if=[("phase", "unit", ("node",))])
        known = task_vars or {}
        hosts = options["hosts"] or known.get("ansible_play_hosts_all") or []
        try:
            problems = image.options_problems(options)
            if problems:
                raise FanoutError("; ".join(problems))
            nodes = image.nodes_of(rows(known.get("hostvars") or {}, hosts))
        except FanoutError as error:
            return {**result, "failed": True, "msg": str(error)}
        wanted = image.Wanted(
            options["runtime"],
            options["image"],
            options["image_id"],
            options["archive"],
            int(options["assumed_gib"] * (1 << 30)),
        )
        if options["phase"] != "move":
            found = image.checks(wanted, nodes, units_too=options["phase"] == "unit")
            shown = [
                check.to_dict() for check in found if options["phase"] == "arrived" or check.node == options["node"]
            ]
            return {**result, "changed": False, "checks": shown}
        decision = image.decide(wanted, nodes, options["ceiling_percent"])
        # The result holds the token, so nobody is shown it; an error above is for everybody.
        hidden = {"changed": False, "_ansible_no_log": True}
        return {**result, **hidden, **answer(decision, options["image"], secrets.token_urlsafe(_TOKEN_BYTES))}


def rows(hostvars: Mapping[str, Any], hosts: list[str]) -> list[dict[str, Any]]:
    """What the planner needs to know of each host."""
    found = []
    for host in hosts:
        variables = hostvars[host]
        row = {name: variables[name] for name in ("ring_rank", "fabric_ports") if name in variables}
        found.append({"name": host, "look": variables.get("engine_image_look"), **row})
    return found


def answer(decision: image.Decision, reference: str, token: str) -> dict[str, Any]:
    """The result of the task."""
    return {
        "token": token,
        "image_id": decision.image_id,
        "moved": decision.moved,
        "waves": decision.waves,
        "checks": [check.to_dict() for check in decision.checks],
        "nodes": {
            name: {
                "step": step.action,
                "wave": step.wave,
                "sources": list(step.sources),
                "listen": [dict(row) for row in step.listen],
                "move": image.move(decision, name, reference),
            }
            for name, step in decision.steps.items()
        },
    }
