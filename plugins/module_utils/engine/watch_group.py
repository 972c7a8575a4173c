# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the supervisor's status and intents come to for the watchdog; pure.

A copy runs on the nodes without Ansible, so this file imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

BY = "watch"  # who the watchdog's own orders are by
FRESH_S = 15.0  # the supervisor writes once a second
DOWN = ("stopped", "stopping", "failed", "absent", "unknown")


class Group(NamedTuple):
    """run: the head's. hold: it is stopped on purpose, by whom and why. broken, incident: it ended by itself. lost: not known.

    missing: nodes that are not heard.
    """

    run: str = ""
    hold: str = ""
    broken: str = ""
    incident: str = ""
    lost: str = ""
    order: str = ""
    order_text: str = ""
    missing: str = ""


def group(status: Mapping[str, Any], intent: Mapping[str, Any], order: str, now: float) -> Group:
    """status, intent: the supervisor's files on the head. order: id of the watchdog's last order, empty without one."""
    if not status:
        return Group(lost="the supervisor (gb10-ring-group.service) has no status")
    if now - _number(status.get("at")) > FRESH_S:
        return Group(lost=f"the supervisor (gb10-ring-group.service) has said nothing for more than {FRESH_S:g} s")
    ranks = {str(name): rank for name, rank in _mapping(status.get("ranks")).items()}
    head = _mapping(ranks.get(str(status.get("node"))))
    ordered = _mapping(status.get("order"))
    mine = ordered if order and ordered.get("id") == order else {}
    known = Group(
        run=str(head.get("run", "")) if head.get("state") in ("running", "starting") else "",
        order=str(mine.get("state", "")),
        order_text=str(mine.get("text", "")),
        missing=", ".join(name for name, rank in ranks.items() if _mapping(rank).get("state") == "unknown"),
    )
    down = {name: rank for name, rank in ranks.items() if _mapping(rank).get("state") in DOWN}
    meant, incident = _meant(status, intent), _mapping(status.get("incident"))
    if meant and _number(meant.get("at")) >= _number(incident.get("at")) and (down or intent.get("want") == "stopped"):
        return known._replace(
            hold=f"stopped by {meant.get('by') or 'somebody'}: {meant.get('why') or 'no reason given'}"
        )
    return _ended(known, down, incident, intent) if down else known


def _ended(known: Group, down: Mapping[str, Any], incident: Mapping[str, Any], intent: Mapping[str, Any]) -> Group:
    failed = [
        f"{name}: {_mapping(rank).get('why') or 'failed'}"
        for name, rank in down.items()
        if _mapping(rank).get("state") == "failed"
    ]
    begun = intent.get("want") == "started" and intent.get("by") != BY
    if begun and not failed and _number(intent.get("at")) > _number(incident.get("at")):
        return known  # somebody starts it
    if incident:
        return known._replace(broken=told(incident), incident=str(incident.get("id", "")))
    return known._replace(broken="; ".join(failed)) if failed else known


def told(incident: Mapping[str, Any]) -> str:
    """An incident in words, with the node's name once; one without a node is of the whole group."""
    node, why = str(incident.get("node") or ""), str(incident.get("why") or "a rank ended by itself")
    return why if not node or why.startswith((f"{node}:", f"{node} ")) else f"{node}: {why}"


def _meant(status: Mapping[str, Any], intent: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last stop that was meant, of any rank or of the head's own; the watchdog's own are none."""
    said = [_mapping(status.get("stopped"))]
    if intent.get("want") == "stopped" and not intent.get("incident"):
        said.append(intent)
    meant = [one for one in said if one and one.get("by") != BY]
    return max(meant, key=lambda one: _number(one.get("at")), default={})


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
