# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``ip`` and ``ping`` say about one leg, and the checks of it; ladder.py puts them in order."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..report.checks import Check
from .links import Link
from .ports import Port

# IPv4 header (20) and ICMP header (8): what is left of a frame for ping's payload.
PING_OVERHEAD = 28

_ABSENT_CURE = (
    "plug in the cable of port {port}: DGX OS powers an unused ConnectX port off, and its netdevs go with it; "
    "where the machine names it otherwise, set netdevs in the topology file"
)
_WRONG_CURE = (
    "set netdevs of this node in the topology file to the names that fabric_info reports for the port; take a fabric netdev out of "
    "any bond or bridge: each has an address of its own"
)
_COUNTS = re.compile(r"(\d+) packets transmitted, (\d+) received")


@dataclass(frozen=True)
class Ping:
    """Outcome of one ping. reason: what it complained about. small: replies to a small ping after a failure, None: not tried."""

    sent: int
    received: int
    reason: str = ""
    small: bool | None = None

    @property
    def ok(self) -> bool:
        return self.sent > 0 and self.received == self.sent


def ping_argv(port: Port, size: int, count: int) -> list[str]:
    """A ping of ``size`` bytes on the wire, unfragmented, by this netdev only."""
    payload = str(size - PING_OVERHEAD)
    return [
        "ping",
        "-M",
        "do",
        "-s",
        payload,
        "-c",
        str(count),
        "-i",
        "0.2",
        "-W",
        "2",
        "-I",
        port.netdev,
        port.peer_address,
    ]


def parse_ping(stdout: str, stderr: str) -> Ping:
    """Counts and the first complaint in the output of iputils ping."""
    counts = _COUNTS.search(stdout)
    lines = [line.strip() for line in (*stderr.splitlines(), *stdout.splitlines())]
    complaints = [line for line in lines if line.startswith(("ping: ", "From ")) and "Warning" not in line]
    sent, received = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    return Ping(sent, received, complaints[0].removeprefix("ping: ") if complaints else "")


def can_ping(port: Port, link: Link | None, mtu: int) -> bool:
    """Whether a full-size ping over this leg makes sense: our own end has carrier, address and MTU."""
    return link is not None and link.carrier and port.cidr in link.ipv4 and link.mtu >= mtu


def settled(port: Port, link: Link | None, mtu: int) -> bool:
    """Whether waiting cannot help: all is as planned, or the netdev does not exist."""
    return link is None or (link.carrier and link.ipv4 == (port.cidr,) and link.mtu == mtu)


def presence_check(node: str, port: Port, link: Link | None, wrong: str = "") -> Check:
    """wrong: why the netdev of that name is not the planned one, empty when it is."""
    found = f"{port.netdev} {wrong}" if wrong else port.label if link else f"no netdev {port.netdev}"
    return Check(
        id="fabric.presence",
        node=node,
        netdevs=(port.netdev,),
        ok=link is not None and not wrong,
        found=found,
        expected=f"netdev {port.netdev} (port {port.port}, rail {port.rail}) for {port.subnet} to {port.peer}",
        cure=_WRONG_CURE if wrong else _ABSENT_CURE.format(port=port.port),
    )


def carrier_check(node: str, port: Port, link: Link) -> Check:
    state = "carrier" if link.carrier else "no carrier" if link.up else "set down, no carrier"
    return Check(
        id="fabric.carrier",
        node=node,
        netdevs=(port.netdev,),
        ok=link.carrier,
        found=f"{state} on {port.label}",
        expected=f"carrier from {port.peer_netdev} of {port.peer}",
        cure=(
            f"run 'netplan apply' on {node}"
            if not link.up
            else f"seat the cable from port {port.port} of {node} to {port.peer} ({port.peer_netdev}), and see that "
            f"{port.peer} is on and its fabric configured: both ends must be up"
        ),
    )


def address_check(node: str, port: Port, link: Link) -> Check:
    strangers = [address for address in link.ipv4 if address != port.cidr]
    return Check(
        id="fabric.address",
        node=node,
        netdevs=(port.netdev,),
        ok=link.ipv4 == (port.cidr,),
        found=f"{link.addresses()} on {port.label}",
        expected=f"{port.cidr} and no other IPv4 address",
        cure=(
            f"remove {', '.join(strangers)}: look for {port.netdev} in /etc/netplan, /run/netplan and NetworkManager's "
            "connections, since netplan joins the addresses of all files"
            if strangers
            else "run the fabric role again, or 'netplan apply' on the node"
        ),
    )


def mtu_check(node: str, port: Port, mtu: int, link: Link) -> Check:
    return Check(
        id="fabric.mtu",
        node=node,
        netdevs=(port.netdev,),
        ok=link.mtu == mtu,
        found=f"{link.mtu} bytes on {port.label}",
        expected=f"{mtu} bytes",
        cure=f"run the fabric role again; if it stays, another netplan file sets the mtu of {port.netdev}",
    )


def ping_check(node: str, port: Port, mtu: int, ping: Ping) -> Check:
    said = f" ({ping.reason})" if ping.reason and not ping.ok else ""
    passes = ", small ones pass" if ping.small and not ping.ok else ""
    return Check(
        id="fabric.ping",
        node=node,
        netdevs=(port.netdev,),
        ok=ping.ok,
        found=f"{ping.received} of {ping.sent} replies from {port.peer_address} on {port.label}{passes}{said}",
        expected=f"every reply to unfragmented packets of {mtu} bytes",
        cure=(
            f"set mtu {mtu} at the other end, {port.peer_netdev} of {port.peer} (and on a switch between them)"
            if ping.small
            else f"see that port {port.port} of {node} is cabled to {port.peer_netdev} of {port.peer}, and that "
            f"{port.peer} has {port.peer_address} there"
        ),
    )
