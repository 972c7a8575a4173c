# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verify ladder of one node, cheap rungs first: its order, what follows from what, and the rungs beyond ip and ping; pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from typing import Any

from ..report.checks import Check
from .checks import Ping, address_check, carrier_check, mtu_check, ping_check, presence_check
from .info import DRIVER, Function
from .links import Link
from .ports import Port

# What the kernel sets aside for RoCE headers before it takes the largest RDMA MTU that fits: GRH 40, UDP 8, BTH 12, XRC 4,
# atomic 28, ICRC 4 (iboe_get_mtu in the kernel's ib_addr.h, which mlx5 uses).
ROCE_OVERHEAD = 96
RDMA_MTUS = (4096, 2048, 1024, 512, 256)

_HCA = re.compile(r"^hca_id:\s*(\S+)|^\s*active_mtu:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Expected:
    """What a healthy leg has. mtu in bytes, speed in Mb/s, pcie_width in lanes; 0 or empty text: not checked.

    flaps: carrier changes since the netdev appeared that are no news. rdma: look at GID and active MTU.
    """

    mtu: int
    speed: int = 200000
    pcie_speed: str = "32.0 GT/s"
    pcie_width: int = 4
    driver: str = DRIVER
    flaps: int = 20
    rdma: bool = True


@dataclass(frozen=True)
class Route:
    """Where the kernel sends a packet. dev empty: nowhere, and reason says why."""

    dev: str
    source: str = ""
    gateway: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Seen:
    """What was seen of a node's legs; every mapping by netdev. verbs: active MTU by RDMA device, as ibv_devinfo tells it."""

    links: Mapping[str, Link]
    pings: Mapping[str, Ping] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=dict)
    verbs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LegReport:
    """The checks of one leg as this node sees it."""

    checks: tuple[Check, ...]
    pinged: bool

    @property
    def up(self) -> bool:
        return self.pinged and all(check.ok for check in self.checks if check.severity == "error")


def parse_route(stdout: str, reason: str = "") -> Route:
    """Output of ``ip -j route get``. Raises ValueError when it is no JSON."""
    entries = json.loads(stdout) if stdout.strip() else []
    if not entries:
        return Route("", reason=reason)
    entry = entries[0]
    return Route(entry.get("dev", ""), entry.get("prefsrc", ""), entry.get("gateway", ""))


def parse_devinfo(text: str) -> dict[str, int]:
    """RDMA device -> active MTU of its first port, from the output of ibv_devinfo."""
    found: dict[str, int] = {}
    name = ""
    for match in _HCA.finditer(text):
        if match[1]:
            name = match[1]
        elif name:
            found.setdefault(name, int(match[2]))
    return found


def roce_mtu(mtu: int) -> int:
    """The active MTU that the kernel gives RDMA on a netdev of this MTU; 0 when none fits."""
    return next((size for size in RDMA_MTUS if size <= mtu - ROCE_OVERHEAD), 0)


def leg_reports(node: str, ports: Sequence[Port], expected: Expected, seen: Seen) -> list[LegReport]:
    return [LegReport(leg_checks(node, port, expected, seen), port.netdev in seen.pings) for port in ports]


def leg_checks(node: str, port: Port, expected: Expected, seen: Seen) -> tuple[Check, ...]:
    """The rungs of one leg; what cannot hold after an earlier failure is left out."""
    link, function = seen.links.get(port.netdev), seen.functions.get(port.netdev)
    presence = presence_check(node, port, link, _misplaced(port, function, expected.driver))
    if link is None or not presence.ok:
        return (presence,)
    checks = [presence]
    if function is not None and expected.pcie_speed:
        checks.append(_pcie(node, port, function, expected))
    checks.append(carrier_check(node, port, link))
    if function is not None and function.carrier_changes is not None:
        checks.append(_flaps(node, port, function.carrier_changes, expected.flaps))
    if not link.carrier:
        return tuple(checks)
    if function is not None and expected.speed:
        checks.append(_speed(node, port, function, expected.speed))
    checks += [address_check(node, port, link), mtu_check(node, port, expected.mtu, link)]
    if port.cidr in link.ipv4 and port.netdev in seen.routes:
        checks.append(_route(node, port, seen.routes[port.netdev]))
    if port.netdev in seen.pings:
        checks.append(ping_check(node, port, expected.mtu, seen.pings[port.netdev]))
    if function is not None and expected.rdma:
        checks += _rdma(node, port, function, expected, seen)
    return tuple(checks)


def _misplaced(port: Port, function: Function | None, driver: str) -> str:
    """Why the netdev of the planned name is not the planned one; empty when it is."""
    if function is None or not function.present:
        return ""
    if function.master:
        return f"is part of {function.master}"
    if driver and function.driver != driver:
        return f"has driver {function.driver or 'none'}, not {driver}"
    if function.port not in (None, port.port):
        return f"is on port {function.port}"
    if function.rail not in (None, port.rail):
        return f"is on rail {function.rail}"
    return ""


def _pcie(node: str, port: Port, function: Function, expected: Expected) -> Check:
    wanted = (expected.pcie_speed, expected.pcie_width)
    width = "?" if function.pcie_width is None else function.pcie_width
    return Check(
        id="fabric.pcie",
        node=node,
        netdevs=(port.netdev,),
        ok=(function.pcie_speed, function.pcie_width) == wanted,
        found=f"{function.pcie_speed or 'unknown'} x{width} at {function.pci_address or 'no PCI function'} on {port.label}",
        expected=f"{wanted[0]} x{wanted[1]}",
        cure=f"power {node} off, take its power cord out for a minute, and boot with the cables in; look at dmesg for AER errors",
    )


def _flaps(node: str, port: Port, changes: int, limit: int) -> Check:
    return Check(
        id="fabric.flaps",
        node=node,
        netdevs=(port.netdev,),
        ok=changes <= limit,
        found=f"{changes} carrier changes on {port.label}",
        expected=f"up to {limit} since the netdev appeared",
        cure=f"seat the cable of port {port.port} at both ends, or try another one; reboots of {port.peer} count too",
        severity="info",
    )


def _speed(node: str, port: Port, function: Function, speed: int) -> Check:
    return Check(
        id="fabric.speed",
        node=node,
        netdevs=(port.netdev,),
        ok=function.speed == speed,
        found=f"{'unknown speed' if function.speed is None else f'{function.speed} Mb/s'} on {port.label}",
        expected=f"{speed} Mb/s",
        cure="seat the cable or try another 200 Gb/s one; on a switch, turn autonegotiation off and fix the port at 200G",
    )


def _route(node: str, port: Port, route: Route) -> Check:
    via = f" via {route.gateway}" if route.gateway else ""
    found = f"by {route.dev}{via} from {route.source or 'no address'}" if route.dev else f"no route ({route.reason})"
    return Check(
        id="fabric.route",
        node=node,
        netdevs=(port.netdev,),
        ok=route == Route(port.netdev, port.address),
        found=f"{port.peer_address} of {port.peer} goes {found}",
        expected=f"by {port.netdev} from {port.address}",
        cure=f"look for another route to {port.subnet} in 'ip route' and 'ip rule' on {node}, and remove it; "
        "traffic would leave the fabric without an error",
    )


def _rdma(node: str, port: Port, function: Function, expected: Expected, seen: Seen) -> list[Check]:
    link, active = seen.links[port.netdev], seen.verbs.get(function.rdma_device)
    checks = []
    if port.cidr in link.ipv4:  # without the address there is no GID to look for
        checks.append(_gid(node, port, function))
    if active is not None or link.mtu == expected.mtu:  # a derived one says no more than a wrong MTU
        checks.append(_active_mtu(node, port, active, link.mtu, expected.mtu))
    return checks


def _gid(node: str, port: Port, function: Function) -> Check:
    device = function.rdma_device
    lacking = f"no RoCE v2 GID for {port.address} at {device} on {port.netdev}"
    none = lacking if device else f"no RDMA device at {port.netdev}"
    return Check(
        id="fabric.gid",
        node=node,
        netdevs=(port.netdev,),
        ok=function.gid_index is not None,
        found=f"GID index {function.gid_index} of {device} on {port.label}" if function.gid_index is not None else none,
        expected=f"a RoCE v2 GID equal to {port.address}",
        cure=f"load mlx5_ib (role rdma); else take {port.address} off {port.netdev} and run the fabric role: the GID follows the address",
    )


def _active_mtu(node: str, port: Port, verbs: int | None, mtu: int, planned: int) -> Check:
    active, source = (roce_mtu(mtu), f"from MTU {mtu}") if verbs is None else (verbs, "ibv_devinfo")
    wanted = roce_mtu(planned)
    return Check(
        id="fabric.active_mtu",
        node=node,
        netdevs=(port.netdev,),
        ok=active == wanted,
        found=f"{active} bytes ({source}) on {port.label}",
        expected=f"{wanted} bytes",
        cure=f"set {port.netdev} to MTU {planned} and then down and up: RDMA takes its MTU from the netdev",
    )


def subnet_check(node: str, ports: Sequence[Port], links: Mapping[str, Link]) -> Check:
    """Two netdevs of one node in one subnet, where one of them is the fabric's: traffic leaves by either."""
    fabric = {port.netdev for port in ports}
    held = [(name, IPv4Interface(cidr)) for name, link in sorted(links.items()) for cidr in link.ipv4]
    clashes = [
        ({name, other}, f"{left} on {name} and {right} on {other}")
        for index, (name, left) in enumerate(held)
        for other, right in held[index + 1 :]
        if name != other and {name, other} & fabric and left.network.overlaps(right.network)
    ]
    return Check(
        id="fabric.subnet",
        node=node,
        netdevs=tuple(sorted(fabric & set().union(*(names for names, _text in clashes)))),
        ok=not clashes,
        found="; ".join(text for _names, text in clashes) or "no two interfaces in one subnet",
        expected="a subnet of its own for each fabric interface",
        cure="take the address away that the topology file does not plan: another netplan file or NetworkManager connection gives it; "
        "when both are wanted, choose another supernet",
    )


def firmware_check(node: str, fleet: Mapping[str, Iterable[str]]) -> Check | None:
    """This node's ConnectX firmware beside that of all others; None when fewer than two nodes have any.

    The version of most nodes is the right one; without a majority no node's is.
    """
    versions = {name: ", ".join(sorted(found)) for name, found in fleet.items() if found}
    if node not in versions or len(versions) < 2:
        return None
    ranking = Counter(versions.values()).most_common(2)
    common = ranking[0][0] if len(ranking) == 1 or ranking[0][1] > ranking[1][1] else ""
    others = "; ".join(f"{name} {version}" for name, version in sorted(versions.items()) if name != node)
    return Check(
        id="fabric.firmware",
        node=node,
        ok=versions[node] == common,
        found=versions[node],
        expected=f"{common or 'one version'} on all nodes ({others})",
        cure="update the firmware of all nodes to the same version (DGX OS: fwupdmgr); unequal ones halved all_gather in the field",
        severity="warning",
    )


def node_checks(
    node: str,
    ports: Sequence[Port],
    links: Mapping[str, Link],
    fleet: Mapping[str, Iterable[str]],
    cabling: Iterable[Mapping[str, Any]],
) -> list[Check]:
    """The checks of the node as a whole. cabling: the probe's checks about any nodes, of which this node's are taken."""
    names = Check.__dataclass_fields__
    own = [
        Check(**{name: check[name] for name in names if name in check}) for check in cabling if check["node"] == node
    ]
    firmware = firmware_check(node, fleet)
    return [*own, subnet_check(node, ports, links), *([firmware] if firmware else [])]
