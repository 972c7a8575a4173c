# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a planned leg meets an address or a route that a machine has already; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from ..report.checks import Check

# Routes of these types are the kernel's own, made from the addresses.
_KERNEL_TYPES = ("anycast", "broadcast", "local", "multicast")
_SHOWN_LEGS = 3


@dataclass(frozen=True)
class Held:
    """An IPv4 range in use on a machine. netdevs: those it is on or leaves by. text: the address or route for a person."""

    netdevs: tuple[str, ...]
    network: IPv4Network
    text: str


@dataclass(frozen=True)
class PlannedLeg:
    """A leg of the plan, of any node. label: its cable and rail, for a person."""

    subnet: IPv4Network
    label: str


def planned_legs(legs: Sequence[Mapping[str, Any]]) -> tuple[PlannedLeg, ...]:
    """From the dictionaries of the filter ``fabric_legs``. Raises ValueError or KeyError."""
    return tuple(PlannedLeg(IPv4Network(leg["subnet"]), _label(leg)) for leg in legs)


def _label(leg: Mapping[str, Any]) -> str:
    ends = [f"{end['node']}:{end['port']}" for end in leg["ends"]]
    return f"{' - '.join(ends)} rail {leg['rail']}" if len(ends) == 2 else f"switch rail {leg['rail']}"


def parse_held(links: Sequence[Mapping[str, Any]], routes: Sequence[Mapping[str, Any]]) -> tuple[Held, ...]:
    """From ``ip -j -4 addr show`` and ``ip -j -4 route show table all``; the default route and what follows from addresses left out."""
    addresses = [_address(link, info) for link in links for info in link.get("addr_info", ()) if "local" in info]
    connected = {(held.netdevs, held.network) for held in addresses}
    others = [_route(route) for route in routes if _counts(route)]
    return (*addresses, *(held for held in others if (held.netdevs, held.network) not in connected))


def _address(link: Mapping[str, Any], info: Mapping[str, Any]) -> Held:
    cidr = f"{info['local']}/{info['prefixlen']}"
    return Held((link["ifname"],), IPv4Network(cidr, strict=False), f"{cidr} on {link['ifname']}")


def _counts(route: Mapping[str, Any]) -> bool:
    return route.get("type") not in _KERNEL_TYPES and route.get("dst") not in (None, "default", "0.0.0.0/0")


def _route(route: Mapping[str, Any]) -> Held:
    hops = [route, *route.get("nexthops", ())]
    netdevs = tuple(hop["dev"] for hop in hops if "dev" in hop)
    leaves = f"by {', '.join(netdevs)}" if netdevs else f"({route.get('type', 'no netdev')})"
    return Held(netdevs, IPv4Network(route["dst"], strict=False), f"route {route['dst']} {leaves}")


def own_netdevs(netplan: str) -> frozenset[str]:
    """The netdevs that our own netplan file defines: what they hold is of an earlier plan, and goes with it."""
    _head, found, body = netplan.partition("\n  ethernets:\n")
    return frozenset(re.findall(r"^ {4}(\S+):$", body, re.MULTILINE)) if found else frozenset()


def overlap(node: str, held: Iterable[Held] | None, legs: Sequence[PlannedLeg], own: Collection[str]) -> Check:
    """The check of one machine. held: None when it could not be read. own: fabric netdevs, whose addresses are replaced anyway."""
    others = [entry for entry in held or () if not (entry.netdevs and set(entry.netdevs) <= set(own))]
    met = [(entry, [leg for leg in legs if leg.subnet.overlaps(entry.network)]) for entry in others]
    conflicts = [f"{entry.text} overlaps {_legs_text(found)}" for entry, found in met if found]
    unknown = "addresses and routes unknown, since ip (iproute2) could not be run"
    return Check(
        "preflight.overlap",
        node,
        ok=held is not None and not conflicts,
        found=unknown if held is None else "; ".join(conflicts) or "none",
        expected=f"no other address or route in the fabric's {len(legs)} subnets",
        cure="Set supernet (or subnet of that leg in legs) in the topology file to a range that no node uses, or remove that "
        "address or route from the node (ip -4 addr, ip route show table all)",
    )


def _legs_text(legs: Sequence[PlannedLeg]) -> str:
    shown = ", ".join(f"{leg.subnet} ({leg.label})" for leg in legs[:_SHOWN_LEGS])
    more = len(legs) - _SHOWN_LEGS
    return f"{shown} and {more} more" if more > 0 else shown
