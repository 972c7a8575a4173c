# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs inside a lab node: the /sys files of a ConnectX-7 for netdevs that are veths, kept true to carrier and addresses.

/sys/class/infiniband and its kin are made up; to each netdev's own directory the attributes that a veth lacks (speed,
phys_port_name, device) are added by an overlay, so everything else there is the kernel's. The first half of the file decides
(pure), the second half mounts, writes and listens.
"""

from __future__ import annotations

import ctypes
import ipaddress
import json
import os
import select
import socket
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GID_SLOTS = 16  # the hardware has 256; readers must sort numerically with either
GID_TYPES = ("IB/RoCE v1", "RoCE v2")


@dataclass(frozen=True)
class Device:
    """One PCIe function of the ConnectX-7 (NVIDIA connect-three-sparks README; PCI ids from machines in the field)."""

    rdma: str
    netdev: str
    pci: str
    port: int
    guid_offset: int


DEVICES = (
    Device("rocep1s0f0", "enp1s0f0np0", "0000:01:00.0", 0, 0),
    Device("rocep1s0f1", "enp1s0f1np1", "0000:01:00.1", 1, 1),
    Device("roceP2p1s0f0", "enP2p1s0f0np0", "0002:01:00.0", 0, 4),
    Device("roceP2p1s0f1", "enP2p1s0f1np1", "0002:01:00.1", 1, 5),
)


def words(number: int, digits: int = 32) -> str:
    """A GID or GUID as sysfs writes it: groups of four hexadecimal digits."""
    text = f"{number:0{digits}x}"
    return ":".join(text[start : start + 4] for start in range(0, digits, 4))


EMPTY_GID = words(0)


def gid_of(address: str) -> str:
    """The GID of an address: itself for IPv6, the IPv4-mapped address for IPv4."""
    parsed = ipaddress.ip_address(address)
    return words(int(parsed) | (0xFFFF << 32 if parsed.version == 4 else 0))


def link_local(mac: str) -> str:
    """The default GID: fe80 and the EUI-64 of the MAC, whatever addresses the netdev has."""
    octets = [int(part, 16) for part in mac.split(":")]
    eui64 = bytes([octets[0] ^ 2, octets[1], octets[2], 0xFF, 0xFE, *octets[3:]])
    return words((0xFE80 << 112) | int.from_bytes(eui64, "big"))


def guid(mac: str, offset: int = 0) -> str:
    """A 64-bit GUID made from a MAC as the firmware does, in sysfs notation."""
    octets = [int(part, 16) for part in mac.split(":")]
    return words(int.from_bytes(bytes([*octets[:3], 3, 0, *octets[3:]]), "big") + offset, digits=16)


@dataclass
class GidTable:
    """A port's GID table: the default GID twice, then a v1 and a v2 entry for each address in the order of arrival.

    An address that goes leaves empty slots behind, which the next one takes: indices are not stable, as on the hardware.
    """

    default: str
    slots: list[str | None] = field(default_factory=lambda: [None] * (GID_SLOTS - 2))

    def update(self, addresses: Iterable[str]) -> None:
        wanted = [gid for gid in map(gid_of, addresses) if gid != self.default]
        self.slots = [gid if gid in wanted else None for gid in self.slots]
        for gid in dict.fromkeys(wanted):
            if gid not in self.slots and self.slots.count(None) >= 2:
                for _kind in GID_TYPES:
                    self.slots[self.slots.index(None)] = gid

    def entries(self) -> list[tuple[str, str]]:
        """(gid, type) of each slot; the type of an empty one is empty."""
        rows = [(self.default, kind) for kind in GID_TYPES]
        seen: dict[str, int] = {}
        for gid in self.slots:
            if gid is None:
                rows.append((EMPTY_GID, ""))
            else:
                rows.append((gid, GID_TYPES[seen.get(gid, 0) % 2]))
                seen[gid] = seen.get(gid, 0) + 1
        return rows


@dataclass(frozen=True)
class Netdev:
    """What a netdev is now."""

    mac: str
    carrier: bool
    addresses: tuple[str, ...]


def read_netdevs(addresses: Sequence[dict[str, Any]]) -> dict[str, Netdev]:
    """The netdevs in the output of `ip -j address`."""
    found = {}
    for link in addresses:
        inets = tuple(info["local"] for info in link.get("addr_info", ()) if "local" in info)
        found[link["ifname"]] = Netdev(
            link.get("address", ""), "LOWER_UP" in link["flags"] and "UP" in link["flags"], inets
        )
    return found


def port_files(netdev: str, now: Netdev, table: GidTable) -> dict[str, str]:
    """Files below ports/1 of an RDMA device that follow the netdev."""
    files = {
        "state": "4: ACTIVE" if now.carrier else "1: DOWN",
        "phys_state": "5: LinkUp" if now.carrier else "3: Disabled",
        "rate": "200 Gb/sec (4X HDR)" if now.carrier else "40 Gb/sec (4X QDR)",
    }
    for index, (gid, kind) in enumerate(table.entries()):
        files[f"gids/{index}"] = gid
        files[f"gid_attrs/types/{index}"] = kind
        files[f"gid_attrs/ndevs/{index}"] = netdev if kind else ""
    return files


def fixed_files(device: Device, first_mac: str) -> dict[str, str]:
    """Files of an RDMA device that do not change. Firmware and type: geerlingguy/sbc-reviews#92."""
    files = {
        "board_id": "NVD0000000087",
        "fw_ver": "28.45.4028",
        "hca_type": "MT4129",
        "hw_rev": "0",
        "node_desc": f"{device.rdma} gb10.ring lab",
        "node_guid": guid(first_mac, device.guid_offset),
        "node_type": "1: CA",
        "sys_image_guid": guid(first_mac),
        "ports/1/cap_mask": "0x00010000",
        "ports/1/lid": "0x0",
        "ports/1/lid_mask_count": "0",
        "ports/1/link_layer": "Ethernet",
        "ports/1/pkeys/0": "0xffff",
        "ports/1/sm_lid": "0x0",
        "ports/1/sm_sl": "0",
    }
    counters = (
        "link_downed",
        "port_rcv_data",
        "port_rcv_errors",
        "port_xmit_data",
        "port_xmit_discards",
        "symbol_error",
    )
    hardware = ("np_cnp_sent", "out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "rp_cnp_handled")
    files.update({f"ports/1/counters/{name}": "0" for name in counters})
    files.update({f"ports/1/hw_counters/{name}": "0" for name in hardware})
    return files


PCI_FILES = {
    "class": "0x020000",
    "current_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "4",
    "device": "0x1021",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": "4",
    "vendor": "0x15b3",
}


# -- from here on: this node's files --

RUN = Path("/run/gb10-lab")
CLASS = RUN / "sys" / "class"  # mounted over /sys/class
PCI = RUN / "sys" / "pci"
MS_BIND, MS_REC = 4096, 16384
NETLINK_GROUPS = 0x1 | 0x10 | 0x100  # links, IPv4 addresses, IPv6 addresses
SETTLE = 0.05  # seconds to gather events that come together


def write(path: Path, text: str) -> None:
    """Write in place: a bind mount or an overlay shows the inode, not the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n" if text else "", encoding="ascii")


def mount(source: str, target: Path, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    names = [None if name is None else str(name).encode() for name in (source, target, kind)]
    if libc.mount(*names, ctypes.c_ulong(flags), None if options is None else options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}")


def look() -> dict[str, Netdev]:
    done = subprocess.run(["ip", "-j", "address"], capture_output=True, check=True, text=True)
    return read_netdevs(json.loads(done.stdout))


def build_devices(present: dict[str, Netdev]) -> None:
    """The trees that do not change: class/infiniband, class/infiniband_verbs, and a PCI function for each device."""
    first_mac = present[DEVICES[0].netdev].mac if DEVICES[0].netdev in present else "4c:bb:47:00:00:00"
    driver = PCI / "drivers" / "mlx5_core"
    driver.mkdir(parents=True, exist_ok=True)
    write(CLASS / "infiniband_verbs" / "abi_version", "6")
    for index, device in enumerate(DEVICES):
        if device.netdev not in present:
            continue
        top = CLASS / "infiniband" / device.rdma
        for name, text in fixed_files(device, first_mac).items():
            write(top / name, text)
        pci = PCI / device.pci
        for name, text in PCI_FILES.items():
            write(pci / name, text)
        for kind, name in (("net", device.netdev), ("infiniband", device.rdma)):
            (pci / kind).mkdir(exist_ok=True)
            (pci / kind / name).symlink_to(f"/sys/class/{kind}/{name}")
        (pci / "driver").symlink_to(driver)
        (top / "device").symlink_to(pci)
        verbs = CLASS / "infiniband_verbs" / f"uverbs{index}"
        for name, text in (("ibdev", device.rdma), ("abi_version", "1"), ("dev", f"231:{192 + index}")):
            write(verbs / name, text)
        (verbs / "device").symlink_to(pci)
        device_file(f"uverbs{index}")
    device_file("rdma_cm")


def device_file(name: str) -> None:
    """A plain file with the mode that the udev rules of rdma-core give the device file; a node may not make devices."""
    path = Path("/dev/infiniband") / name
    write(path, "")
    path.chmod(0o666)


def extend_netdev(device: Device) -> None:
    """Lay speed, phys_port_name and device over the netdev's own directory."""
    layers = RUN / "sys" / "net" / device.netdev
    (layers / "work").mkdir(parents=True)
    write(layers / "upper" / "phys_port_name", f"p{device.port}")
    write(layers / "upper" / "speed", "-1")
    (layers / "upper" / "device").symlink_to(PCI / device.pci)
    target = Path("/sys/devices/virtual/net") / device.netdev
    options = f"lowerdir={target},upperdir={layers / 'upper'},workdir={layers / 'work'}"
    mount("gb10-lab", target, "overlay", 0, options)


def cover_class() -> None:
    """Mount the made-up tree over /sys/class, with every real class bound into it, so that none goes missing."""
    for entry in Path("/sys/class").iterdir():
        (CLASS / entry.name).mkdir(parents=True, exist_ok=True)
        mount(str(entry), CLASS / entry.name, None, MS_BIND)
    mount(str(CLASS), Path("/sys/class"), None, MS_BIND | MS_REC)


def update(present: dict[str, Netdev], tables: dict[str, GidTable], written: dict[Path, str]) -> None:
    """Write the files whose content has changed."""
    for device in DEVICES:
        if device.netdev not in present:
            continue
        now = present[device.netdev]
        table = tables.setdefault(device.rdma, GidTable(link_local(now.mac)))
        table.update(now.addresses)
        files = port_files(device.netdev, now, table)
        wanted = {CLASS / "infiniband" / device.rdma / "ports/1" / name: text for name, text in files.items()}
        wanted[Path("/sys/class/net") / device.netdev / "speed"] = "200000" if now.carrier else "-1"
        for path, text in wanted.items():
            if written.get(path) != text:
                write(path, text)
                written[path] = text


def notify_ready() -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.sendto(b"READY=1", address.replace("@", "\0", 1))


def main() -> None:
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    events.bind((0, NETLINK_GROUPS))
    present = look()
    if not (CLASS / "infiniband").exists():  # else this is a restart, and everything is mounted
        build_devices(present)
        for device in DEVICES:
            if device.netdev in present:
                extend_netdev(device)
        cover_class()
    tables: dict[str, GidTable] = {}
    written: dict[Path, str] = {}
    update(present, tables, written)
    notify_ready()
    while True:
        events.recv(65536)
        while select.select([events], [], [], SETTLE)[0]:
            events.recv(65536)
        update(look(), tables, written)


if __name__ == "__main__":
    main()
