# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole plan again, cable by cable, from the variables of all hosts: what tables, drawings and checks show of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

_VARIABLES = ("fabric_mtu", "fabric_ports", "management_address", "ring_rank", "ring_shape")


class ViewError(ValueError):
    """The variables are not those of one plan; the text is the message for the user."""


@dataclass(frozen=True)
class ViewEnd:
    """One netdev on a leg."""

    node: str
    port: int
    netdev: str
    address: str

    @property
    def plug(self) -> str:
        return f"{self.node}:{self.port}"


@dataclass(frozen=True)
class ViewLeg:
    """One rail of one cable. cable: from 1, in cable order; on a switch, 1. subnet: in CIDR form. ends: port 0 first in a ring."""

    cable: int
    rail: int
    subnet: str
    ends: tuple[ViewEnd, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ends": [asdict(end) for end in self.ends]}


@dataclass(frozen=True)
class ViewNode:
    """A machine; rank from 0."""

    name: str
    rank: int
    management_address: str


@dataclass(frozen=True)
class View:
    """The plan. nodes: by rank. legs: by cable, then rail. mtu in bytes."""

    shape: str
    mtu: int
    nodes: tuple[ViewNode, ...]
    legs: tuple[ViewLeg, ...]

    def ports_of(self, node: str) -> list[tuple[ViewEnd, ViewLeg]]:
        """A node's ends with their legs, by port and rail."""
        own = [(end, leg) for leg in self.legs for end in leg.ends if end.node == node]
        return sorted(own, key=lambda pair: (pair[0].port, pair[1].rail))


def fabric_view(hostvars: Mapping[str, Mapping[str, Any]], hosts: Iterable[str]) -> View:
    """The plan of ``hosts``. Raises ViewError."""
    variables = {host: _variables(hostvars, host) for host in hosts}
    if not variables:
        raise ViewError("no hosts; the group ring of a topology file (plugin gb10.ring.topology) is expected")
    ranked = sorted(variables, key=lambda host: int(variables[host]["ring_rank"]))
    first = variables[ranked[0]]
    shape = str(first["ring_shape"])
    nodes = tuple(ViewNode(host, rank, variables[host]["management_address"]) for rank, host in enumerate(ranked))
    ends: dict[tuple[str, int], list[ViewEnd]] = {}
    for host in ranked:
        for port in variables[host]["fabric_ports"]:
            leg = (str(port["subnet"]), int(port["rail"]))
            ends.setdefault(leg, []).append(ViewEnd(host, int(port["port"]), port["netdev"], port["address"]))
    legs = [_leg(shape, ranked, subnet, rail, found) for (subnet, rail), found in ends.items()]
    return View(shape, int(first["fabric_mtu"]), nodes, tuple(sorted(legs, key=lambda leg: (leg.cable, leg.rail))))


def _variables(hostvars: Mapping[str, Mapping[str, Any]], host: str) -> dict[str, Any]:
    given = hostvars[host]
    missing = [name for name in _VARIABLES if name not in given]
    if missing:
        raise ViewError(
            f"{host}: no {', '.join(missing)}; list the node in the topology file (plugin gb10.ring.topology)"
        )
    return {name: given[name] for name in _VARIABLES}


def _leg(shape: str, ranked: list[str], subnet: str, rail: int, ends: list[ViewEnd]) -> ViewLeg:
    if shape != "switch" and len(ends) != 2:
        plugs = ", ".join(end.plug for end in ends)
        raise ViewError(f"subnet {subnet} is planned at {plugs}; two ends are expected in shape {shape}")
    if shape != "ring":
        return ViewLeg(1, rail, subnet, tuple(ends))
    ends = sorted(ends, key=lambda end: end.port)
    return ViewLeg(ranked.index(ends[0].node) + 1, rail, subnet, tuple(ends))


def fabric_legs(hostvars: Mapping[str, Mapping[str, Any]], hosts: Iterable[str]) -> list[dict[str, Any]]:
    """All legs of the plan as plain data. Raises ViewError."""
    return [leg.to_dict() for leg in fabric_view(hostvars, hosts).legs]


def rows(view: View) -> list[dict[str, str | int]]:
    """A row a leg for a person; on a switch a row a netdev."""
    return [row for leg in view.legs for row in (_switch_rows(leg) if view.shape == "switch" else [_row(leg)])]


def _row(leg: ViewLeg) -> dict[str, str | int]:
    one, other = leg.ends
    return {
        "cable": leg.cable,
        "rail": leg.rail,
        "subnet": leg.subnet,
        "end": one.plug,
        "netdev": one.netdev,
        "address": one.address,
        "other end": other.plug,
        "its netdev": other.netdev,
        "its address": other.address,
    }


def _switch_rows(leg: ViewLeg) -> list[dict[str, str | int]]:
    """Each node has a cable of its own, numbered in rank order."""
    return [
        {
            "cable": number,
            "rail": leg.rail,
            "subnet": leg.subnet,
            "end": end.plug,
            "netdev": end.netdev,
            "address": end.address,
            "other end": "switch",
        }
        for number, end in enumerate(leg.ends, start=1)
    ]
