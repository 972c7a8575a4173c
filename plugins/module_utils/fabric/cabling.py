# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict of the cabling probe: what all nodes heard, against the plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..report.checks import Check
from .cabling_moves import misplaced, swapped
from .cabling_picture import Cable, End, Observation, Picture, parse_observation, picture, same_machines
from .cabling_plan import CablePlan, closest, ring_order
from .cabling_rails import rail_findings
from .cabling_words import Finding, both

AS_PLANNED = "as_planned"


@dataclass(frozen=True)
class Verdict:
    """kind: as_planned, or the kind of the worst finding. plan: what the cables were compared with."""

    kind: str
    findings: tuple[Finding, ...]
    plan: CablePlan
    checks: tuple[Check, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "shape": self.plan.shape,
            "order": list(self.plan.nodes),
            "findings": [finding.to_dict() for finding in self.findings],
            "checks": [check.to_dict() for check in self.checks],
        }


def verdict(results: Sequence[Mapping[str, Any]], nodes: Sequence[str], plan: CablePlan | None) -> Verdict:
    """results: of the module fabric_cabling, one a node that reported. Without a plan the closest one to what was heard.

    nodes: that were asked. Cables to other nodes of the plan are not judged, which is a finding of each node that has some.
    """
    observations = [parse_observation(result) for result in results]
    left_out = tuple(node for node in plan.nodes if node not in nodes) if plan else ()
    seen = picture(observations, nodes, left_out, plan.facing(left_out) if plan else ())
    against = plan or closest(seen, nodes)
    judged = against.judged(left_out)
    findings = _same_machine(observations) or judge(seen, against, judged)
    findings.sort(key=lambda finding: ("error", "warning", "info").index(finding.severity))
    checks = [_held(against, judged, node) for node in seen.nodes if _is_held(seen, against, judged, findings, node)]
    findings += _left_out(seen, against, left_out)
    kind = findings[0].kind if findings else AS_PLANNED
    return Verdict(kind, tuple(findings), against, (*(finding.check() for finding in findings), *checks))


def judge(seen: Picture, plan: CablePlan, judged: frozenset[Cable]) -> list[Finding]:
    """Everything that differs from the plan. A fault that another one explains is not told twice.

    judged: the plan's cables whose nodes were all asked; the others are only where a plug may belong.
    """
    if plan.shape == "switch":
        return [*_strangers(seen, plan), *_switch(seen, judged)]
    crowd = {end for end in seen.ends() if len(seen.neighbours(end)) > 1}
    crowd |= {other for end in crowd for other in seen.neighbours(end)}
    excused = crowd | set(seen.strangers)
    actual = frozenset(cable for cable in seen.cables() if not cable & crowd)
    found = [*_shared(plan, crowd), *_strangers(seen, plan)]
    order = ring_order(plan.nodes, actual) if plan.shape == "ring" else None
    if order and order != plan.nodes:
        return [*found, _other_order(plan, order)]
    wrong, missing = set(actual - plan.cables), set(plan.cables - actual)
    found += swapped(wrong, missing)
    found += misplaced(seen, plan, wrong, missing)
    found += [_open(seen, cable) for cable in sorted(missing & judged, key=sorted) if not cable & excused]
    for cable in sorted(actual & plan.cables, key=sorted):
        found += rail_findings(seen, cable)
    return found


def _left_out(seen: Picture, plan: CablePlan, left_out: Sequence[str]) -> list[Finding]:
    """One finding for each node with cables to nodes that were not asked."""
    findings = []
    for node in seen.nodes:
        ends = tuple(sorted(end for end in plan.facing(left_out) if end.node == node))
        if not ends:
            continue
        places = ", ".join(f"{end} to {plan.peer(end) or 'the switch'}" for end in ends)
        far = sorted({peer.node for end in ends if (peer := plan.peer(end))}) or left_out
        found = f"{places}: not judged towards {', '.join(far)}, outside of this run"
        cure = "run it on all nodes, without --limit, to judge these cables"
        findings.append(Finding("unjudged", ends, found, "both ends of each cable in the run", cure, "info"))
    return findings


def _same_machine(observations: Sequence[Observation]) -> list[Finding]:
    return [
        Finding(
            "same_machine",
            (End(two.node, 0),),
            f"{one.node} and {two.node} are the same machine ({one.machine_source} {one.machine})",
            "a machine for each node of the inventory",
            f"correct management_address of {one.node} or {two.node}"
            if one.machine_source == "sys_image_guid"
            else "correct management_address of one of them; where they are two machines with one disk image, give one of them "
            "another /etc/machine-id (systemd-machine-id-setup)",
        )
        for one, two in same_machines(observations)
    ]


def _shared(plan: CablePlan, crowd: set[End]) -> list[Finding]:
    """One finding for all ends that hear each other through a switch."""
    if not crowd:
        return []
    ends = tuple(sorted(crowd))
    return [
        Finding(
            "switch",
            ends,
            f"{', '.join(map(str, ends))} hear each other: they are on a switch",
            f"a cable from port to port, as shape {plan.shape} has it",
            "cable the ports directly, or set shape: switch in the topology file",
        )
    ]


def _strangers(seen: Picture, plan: CablePlan) -> list[Finding]:
    findings = []
    for end, texts in sorted(seen.strangers.items()):
        peer = plan.peer(end)
        goal = f"plug the cable of {end} into {peer}" if peer else f"take that machine off the cable or switch of {end}"
        expected = str(peer) if peer else "nodes of the inventory only"
        cure = f"{goal}, or add that machine to the inventory"
        findings.append(Finding("stranger", (end,), f"{end} hears {'; '.join(texts)}", expected, cure))
    return findings


def _other_order(plan: CablePlan, order: tuple[str, ...]) -> Finding:
    return Finding(
        "other_order",
        tuple(End(node, 0) for node in order),
        f"the cables make the ring {', '.join(order)}",
        f"the ring {', '.join(plan.nodes)} of the topology file",
        f"list the nodes in the order {', '.join(order)}, or move the cables",
    )


def _open(seen: Picture, cable: Cable) -> Finding:
    one, two = sorted(cable)
    states = "; ".join(seen.state(end) for end in (one, two))
    wanted = f"{one} cabled to {two}"
    if unheard := [end.node for end in (one, two) if end.node not in seen.nodes]:
        cure = f"see above why {both(unheard)} gave no result, and run it again"
        return Finding("unjudged", (one, two), states, f"results of {both(sorted({one.node, two.node}))}", cure)
    if down := [end for end in (one, two) if seen.set_down(end)]:
        cure = "run it outside check mode, or with fabric_cabling_bring_up: true, or set the ports up"
        return Finding("unjudged", (one, two), states, f"{both(down)} up, to see the cable", cure, "info")
    if all(seen.carrier(end) and not seen.neighbours(end) for end in (one, two)):
        cure = f"see where the cables of {one} and {two} go: to a machine outside the inventory, or a device that drops the probe"
        return Finding("silent", (one, two), states, wanted, cure)
    cure = f"plug a cable from {one} into {two}; where one is, seat it, and see that both nodes are on"
    return Finding("open", (one, two), states, wanted, cure)


def _switch(seen: Picture, judged: frozenset[Cable]) -> list[Finding]:
    """On a switch every planned end hears every other one."""
    ends = sorted(end for cable in judged for end in cable)
    findings = []
    for end in ends:
        if set(seen.neighbours(end)).isdisjoint(ends) and end not in seen.strangers:
            findings.append(_off_switch(seen, end))
    off = {finding.ends[0] for finding in findings}
    for index, one in enumerate(ends):
        for two in ends[index + 1 :]:
            if not {one, two} & off:
                findings += rail_findings(seen, frozenset((one, two)))
    return findings


def _off_switch(seen: Picture, end: End) -> Finding:
    other = End(end.node, 1 - end.port)
    if len({far.node for far in seen.neighbours(other)} - {end.node}) > 0:
        cure = f"move the plug from {other} to {end}, or set port: {other.port} for {end.node} in the topology file"
        return Finding(
            "wrong_port", (end, other), f"{seen.state(end)}; {other} is on the switch", f"{end} on the switch", cure
        )
    cure = f"plug the cable of {end} into the switch; see the switch's port: speed, VLAN, state"
    return Finding("open", (end,), seen.state(end), f"{end} on the switch with the other nodes", cure)


def _is_held(seen: Picture, plan: CablePlan, judged: frozenset[Cable], findings: Sequence[Finding], node: str) -> bool:
    """Whether all the node's cables that are judged are as planned, and no finding is about an end of it."""
    own = [cable for cable in judged if any(end.node == node for end in cable)]
    if not own and any(end.node == node for end in plan.ends()):
        return False
    heard = plan.shape == "switch" or set(own) <= seen.cables()
    return heard and not any(end.node == node for finding in findings for end in finding.ends)


def _held(plan: CablePlan, judged: frozenset[Cable], node: str) -> Check:
    ends = [end for end in sorted(end for cable in judged for end in cable) if end.node == node]
    places = [f"P{end.port} to {plan.peer(end) or 'the switch'}" for end in ends]
    return Check(
        "fabric.cabling", node, True, ", ".join(places) or "no cable, and none planned", "the cables of the plan"
    )
