# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call of the module engine_group: from its options to a plan, to its result."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import own_service_host
from ..memory import guard_machine, guard_notice
from ..own_service import Found, ServicePlan, decide, decide_absent, digest_of
from ..report.checks import Check
from . import (
    group,
    group_channel,
    group_command,
    group_incident,
    group_intent,
    group_machine,
    group_order,
    group_service,
    group_unit,
)
from .group_unit import PROGRAM, UNIT, Places, Wanted

FRESH_S = 30.0  # it writes every second
_MODULES = (
    *(group, group_channel, group_command, group_incident, group_intent, group_machine, group_order, group_service),
    *(guard_machine, guard_notice),
)


def wanted(options: Mapping[str, Any]) -> Wanted:
    """Raises ValueError with everything that is wrong."""
    try:
        ranks = {str(name): int(rank) for name, rank in options["ranks"].items()}
    except (TypeError, ValueError):
        raise ValueError(f"ranks is {options['ranks']!r}, expected a whole number for each node") from None
    found = Wanted(
        node=options["node"],
        engine=options["engine_unit"],
        ranks=ranks,
        addresses={str(name): str(value) for name, value in options["addresses"].items()},
        port=options["port"],
        silence_s=options["silence_s"],
        stop_s=options["stop_s"],
    )
    problems = group_unit.problems(found, options["token"])
    if problems:
        raise ValueError("; ".join(problems))
    return found


@dataclass
class Call:
    """wanted: None to have no supervisor. found: the node as it is now."""

    places: Places
    wanted: Wanted | None
    digest: str
    found: Found
    planned: ServicePlan
    wait: float

    def apply(self) -> None:
        """Raises HostError."""
        service = self.places.service()
        own_service_host.apply(service, self.planned)
        if self.planned.plan.changed:
            self.found = own_service_host.look(service)

    def result(self, now: float) -> dict[str, Any]:
        """What the module returns. now: the node's monotonic seconds, as they were before a wait."""
        plan = self.planned.plan
        shown = {
            "changed": plan.changed,
            "diff": plan.diff(),
            "checks": [],
            "token_print": guard_notice.token_print(self.found.token),
        }
        if self.wanted is None:
            return shown
        peers = [name for name in self.wanted.ranks if name != self.wanted.node]
        seen = own_service_host.settled(
            self.places.service(), lambda status: not unheard(status, peers), self.wait if self.found.active else 0.0
        )
        seen["stale"] = now - float(seen.get("at", float("-inf"))) > FRESH_S
        check = group_check(self.wanted.node, self.found, self.digest, seen, unheard(seen, peers))
        return {**shown, "checks": [check.to_dict()], "incident": seen.get("incident") or {}}


def prepare(options: Mapping[str, Any]) -> Call:
    """Look and plan. Raises ValueError for options, HostError for the machine."""
    places = Places(options["etc_root"], options["usr_root"], options["state_root"], options["run_root"])
    service = places.service()
    if options["state"] == "absent":
        found = own_service_host.look(service)
        return Call(places, None, "", found, decide_absent(service, found), 0.0)
    supervised = wanted(options)
    program = own_service_host.sources(dict(zip(PROGRAM, _MODULES, strict=True)))
    texts = group_unit.files(supervised, places, program, sys.executable)
    found = own_service_host.look(service)
    planned = decide(service, found, texts, options["token"], executable=(places.command,))
    return Call(places, supervised, digest_of(texts[places.settings]), found, planned, float(options["wait_s"]))


def unheard(status: Mapping[str, Any], peers: list[str]) -> list[str]:
    """Nodes whose supervisor is not heard."""
    ranks = status.get("ranks") or {}
    return [name for name in peers if (ranks.get(name) or {}).get("state", "unknown") == "unknown"]


def group_check(node: str, found: Found, digest: str, status: Mapping[str, Any], silent: list[str]) -> Check:
    """Whether this node's supervisor runs from the wanted files and hears the others."""
    problem = (
        f"{UNIT} does not run"
        if not found.active
        else "it runs from other files than the wanted ones"
        if found.digest != digest
        else "it has not said anything for a while"
        if status.get("stale")
        else f"it does not hear {', '.join(silent)}"
        if silent
        else ""
    )
    ranks = status.get("ranks") or {}
    return Check(
        id="engine.group",
        node=node,
        ok=not problem,
        found=problem or ", ".join(f"{name} {rank['state']}" for name, rank in sorted(ranks.items())),
        expected=f"{UNIT} runs and hears every other node",
        cure=(
            f"run the engine role; `journalctl -u {UNIT}` on {node} says more. Where it does not hear a node, let the UDP port of "
            "engine_group_port through on the management plane"
        ),
    )
