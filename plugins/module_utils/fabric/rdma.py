# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA devices of the planned ports: which GID to use, and what is wrong with the devices; pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..report.checks import Check

ROCE_V2 = "RoCE v2"

_ABSENT_CURE = (
    "Plug the cable of this port at both ends; with no cable DGX OS powers an unused ConnectX off (dgx-spark-mlnx-hotplug) and its "
    "devices are absent. With a cable, load mlx5_ib (rdma role) and look at dmesg for cx7-pcie-hotplug and mlx5_core"
)


@dataclass(frozen=True)
class Port:
    """A planned port, from the inventory's fabric_ports."""

    port: int
    rail: int
    netdev: str
    rdma_device: str
    address: str

    @property
    def label(self) -> str:
        return f"{self.rdma_device} (port {self.port}, rail {self.rail})"


@dataclass(frozen=True)
class Gid:
    """An entry of a port's GID table. netdev is empty when the kernel does not tell it."""

    index: int
    value: str
    kind: str
    netdev: str = ""


@dataclass(frozen=True)
class Device:
    """An RDMA device as sysfs shows it; texts are empty when sysfs has no such file."""

    name: str
    netdevs: tuple[str, ...] = ()
    state: str = ""
    rate: str = ""
    link_layer: str = ""
    fw_ver: str = ""
    sys_image_guid: str = ""
    gids: tuple[Gid, ...] = ()


def ports_from(fabric_ports: Iterable[Mapping[str, Any]]) -> tuple[Port, ...]:
    """The inventory's ports. Raises ValueError that names the entry and the missing key."""
    ports = []
    for number, entry in enumerate(fabric_ports):
        missing = [key for key in ("port", "rail", "netdev", "rdma_device", "address") if key not in entry]
        if missing:
            raise ValueError(
                f"ports[{number}]: {', '.join(missing)} missing; the inventory's fabric_ports has all keys"
            )
        try:
            address = str(ipaddress.IPv4Address(entry["address"]))
        except ValueError as error:
            raise ValueError(f"ports[{number}].address: {error}; an IPv4 address without prefix is expected") from error
        ports.append(
            Port(int(entry["port"]), int(entry["rail"]), str(entry["netdev"]), str(entry["rdma_device"]), address)
        )
    return tuple(ports)


def gid_index(gids: Iterable[Gid], address: str, netdev: str) -> int | None:
    """Lowest index of the RoCE v2 GID that is this IPv4 address. The index moves with address changes, so it is looked up by value."""
    wanted = ipaddress.IPv6Address(f"::ffff:{address}")
    for gid in sorted(gids, key=lambda gid: gid.index):
        if gid.kind == ROCE_V2 and gid.netdev in ("", netdev) and _value(gid.value) == wanted:
            return gid.index
    return None


def _value(text: str) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(text)
    except ValueError:
        return None


def rate_gbps(text: str) -> float | None:
    """The number of '200 Gb/sec (4X HDR)'."""
    found = re.match(r"([\d.]+) Gb/sec", text)
    return float(found[1]) if found else None


def checks(node: str, ports: Sequence[Port], devices: Mapping[str, Device], rate: float) -> list[Check]:
    """Checks of every planned port; what follows from an absent device or a port that is down is left out. rate 0: any rate."""
    found = []
    for port in ports:
        device = devices.get(port.rdma_device)
        found.append(_device_check(node, port, device, devices.values()))
        if device is not None:
            found.append(_state_check(node, port, device))
            if found[-1].ok and rate:
                found.append(_rate_check(node, port, device, rate))
    return found


def _device_check(node: str, port: Port, device: Device | None, others: Iterable[Device]) -> Check:
    expected, own = f"{port.label} on {port.netdev}", (port.netdev,)
    if device is not None:
        ok = port.netdev in device.netdevs
        found = f"{device.name} on {', '.join(device.netdevs) or 'no netdev'}"
        cure = "Correct netdevs or rdma_devices of this node in the topology file"
        return Check("rdma.device", node, ok, found, expected, cure, netdevs=own)
    carrier = next((other.name for other in others if port.netdev in other.netdevs), None)
    if carrier:
        cure = f"Name it {carrier} under rdma_devices of this node in the topology file"
        return Check("rdma.device", node, False, f"{port.netdev} belongs to {carrier}", expected, cure, netdevs=own)
    return Check("rdma.device", node, False, "absent", expected, _ABSENT_CURE, netdevs=own)


def _state_check(node: str, port: Port, device: Device) -> Check:
    return Check(
        "rdma.state",
        node,
        netdevs=(port.netdev,),
        ok=device.state.endswith(" ACTIVE"),
        found=f"{port.label} {device.state or 'without state'}",
        expected="4: ACTIVE",
        cure=f"Set {port.netdev} up (fabric role); if it is up, check the cable at both ends",
    )


def _rate_check(node: str, port: Port, device: Device, rate: float) -> Check:
    return Check(
        "rdma.rate",
        node,
        netdevs=(port.netdev,),
        ok=rate_gbps(device.rate) == rate,
        found=f"{port.label} {device.rate or 'without rate'}",
        expected=f"{rate:g} Gb/sec",
        cure="Reseat the cable or try another 200 Gb/s one; on a switch, turn autonegotiation off and fix the port at 200G",
    )


def memlock_check(node: str, path: str, text: str, wanted: str) -> Check:
    """Whether our limits file gives every user the wanted memlock."""
    expected = {("*", "soft"), ("*", "hard"), ("root", "soft"), ("root", "hard")}
    lines = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    given = {(line[0], line[1]): line[3] for line in lines if len(line) == 4 and line[2] == "memlock"}
    values = sorted({given.get(key, "unset") for key in expected})
    found = f"with memlock {', '.join(values)}" if text else "absent"
    return Check(
        "rdma.memlock",
        node,
        ok=values == [wanted],
        found=f"{path} {found}",
        expected=f"{path} with memlock {wanted} for all users",
        cure="Run the rdma role, then log in again; a small memlock makes ibv_reg_mr fail, which looks like a network fault",
    )
