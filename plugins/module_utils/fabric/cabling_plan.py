# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cables should be where: from the inventory's plan, or the plan that comes closest to what was heard. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from .cabling_picture import Cable, End, Picture


@dataclass(frozen=True)
class CablePlan:
    """shape: ring, pair or switch. nodes: in cable order. cables: their ends; of a switch one with an end a node."""

    shape: str
    nodes: tuple[str, ...]
    cables: frozenset[Cable]

    def peer(self, end: End) -> End | None:
        """The other end of the cable that should be in a port; of a switch none."""
        others = [other for cable in self.cables if end in cable and len(cable) == 2 for other in cable - {end}]
        return others[0] if others and self.shape != "switch" else None

    def ends(self) -> frozenset[End]:
        return frozenset(end for cable in self.cables for end in cable)

    def judged(self, left_out: Collection[str]) -> frozenset[Cable]:
        """The cables that can be judged without these nodes; of a switch the one with the ends of the others, when there are two."""
        if self.shape != "switch":
            return frozenset(cable for cable in self.cables if all(end.node not in left_out for end in cable))
        kept = (frozenset(end for end in cable if end.node not in left_out) for cable in self.cables)
        return frozenset(cable for cable in kept if len(cable) > 1 or not left_out)

    def facing(self, left_out: Collection[str]) -> frozenset[End]:
        """The ends of the other nodes whose cable, or switch, leads to one of these."""
        leading = [cable for cable in self.cables if any(end.node in left_out for end in cable)]
        return frozenset(end for cable in leading for end in cable if end.node not in left_out)


def ring_plan(nodes: Sequence[str]) -> CablePlan:
    """Port 0 of each in port 1 of the next."""
    following = [*nodes[1:], *nodes[:1]]
    cables = frozenset(frozenset((End(one, 0), End(two, 1))) for one, two in zip(nodes, following, strict=True))
    return CablePlan("ring", tuple(nodes), cables)


def planned(shape: str, ports: Mapping[str, Sequence[Mapping[str, Any]]]) -> CablePlan:
    """From each node's fabric_ports, nodes in rank order. Raises ValueError when they contradict each other, or name others."""
    if shape == "switch":
        ends = frozenset(End(node, int(entry["port"])) for node, entries in ports.items() for entry in entries)
        return CablePlan(shape, tuple(ports), frozenset((ends,)))
    cables = set()
    for node, entries in ports.items():
        for entry in entries:
            if entry["peer"] not in ports:
                raise ValueError(
                    f"fabric_ports of {node} names {entry['peer']}, which is not in the inventory, has no fabric_ports, or is left out by --limit"
                )
            far = [other["port"] for other in ports[entry["peer"]] if other["netdev"] == entry["peer_netdev"]]
            if not far:
                where = f"{entry['peer_netdev']} of {entry['peer']}"
                raise ValueError(f"fabric_ports of {node} names {where}, which that node's fabric_ports does not have")
            cables.add(frozenset((End(node, int(entry["port"])), End(entry["peer"], int(far[0])))))
    return CablePlan(shape, tuple(ports), frozenset(cables))


def ring_order(nodes: Sequence[str], cables: Iterable[Cable]) -> tuple[str, ...] | None:
    """The nodes from the first on, port 0 to port 1, when the cables are exactly such a ring."""
    following: dict[str, str] = {}
    for cable in cables:
        ends = sorted(cable, key=lambda end: end.port)
        if len(ends) != 2 or [end.port for end in ends] != [0, 1] or ends[0].node in following:
            return None
        following[ends[0].node] = ends[1].node
    order = [nodes[0]]
    while following.get(order[-1]) not in (None, *order):
        order.append(following[order[-1]])
    closed = following.get(order[-1]) == order[0]
    return tuple(order) if closed and set(order) == set(nodes) and len(following) == len(nodes) > 1 else None


def closest(seen: Picture, nodes: Sequence[str]) -> CablePlan:
    """The plan that needs the fewest plugs moved. nodes: the first gets rank 0; their order decides between equals."""
    crowded = [end for end in seen.ends() if len(seen.neighbours(end)) > 1]
    if crowded and len(nodes) > 2:
        return _switch_plan(seen, nodes)
    cables = [cable for cable in seen.cables() if len({end.node for end in cable}) == 2]
    if len(nodes) == 2 and ring_order(nodes, cables) is None:
        return _pair_plan(cables, nodes)
    pairs = {frozenset(end.node for end in cable) for cable in cables}

    def fit(order: tuple[str, ...]) -> tuple[int, int]:
        plan = ring_plan((nodes[0], *order))
        side_by_side = {frozenset(end.node for end in cable) for cable in plan.cables}
        return len(plan.cables.intersection(cables)), len(side_by_side & pairs)

    best = max(permutations(nodes[1:]), key=fit)  # the first of equals; 5040 orders for 8 nodes
    return ring_plan((nodes[0], *best))


def _switch_plan(seen: Picture, nodes: Sequence[str]) -> CablePlan:
    """Each node's port that hears the most nodes; of equals the higher, the one that NVIDIA's README cables."""
    ends = []
    for node in nodes:
        own = [end for end in seen.ends() if end.node == node] or [End(node, 1)]
        ends.append(max(own, key=lambda end: (len({other.node for other in seen.neighbours(end)}), end.port)))
    return CablePlan("switch", tuple(nodes), frozenset((frozenset(ends),)))


def _pair_plan(cables: Sequence[Cable], nodes: Sequence[str]) -> CablePlan:
    """The cable that is there, of two the one in the lower ports; without one the ports 0 of both, as the topology file has it."""
    absent = frozenset((End(nodes[0], 0), End(nodes[1], 0)))
    cable = min(cables, key=lambda each: sorted(end.port for end in each), default=absent)
    return CablePlan("pair", tuple(nodes), frozenset((cable,)))
