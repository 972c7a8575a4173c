# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ConnectX netdevs of one node, from a snapshot of sysfs: which port and rail each one is, and what it is in; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .links import Link
from .rdma import Device, Port, gid_index

DRIVER = "mlx5_core"
SLOTS = tuple((port, rail) for port in (0, 1) for rail in (0, 1))

_PORT_NAME = re.compile(r"(?:c\d+)?p(\d+)")  # phys_port_name of a physical port; pf0vf1 is one of a virtual machine's
_PORT_SUFFIX = re.compile(r"np(\d+)$")
_DOMAIN_IN_NAME = re.compile(r"en(P\d+)?p\d+s\d+")


@dataclass(frozen=True)
class Netdev:
    """One netdev as sysfs shows it. Empty text, None: sysfs does not tell.

    speed in Mb/s; pcie_speed as '32.0 GT/s'; pcie_width in lanes; master: the bond or bridge that it is part of.
    """

    name: str
    phys_port_name: str = ""
    pci_address: str = ""
    driver: str = ""
    master: str = ""
    carrier: bool = False
    carrier_changes: int | None = None
    speed: int | None = None
    mtu: int | None = None
    pcie_speed: str = ""
    pcie_width: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """netdevs: those with a device behind them, by name. devices: RDMA devices by name. hotplug: hot-plug power control on, None: none."""

    netdevs: Mapping[str, Netdev] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)
    hotplug: bool | None = None

    def device_of(self, netdev: str) -> Device | None:
        """The RDMA device of the same function."""
        return next((device for device in self.devices.values() if netdev in device.netdevs), None)


@dataclass(frozen=True)
class Function:
    """One of the four functions behind the two ports, or a netdev that is none of them (port or rail None).

    present: whether the netdev exists. planned: whether fabric_ports has it. ipv4 in CIDR form.
    gid_index: of the RoCE v2 GID that is the planned address (without plan: the first address), None: there is none.
    """

    port: int | None
    rail: int | None
    netdev: str = ""
    present: bool = False
    planned: bool = False
    rdma_device: str = ""
    rdma_state: str = ""
    rdma_rate: str = ""
    gid_index: int | None = None
    firmware: str = ""
    sys_image_guid: str = ""
    pci_address: str = ""
    driver: str = ""
    master: str = ""
    carrier: bool = False
    carrier_changes: int | None = None
    speed: int | None = None
    mtu: int | None = None
    pcie_speed: str = ""
    pcie_width: int | None = None
    ipv4: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        """Whether its RDMA port can carry traffic."""
        return self.rdma_state.endswith(" ACTIVE")

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ipv4": list(self.ipv4)}


def physical_port(netdev: Netdev, planned: Port | None = None) -> int | None:
    """The cage: by phys_port_name, by the np suffix of the name, else as planned.

    Never by PCI address: the two functions of one cage have different ones (NVIDIA/NemoClaw#8520).
    """
    named = _PORT_NAME.fullmatch(netdev.phys_port_name)
    if named is None and not netdev.phys_port_name:
        named = _PORT_SUFFIX.search(netdev.name)
    if named is not None:
        return int(named[1])
    return planned.port if planned and not netdev.phys_port_name else None


def rail_of(netdev: Netdev, domains: Sequence[str], planned: Port | None = None) -> int | None:
    """The function behind the cage: by the order of the two PCI domains, by the P in the name, else as planned.

    domains: PCI domains of all ConnectX netdevs of the machine, in order.
    """
    domain = netdev.pci_address.partition(":")[0]
    if len(domains) > 1 and domain in domains:
        return domains.index(domain)
    named = _DOMAIN_IN_NAME.match(netdev.name)
    if named is not None:
        return 1 if named[1] else 0
    if planned is not None:
        return planned.rail
    return None if not domain else int(int(domain, 16) > 0)


def functions(snapshot: Snapshot, links: Mapping[str, Link], planned: Sequence[Port]) -> list[Function]:
    """Every ConnectX netdev and every planned one, by port and rail; those of the four that are absent are there as absent."""
    plan = {port.netdev: port for port in planned}
    there = [netdev for name, netdev in snapshot.netdevs.items() if netdev.driver == DRIVER or name in plan]
    domains = _domains(there)
    found = [_present(netdev, snapshot, links, domains, plan.get(netdev.name)) for netdev in there]
    found += [
        Function(port.port, port.rail, port.netdev, planned=True)
        for port in planned
        if port.netdev not in snapshot.netdevs
    ]
    taken = {(function.port, function.rail) for function in found}
    found += [Function(port, rail) for port, rail in SLOTS if (port, rail) not in taken]
    return sorted(found, key=_order)


def _domains(netdevs: Iterable[Netdev]) -> list[str]:
    return sorted({netdev.pci_address.partition(":")[0] for netdev in netdevs if netdev.pci_address})


def _order(function: Function) -> tuple[int, int, str]:
    last = len(SLOTS)
    port = last if function.port is None else function.port
    return port, last if function.rail is None else function.rail, function.netdev


def _present(
    netdev: Netdev, snapshot: Snapshot, links: Mapping[str, Link], domains: Sequence[str], planned: Port | None
) -> Function:
    link = links.get(netdev.name)
    ipv4 = link.ipv4 if link else ()
    device = snapshot.device_of(netdev.name)
    address = planned.address if planned else ipv4[0].partition("/")[0] if ipv4 else ""
    return Function(
        port=physical_port(netdev, planned),
        rail=rail_of(netdev, domains, planned),
        netdev=netdev.name,
        present=True,
        planned=planned is not None,
        rdma_device=device.name if device else "",
        rdma_state=device.state if device else "",
        rdma_rate=device.rate if device else "",
        gid_index=gid_index(device.gids, address, netdev.name) if device and address else None,
        firmware=device.fw_ver if device else "",
        sys_image_guid=device.sys_image_guid if device else "",
        pci_address=netdev.pci_address,
        driver=netdev.driver,
        master=netdev.master,
        carrier=netdev.carrier,
        carrier_changes=netdev.carrier_changes,
        speed=netdev.speed,
        mtu=netdev.mtu,
        pcie_speed=netdev.pcie_speed,
        pcie_width=netdev.pcie_width,
        ipv4=ipv4,
    )


def machine_guid(found: Iterable[Function]) -> str:
    """What tells machines apart: the same on all RDMA devices of one ConnectX; empty when there is none."""
    return next((function.sys_image_guid for function in found if function.sys_image_guid), "")


def firmware_of(found: Iterable[Function]) -> list[str]:
    """Firmware versions, each once; one ASIC has one."""
    return sorted({function.firmware for function in found if function.firmware})
