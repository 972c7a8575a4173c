# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a new network works: what a node has to show before its change is confirmed; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..report.checks import Check
from .checks import Ping, address_check, carrier_check, mtu_check, ping_check, presence_check
from .links import Link
from .ports import Port


def proof(
    node: str, ports: Sequence[Port], mtu: int, links: Mapping[str, Link], pings: Mapping[str, Ping]
) -> list[Check]:
    """The checks of every leg, addresses and full-size pings; what cannot hold after an earlier failure is left out."""
    return [check for port in ports for check in _leg(node, port, mtu, links.get(port.netdev), pings.get(port.netdev))]


def _leg(node: str, port: Port, mtu: int, link: Link | None, ping: Ping | None) -> list[Check]:
    presence = presence_check(node, port, link)
    if link is None:
        return [presence]
    carrier = carrier_check(node, port, link)
    if not link.carrier:
        return [presence, carrier]
    checks = [presence, carrier, address_check(node, port, link), mtu_check(node, port, mtu, link)]
    return [*checks, ping_check(node, port, mtu, ping)] if ping else checks


def reachable_check(node: str, problem: str) -> Check:
    """problem: what the last attempt to reach the node met, empty when it answered."""
    return Check(
        id="fabric.reachable",
        node=node,
        ok=not problem,
        found=problem or "answers over a new connection",
        expected="an answer over a new connection after the change",
        cure="the earlier network comes back by itself; see what 'netplan apply' alone does to the management interface of this node",
    )
