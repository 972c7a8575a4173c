# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which firewall rules of a machine would keep the fabric's legs or the group's own channels from working, from nft's JSON; pure.

Traffic of RoCE adapters does not pass the kernel's firewall, but pings, bootstrap over the legs, and soft RoCE do.
"""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rule = Mapping[str, Any]
_ENDS = ("accept", "drop", "reject")


@dataclass(frozen=True)
class Leg:
    """Where packets come from: the netdev, and the subnet in CIDR form. udp: the port that they are for; 0 is anything."""

    netdev: str
    subnet: str
    udp: int = 0


@dataclass(frozen=True)
class Block:
    """A base chain that would not let in what comes by these netdevs. hook: input or forward."""

    chain: str
    hook: str
    netdevs: tuple[str, ...]


def blocks(ruleset: Sequence[Mapping[str, Any]], legs: Sequence[Leg]) -> list[Block]:
    """Chains that end a new packet of a leg in drop or reject. ruleset: the list of nft -j list ruleset."""
    chains = {_key(item["chain"]): item["chain"] for item in ruleset if "chain" in item}
    rules: dict[tuple[str, ...], list[Rule]] = {}
    for item in ruleset:
        if "rule" in item:
            rules.setdefault(_key(item["rule"], "chain"), []).append(item["rule"])
    found = []
    for key, chain in chains.items():
        if chain.get("hook") in ("input", "forward") and chain.get("family") in ("ip", "inet"):
            shut = tuple(
                leg.netdev for leg in legs if _verdict(key, rules, leg, chain.get("policy", "accept")) != "accept"
            )
            if shut:
                found.append(Block(f"{chain['family']} {chain['table']} {chain['name']}", str(chain["hook"]), shut))
    return found


def _key(item: Mapping[str, Any], name: str = "name") -> tuple[str, ...]:
    return str(item.get("family")), str(item.get("table")), str(item.get(name))


def _verdict(chain: tuple[str, ...], rules: Mapping[tuple[str, ...], Sequence[Rule]], leg: Leg, policy: str) -> str:
    """What becomes of a new packet from the other end of the leg."""
    return next(_walk(chain, rules, leg, 0), policy)


def _walk(
    chain: tuple[str, ...], rules: Mapping[tuple[str, ...], Sequence[Rule]], leg: Leg, depth: int
) -> Iterator[str]:
    """Verdicts that surely end the packet's way, in order; jumps are followed."""
    if depth > 8:
        return
    for rule in rules.get(chain, ()):
        expressions: list[Mapping[str, Any]] = rule.get("expr", [])
        if not all(_matches(expression["match"], leg) for expression in expressions if "match" in expression):
            continue
        if any("xt" in expression and expression["xt"].get("type") == "match" for expression in expressions):
            continue  # a match that nft does not tell apart: it may not hold
        for expression in expressions:
            if any(end in expression for end in _ENDS):
                yield "accept" if "accept" in expression else "drop"
                return
            target = expression.get("jump") or expression.get("goto")
            if target:
                yield from _walk((*chain[:2], str(target["target"])), rules, leg, depth + 1)


def _matches(match: Mapping[str, Any], leg: Leg) -> bool:
    """Whether every new packet of the leg matches; of what is not known here none does."""
    left, right, negated = match.get("left", {}), match.get("right"), match.get("op") == "!="
    meta = left.get("meta", {}).get("key") if isinstance(left, Mapping) else None
    payload = left.get("payload", {}) if isinstance(left, Mapping) else {}
    if leg.udp and (meta == "l4proto" or payload.get("field") in ("protocol", "dport")):
        return _udp(payload, right, leg.udp, negated)
    if meta in ("iifname", "iif"):
        return _among(right, lambda name: fnmatch.fnmatchcase(leg.netdev, str(name))) != negated
    if meta == "oifname" and right == "lo":
        return negated
    if isinstance(left, Mapping) and left.get("ct", {}).get("key") == "state":
        return _among(right, lambda value: value == "new") != negated
    if payload.get("field") == "saddr":
        return _among(right, lambda value: _within(leg.subnet, value)) != negated
    return False


def _among(right: Any, holds: Any) -> bool:
    values: Iterable[Any] = (
        right.get("set", [right]) if isinstance(right, Mapping) else right if isinstance(right, list) else [right]
    )
    return any(holds(value) for value in values)


def _udp(payload: Mapping[str, Any], right: Any, port: int, negated: bool) -> bool:
    """Whether what a rule says of protocol or port is true of UDP to the port."""
    if payload.get("field") != "dport":
        return _among(right, lambda value: value in ("udp", 17)) != negated
    return payload.get("protocol") in ("udp", "th") and _among(right, lambda value: _is_port(port, value)) != negated


def _is_port(port: int, value: Any) -> bool:
    """Whether an nft port or range of ports has it."""
    if isinstance(value, Mapping) and "range" in value:
        low, high = value["range"]
        return int(low) <= port <= int(high)
    return str(value) == str(port)


def _within(subnet: str, value: Any) -> bool:
    """Whether a leg's subnet lies in an nft address or prefix."""
    if isinstance(value, Mapping) and "prefix" in value:
        value = f"{value['prefix']['addr']}/{value['prefix']['len']}"
    try:
        outer = ipaddress.ip_network(str(value), strict=False)
        inner = ipaddress.ip_network(subnet, strict=False)
    except ValueError:
        return False
    return (
        isinstance(outer, ipaddress.IPv4Network) and isinstance(inner, ipaddress.IPv4Network) and inner.subnet_of(outer)
    )
