# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric's netdevs of one node, as the inventory plans them (``fabric_ports``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Any

MTU_RANGE = (1280, 9216)
_NETDEV = re.compile(r"[A-Za-z0-9_.-]{1,15}")

# Options of the modules that take fabric_ports; described in the documentation fragment fabric_ports.
PORT_OPTIONS: dict[str, dict[str, Any]] = {
    "port": {"type": "int", "required": True, "choices": [0, 1]},
    "rail": {"type": "int", "required": True, "choices": [0, 1]},
    "netdev": {"type": "str", "required": True},
    "rdma_device": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "prefix": {"type": "int", "required": True},
    "subnet": {"type": "str", "required": True},
    "peer": {"type": "str", "required": True},
    "peer_netdev": {"type": "str", "required": True},
    "peer_address": {"type": "str", "required": True},
}


class PortsError(ValueError):
    """What is wrong with the given ports; its text is the message for the user."""


@dataclass(frozen=True)
class Port:
    """One netdev and the leg it is on. prefix is a length in bits, subnet is in CIDR form."""

    port: int
    rail: int
    netdev: str
    address: str
    prefix: int
    subnet: str
    peer: str
    peer_netdev: str
    peer_address: str
    rdma_device: str = ""

    @property
    def cidr(self) -> str:
        return f"{self.address}/{self.prefix}"

    @property
    def label(self) -> str:
        """The leg, for a person."""
        return f"{self.netdev} (port {self.port}, rail {self.rail}, {self.subnet} to {self.peer})"


def parse_ports(options: Sequence[Mapping[str, Any]], mtu: int = 9000) -> tuple[Port, ...]:
    """Checked ports from the module's options. Raises PortsError with everything that is wrong."""
    problems = []
    if not options:
        problems.append("ports is empty, expected the netdevs of the fabric (fabric_ports)")
    low, high = MTU_RANGE
    if not low <= mtu <= high:
        problems.append(f"mtu is {mtu}, expected {low} to {high} bytes")
    for index, option in enumerate(options):
        problems += [f"ports[{index}].{problem}" for problem in _port_problems(option)]
    if not problems:
        problems = _conflicts(options)
    if problems:
        raise PortsError("; ".join(problems))
    names = Port.__dataclass_fields__
    return tuple(Port(**{name: option[name] for name in names}) for option in options)


def _port_problems(option: Mapping[str, Any]) -> list[str]:
    problems = []
    if not _NETDEV.fullmatch(option["netdev"]):
        problems.append(f"netdev is '{option['netdev']}', expected an interface name of up to 15 characters")
    if not 1 <= option["prefix"] <= 31:
        problems.append(f"prefix is {option['prefix']}, expected 1 to 31")
    for name in ("address", "peer_address"):
        try:
            IPv4Address(option[name])
        except AddressValueError:
            problems.append(f"{name} is '{option[name]}', expected an IPv4 address")
    return problems


def _conflicts(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Netdevs named twice, and netdevs of one node in one subnet: its traffic would leave by either of them."""
    problems = []
    for index, option in enumerate(options):
        for other in options[:index]:
            if option["netdev"] == other["netdev"]:
                problems.append(f"netdev {option['netdev']} is given twice, expected one entry for each netdev")
            elif _network(option).overlaps(_network(other)):
                where = f"{other['netdev']} and {option['netdev']}"
                problems.append(f"{where} are both in {_network(option)}, expected a subnet for each")
    return problems


def _network(option: Mapping[str, Any]) -> IPv4Network:
    return IPv4Network((option["address"], option["prefix"]), strict=False)
