# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transport line that NCCL would print with this environment on this machine, and the address checks of the start."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from . import EngineError

_SIOCGIFADDR = 0x8915


def active_devices(sysfs: Path) -> list[str]:
    """RDMA devices whose port 1 is ACTIVE, in NCCL's order (by name)."""
    root = sysfs / "class/infiniband"
    if not root.is_dir():
        return []
    found = []
    for device in sorted(entry.name for entry in root.iterdir()):
        try:
            state = (root / device / "ports/1/state").read_text(encoding="ascii")
        except OSError:
            continue
        if "ACTIVE" in state:
            found.append(device)
    # NCCL lists domain 0 first: rocep1s0f0, rocep1s0f1, then roceP2p1s0f0, roceP2p1s0f1
    return sorted(found, key=lambda name: ("P" in name, name))


def chosen_devices(devices: list[str], wanted: str) -> list[str]:
    """NCCL_IB_HCA applied: `=` in front means exact names, `^` all but these; else each name is a prefix."""
    exclude, wanted = wanted.startswith("^"), wanted.removeprefix("^")
    exact, wanted = wanted.startswith("="), wanted.removeprefix("=")
    names = [name.partition(":")[0] for name in wanted.split(",") if name]
    if not names:
        return devices

    def matches(device: str) -> bool:
        return any(device == name if exact else device.startswith(name) for name in names)

    return [device for device in devices if matches(device) != exclude]


def transport_line(environment: Mapping[str, str], sysfs: Path, address: str) -> str:
    """The NET/IB or NET/Socket line."""
    interface = environment.get("NCCL_SOCKET_IFNAME", "").removeprefix("=").partition(",")[0] or "lo"
    devices = []
    if environment.get("NCCL_IB_DISABLE", "0") != "1" and environment.get("NCCL_NET", "IB") == "IB":
        devices = chosen_devices(active_devices(sysfs), environment.get("NCCL_IB_HCA", ""))
    if not devices:
        return f"NET/Socket : Using [0]{interface}:{address}<0>"
    listed = " ".join(f"[{index}]{device}:1/RoCE" for index, device in enumerate(devices))
    return f"NET/IB : Using {listed} [RO]; OOB {interface}:{address}<0>"


def interface_address(interface: str) -> str:
    """First IPv4 address of an interface of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError as error:
            raise EngineError(
                f"NCCL_SOCKET_IFNAME={interface}: no such interface with an IPv4 address ({error.strerror})"
            ) from error
    return socket.inet_ntoa(answer[20:24])


def check_own_address(address: str) -> None:
    """VLLM_HOST_IP must be an address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise EngineError(f"VLLM_HOST_IP={address} is not an address of this machine") from error
            raise EngineError(f"VLLM_HOST_IP={address}: {error.strerror or error}") from error
