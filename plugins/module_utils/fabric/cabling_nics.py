# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which netdevs the cabling probe uses, and which machine this is: read from sysfs, decided by pure functions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..host import HostError, read_text, run
from .links import parse_links

DRIVER = "mlx5_core"
MACHINE_ID = Path("/etc/machine-id")
_PORT_NAME = re.compile(r"p([01])")
_PORT_SUFFIX = re.compile(r"np([01])$")


@dataclass(frozen=True, order=True)
class Nic:
    """A netdev of the fabric: the cage (port) and the PCIe function behind it (rail)."""

    port: int
    rail: int
    netdev: str


@dataclass(frozen=True)
class Function:
    """What sysfs says of a netdev that ConnectX's driver made. phys_port: phys_port_name, empty where the kernel has none."""

    netdev: str
    pci: str
    phys_port: str


def port_of(function: Function) -> int | None:
    """The cage, by the kernel's name of the port, else by the netdev's own. Not by PCI address: both rails share a cage."""
    found = _PORT_NAME.fullmatch(function.phys_port) or _PORT_SUFFIX.search(function.netdev)
    return int(found[1]) if found else None


def numbered(functions: Iterable[Function]) -> tuple[Nic, ...]:
    """Ports and rails of the functions: rails of a port in the order of their PCI addresses. Others are left out.

    Raises ValueError when a port has more functions than a GB10 has.
    """
    by_port: dict[int, list[Function]] = {}
    for function in functions:
        port = port_of(function)
        if port is not None:
            by_port.setdefault(port, []).append(function)
    nics = []
    for port, members in by_port.items():
        members.sort(key=lambda function: function.pci)
        if len(members) > 2:
            names = ", ".join(function.netdev for function in members)
            raise ValueError(
                f"port {port} has the netdevs {names}, expected two; give the fabric's own in option ports"
            )
        nics += [Nic(port, rail, function.netdev) for rail, function in enumerate(members)]
    return tuple(sorted(nics))


def chosen(planned: Sequence[Mapping[str, Any]], found: Sequence[Nic]) -> tuple[Nic, ...]:
    """The planned netdevs, and those found at places that the plan leaves out: a cable may be in a port that nobody planned."""
    nics = {
        (int(entry["port"]), int(entry["rail"])): Nic(int(entry["port"]), int(entry["rail"]), str(entry["netdev"]))
        for entry in planned
    }
    names = {nic.netdev for nic in nics.values()}
    for nic in found:
        if nic.netdev not in names:
            nics.setdefault((nic.port, nic.rail), nic)
    return tuple(sorted(nics.values()))


def machine_key(guids: Iterable[str], machine_id: str | None) -> tuple[str, str]:
    """A name of this machine that no other has, and where it is from: the adapter's image GUID, else /etc/machine-id."""
    real = sorted(guid for guid in guids if re.search(r"[1-9a-f]", guid))
    if real:
        return real[0], "sys_image_guid"
    if machine_id:
        return hashlib.sha256(machine_id.encode()).hexdigest()[:16], "machine-id"
    raise ValueError(
        "this machine has no name: no sys_image_guid below the sysfs root and no /etc/machine-id; run systemd-machine-id-setup"
    )


# -- from here on: reading this machine --


def read_functions(root: Path) -> list[Function]:
    """The physical ConnectX functions below a sysfs root. Raises HostError."""
    functions = []
    try:
        for entry in sorted((root / "class/net").iterdir()):
            device = entry / "device"
            driver = device / "driver"
            if driver.is_symlink() and driver.resolve().name == DRIVER and not (device / "physfn").exists():
                functions.append(Function(entry.name, device.resolve().name, _port_name(entry)))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HostError(f"cannot read {error.filename}: {error.strerror}") from error
    return functions


def _port_name(entry: Path) -> str:
    try:
        return (entry / "phys_port_name").read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # the kernel answers EOPNOTSUPP where a driver has no such name
        return ""


def read_machine(root: Path, netdevs: Iterable[str]) -> tuple[str, str]:
    """machine_key of this machine. Raises HostError."""
    guids = [
        (read_text(path) or "").strip()
        for netdev in netdevs
        for path in (root / "class/net" / netdev / "device/infiniband").glob("*/sys_image_guid")
    ]
    try:
        return machine_key(guids, (read_text(MACHINE_ID) or "").strip())
    except ValueError as error:
        raise HostError(str(error)) from error


def read_rdma_device(root: Path, netdev: str) -> str:
    """The RDMA device of a netdev, empty where it has none."""
    return next(iter(sorted(path.name for path in (root / "class/net" / netdev / "device/infiniband").glob("*"))), "")


def read_nics(root: Path, planned: Sequence[Mapping[str, Any]]) -> tuple[Nic, ...]:
    """chosen, on this machine. Raises HostError when there is nothing to probe."""
    try:
        nics = chosen(planned, numbered(read_functions(root)))
    except (KeyError, TypeError, ValueError) as error:
        raise HostError(f"ports: {error}") from error
    if not nics:
        raise HostError(
            f"no netdev below {root}/class/net has the driver {DRIVER}, and option ports names none; plug in a cable (DGX OS powers "
            "unused ports off), or give the netdevs in ports"
        )
    return nics


def read_addresses() -> dict[str, list[str]]:
    """IPv4 addresses in CIDR form by netdev, without the loopback's. Raises HostError."""
    said = run(["ip", "-j", "addr"])
    try:
        return {name: list(link.ipv4) for name, link in parse_links(said.stdout).items() if link.ipv4 and name != "lo"}
    except ValueError as error:
        raise HostError(f"ip -j addr: not the JSON that was expected: {error}") from error
