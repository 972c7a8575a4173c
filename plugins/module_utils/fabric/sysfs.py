# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads network and RDMA devices from sysfs; needs no RDMA tool."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from ..host import HostError, read_text
from .info import Netdev, Snapshot
from .rdma import Device, Gid

HOTPLUG = "devices/platform/MTKP0001:00/pcie_hotplug/hotplug_enabled"  # NVIDIA/NV-Kernels#271
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def snapshot(root: Path, planned: Collection[str] = ()) -> Snapshot:
    """Everything that info.py decides from. root stands for /sys; planned: netdevs to read though they have no device behind them."""
    netdevs = {}
    for path in sorted((root / "class/net").glob("*")):
        virtual_function = (path / "device/physfn").exists()
        if path.name in planned or ((path / "device").exists() and not virtual_function):
            netdevs[path.name] = _netdev(path)
    hotplug = _text(root / HOTPLUG)
    return Snapshot(netdevs, devices(root), hotplug == "1" if hotplug else None)


def _netdev(path: Path) -> Netdev:
    device = (path / "device").resolve() if (path / "device").exists() else None
    # A virtio netdev hangs on virtio0 below its PCI function.
    pci = next((up for up in (device, *device.parents) if _PCI.fullmatch(up.name)), None) if device else None
    return Netdev(
        name=path.name,
        phys_port_name=_text(path / "phys_port_name"),
        pci_address=pci.name if pci else "",
        driver=_target(device / "driver") if device else "",
        master=_target(path / "master"),
        carrier=_text(path / "carrier") == "1",  # cannot be read while the netdev is set down
        carrier_changes=_number(_text(path / "carrier_changes")),
        speed=_number(_text(path / "speed")),
        mtu=_number(_text(path / "mtu")),
        pcie_speed=_text(pci / "current_link_speed").removesuffix(" PCIe") if pci else "",
        pcie_width=_number(_text(pci / "current_link_width")) if pci else None,
    )


def devices(root: Path) -> dict[str, Device]:
    """RDMA devices by name; none on a machine without RDMA."""
    return {path.name: _device(path) for path in sorted((root / "class/infiniband").glob("*"))}


def _device(path: Path) -> Device:
    ports = sorted((path / "ports").glob("[0-9]*"), key=lambda port: int(port.name))
    port = ports[0] if ports else path / "ports/1"  # a ConnectX function has one port
    gids = tuple(_gids(port))
    return Device(
        name=path.name,
        netdevs=_netdevs(path, gids),
        state=_text(port / "state"),
        rate=_text(port / "rate"),
        link_layer=_text(port / "link_layer"),
        fw_ver=_text(path / "fw_ver"),
        sys_image_guid=_text(path / "sys_image_guid"),
        gids=gids,
    )


def _netdevs(path: Path, gids: Iterable[Gid]) -> tuple[str, ...]:
    """By PCI device; a soft-RoCE device has none, but names its netdev as parent, and so do its GIDs."""
    names = sorted(netdev.name for netdev in (path / "device/net").glob("*"))
    parent = _text(path / "parent")
    return tuple(names or ([parent] if parent else sorted({gid.netdev for gid in gids if gid.netdev})))


def _gids(port: Path) -> Iterable[Gid]:
    """Entries in use, in numeric order; the kernel answers EINVAL for the type of an empty one."""
    for path in sorted((port / "gids").glob("[0-9]*"), key=lambda gid: int(gid.name)):
        value, kind = _text(path), _text(port / "gid_attrs/types" / path.name)
        if kind and value.strip(":0"):
            yield Gid(int(path.name), value, kind, _text(port / "gid_attrs/ndevs" / path.name))


def _text(path: Path) -> str:
    """A file's text; empty when it is absent, or when the driver does not answer now."""
    try:
        return (read_text(path) or "").strip()
    except HostError:
        return ""


def _target(path: Path) -> str:
    """The name that a link points to; empty when there is none."""
    return path.resolve().name if path.is_symlink() else ""


def _number(text: str) -> int | None:
    """-1 is the kernel's word for an unknown speed."""
    return int(text) if text.isascii() and text.isdigit() else None
