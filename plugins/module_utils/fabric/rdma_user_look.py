# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads device files and NCCL libraries of a node."""

from __future__ import annotations

import mmap
import stat
from collections.abc import Iterable
from pathlib import Path

from ..host import HostError, read_text
from ..memory.nccl_files import BANNER, SUBNET_AWARE, Library, library_version
from .rdma_user import DeviceFile

LIMIT = 32  # libraries; a venv has one, an image a few


def device_files(sys_root: Path, dev_root: Path) -> list[DeviceFile]:
    """The file of each RDMA device that the kernel has, and rdma_cm."""
    folder = dev_root / "infiniband"
    found = []
    for path in sorted((sys_root / "class/infiniband_verbs").glob("uverbs*")):
        device = (read_text(path / "ibdev") or "").strip()
        found.append(DeviceFile(str(folder / path.name), device, _mode(folder / path.name)))
    return [*found, DeviceFile(str(folder / "rdma_cm"), "", _mode(folder / "rdma_cm"))]


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def libraries(path: Path) -> list[Library]:
    """Each libnccl.so of a file or a directory, links followed once. Raises HostError."""
    candidates: Iterable[Path] = [path] if path.is_file() else sorted(path.rglob("libnccl.so*"))
    real = dict.fromkeys(one.resolve() for one in candidates if one.is_file())
    return [_library(one) for one in list(real)[:LIMIT]]


def _library(path: Path) -> Library:
    try:
        with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
            banner = content.find(BANNER)
            text = content[banner : banner + 64] if banner >= 0 else b""
            return Library(str(path), library_version(text), content.find(SUBNET_AWARE) >= 0)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise HostError(f"cannot read {path}: {error}") from error
