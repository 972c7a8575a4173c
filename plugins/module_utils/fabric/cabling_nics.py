# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which netdevs the cabling probe uses, and which machine this is; sysfs.py reads, info.py says which port and rail a netdev is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..host import HostError, read_text
from . import info, sysfs
from .links import read_links

MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True, order=True)
class Nic:
    """A netdev of the fabric: the cage (port) and the PCIe function behind it (rail)."""

    port: int
    rail: int
    netdev: str


@dataclass(frozen=True)
class Fabric:
    """What the probe works on. machine: a name that no other machine has, source: where it is from. rdma_devices: by netdev."""

    nics: tuple[Nic, ...]
    machine: str
    source: str
    rdma_devices: Mapping[str, str]


def chosen(planned: Sequence[Mapping[str, Any]], functions: Iterable[info.Function]) -> tuple[Nic, ...]:
    """The planned netdevs, and those found at places that the plan leaves out: a cable may be in a port that nobody planned.

    Raises ValueError when there are two at such a place.
    """
    nics = [Nic(int(entry["port"]), int(entry["rail"]), str(entry["netdev"])) for entry in planned]
    places, names = {(nic.port, nic.rail) for nic in nics}, {nic.netdev for nic in nics}
    found: dict[tuple[int, int], str] = {}
    for function in functions:
        if not function.present or function.port is None or function.rail is None or function.netdev in names:
            continue
        place = (function.port, function.rail)
        if place not in info.SLOTS or place in places:
            continue
        if place in found:
            raise ValueError(
                f"port {place[0]}, rail {place[1]} has the netdevs {found[place]}, {function.netdev}, expected one; give the fabric's "
                "own in option ports"
            )
        found[place] = function.netdev
    return tuple(sorted([*nics, *(Nic(*place, netdev) for place, netdev in found.items())]))


def machine_key(guids: Iterable[str], machine_id: str) -> tuple[str, str]:
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


def read_fabric(root: Path, planned: Sequence[Mapping[str, Any]]) -> Fabric:
    """root stands for /sys. Raises HostError when there is nothing to probe, or the machine has no name."""
    seen = sysfs.snapshot(root)
    try:
        nics = chosen(planned, info.functions(seen, {}, ()))
    except (KeyError, TypeError, ValueError) as error:
        raise HostError(f"ports: {error}") from error
    if not nics:
        raise HostError(
            f"no netdev below {root}/class/net has the driver {info.DRIVER}, and option ports names none; plug in a cable (DGX OS powers "
            "unused ports off), or give the netdevs in ports"
        )
    devices = {nic.netdev: device for nic in nics if (device := seen.device_of(nic.netdev))}
    try:
        machine, source = machine_key(
            [device.sys_image_guid for device in devices.values()], (read_text(MACHINE_ID) or "").strip()
        )
    except ValueError as error:
        raise HostError(str(error)) from error
    return Fabric(nics, machine, source, {netdev: device.name for netdev, device in devices.items()})


def read_addresses() -> dict[str, list[str]]:
    """IPv4 addresses in CIDR form by netdev, without the loopback's. Raises HostError."""
    return {name: list(link.ipv4) for name, link in read_links().items() if link.ipv4 and name != "lo"}
