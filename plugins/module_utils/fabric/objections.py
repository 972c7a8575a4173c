# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against changing the network of a node, as checks; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_interface, ip_network

from ..report.checks import Check
from .foreign import Claim
from .netplan import LinkState, Refusal
from .ports import Port

ENGINE_UNIT = "gb10-ring-engine.service"
_MIGRATE = (
    "set fabric_foreign: migrate, which takes the ports out, keeps the originals in /var/lib/gb10-ring/network-before and lets "
    "uninstall.yml bring them back; or take them out yourself"
)
_BLOCKED = "change that definition so that it is for the other interfaces only (netplan cannot except a port from a match), then run again"


def netplan_check(node: str, own: str, refusals: Sequence[Refusal]) -> Check:
    """Whether netplan accepts all files of the machine together with ours."""
    found = "; ".join(f"{refusal.place}: {refusal.what}" if refusal.path else refusal.what for refusal in refusals)
    if not refusals or not refusals[0].path:
        cure = "run 'netplan generate' on the node and repair what it names"
    elif refusals[0].path == own:
        cure = "this file is written by gb10.ring: please report it with the topology file"
    else:
        cure = (
            "repair that file, or set fabric_quarantine: true to have it renamed; netplan ignores every file until then"
        )
    expected = "netplan accepts every file in /etc/netplan, /run/netplan and /usr/lib/netplan"
    return Check("fabric.netplan", node, not refusals, found or "all accepted", expected, cure)


def foreign_check(node: str, found: Sequence[Claim], migrate: bool) -> Check:
    """Whether only our file defines the fabric's ports, or will when the others are migrated."""
    bad = [claim for claim in found if claim.blocked or not migrate]
    cure = _BLOCKED if any(claim.blocked for claim in bad) else _MIGRATE
    if any(claim.file.endswith("50-cloud-init.yaml") for claim in bad):
        cure += ". cloud-init writes its file again for a new instance: see 'network: {config: disabled}' in its documentation"
    said = "; ".join(claim.text() for claim in bad)
    if not said:
        said = "to be migrated: " + "; ".join(claim.text() for claim in found) if found else "no other definition"
    return Check(
        "fabric.foreign", node, not bad, said, "no other file or profile that defines a port of the fabric", cure
    )


def management_check(
    node: str, ports: Sequence[Port], links: Mapping[str, LinkState], management: Sequence[str]
) -> Check:
    """Whether the plan leaves the way to this node alone."""
    bad = [
        f"{port.netdev} is planned as {port.cidr}, and is a management interface"
        for port in ports
        if port.netdev in management
    ]
    for name in management:
        for address in links.get(name, {}).get("addresses", []):
            inside = [port for port in ports if _inside(address["cidr"], port.subnet)]
            bad += [f"{name} has {address['cidr']}, inside {port.label}" for port in inside]
    return Check(
        "fabric.management",
        node,
        ok=not bad,
        found="; ".join(bad) or f"{', '.join(management) or 'no management interface'} apart from the fabric",
        expected="fabric ports and subnets that have nothing to do with the management interface",
        cure="correct netdevs, management_interface or supernet in the topology file",
    )


def _inside(cidr: str, subnet: str) -> bool:
    address, network = ip_interface(cidr), ip_network(subnet, strict=False)
    return address.version == network.version and address.ip in network


def serving_check(node: str, serving: Sequence[str], allowed: bool) -> Check:
    """A change of addresses moves the GID table: engines that serve over RDMA die of it minutes later."""
    return Check(
        "fabric.serving",
        node,
        ok=allowed or not serving,
        found="; ".join(serving) or "nothing that uses the fabric",
        expected="no engine and no RDMA queue pair in use while the network changes",
        cure="stop the engine first, or set fabric_apply_while_serving: true and start it again afterwards",
    )


def queue_pairs(text: str) -> list[str]:
    """Processes with RDMA queue pairs, from ``rdma -j resource show qp``; the kernel's own have no process."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    holders = {(entry.get("comm", "?"), entry["pid"]) for entry in found if entry.get("pid")}
    return [f"process {pid} ({name}) holds RDMA queue pairs" for name, pid in sorted(holders)]
