# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What user space needs for RDMA on a node: packages, device files, a NCCL that knows rings; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..memory.nccl_files import SUBNET_AWARE_SINCE, Library
from ..report.checks import Check

OPEN = 0o666  # what the udev rules of rdma-core give


@dataclass(frozen=True)
class DeviceFile:
    """A file below /dev/infiniband. device: RDMA device that it belongs to, empty for rdma_cm. mode: None when it is absent."""

    path: str
    device: str
    mode: int | None

    @property
    def ok(self) -> bool:
        return self.mode is not None and self.mode & OPEN == OPEN

    def text(self) -> str:
        owner = f" ({self.device})" if self.device else ""
        return f"{self.path}{owner} {'absent' if self.mode is None else f'has mode {self.mode:04o}'}"


def device_files_check(node: str, present: Collection[str], files: Iterable[DeviceFile]) -> Check | None:
    """The files of the planned devices that are present, and the connection manager's; None where none is present."""
    if not present:
        return None
    counted = [file for file in files if not file.device or file.device in present]
    without = sorted(set(present) - {file.device for file in counted})
    wrong = [*(f"no uverbs file of {name}" for name in without), *(file.text() for file in counted if not file.ok)]
    return Check(
        "rdma.device_files",
        node,
        ok=not wrong,
        found="; ".join(wrong) or f"{len(counted)} files with mode 0666",
        expected="uverbs file of each planned device and rdma_cm below /dev/infiniband, with mode 0666",
        cure="Install rdma-core (its udev rules set the mode), load ib_uverbs and rdma_ucm (rdma role), then sudo udevadm trigger; an engine "
        "that does not run as root cannot open them otherwise",
    )


def packages_check(node: str, wanted: Sequence[str], installed: Mapping[str, str]) -> Check:
    """Versions are part of what is found, so that a report keeps them."""
    missing = [name for name in wanted if name not in installed]
    versions = ", ".join(f"{name} {installed[name]}" for name in wanted if name in installed)
    return Check(
        "rdma.packages",
        node,
        ok=not missing,
        found=f"not installed: {', '.join(missing)}" if missing else versions,
        expected="installed: " + ", ".join(wanted),
        cure=f"Run the rdma role, or sudo apt-get install {' '.join(missing)}",
    )


def nccl_to_come(node: str, missing: Sequence[str]) -> Check:
    """What the engine's profile names and is brought later: nothing was looked at, which is no fault."""
    return Check(
        "rdma.nccl_library",
        node,
        ok=False,
        found="; ".join(missing),
        expected="the NCCL that will serve, to look at",
        cure="Run the engine role, or install the engine, then verify.yml, which looks at it once it is there",
        severity="warning",
    )


def nccl_check(node: str, where: str, libraries: Sequence[Library], subnet_aware: bool) -> Check:
    """Whether the NCCL that will serve can route by subnet, which a ring needs. subnet_aware: whether the plan needs it."""
    old = [library for library in libraries if subnet_aware and not library.subnet_aware]
    since = ".".join(map(str, SUBNET_AWARE_SINCE))
    return Check(
        "rdma.nccl_library",
        node,
        ok=bool(libraries) and not old,
        found="; ".join(library.text() for library in libraries) or f"no libnccl.so {where}",
        expected=f"NCCL with NCCL_IB_SUBNET_AWARE_ROUTING ({since} or newer)" if subnet_aware else "a NCCL library",
        cure=f"Install NCCL {since} or newer where the engine runs (nvidia-nccl-cu13 in a venv, another image), and nothing older beside it: "
        "without subnet-aware routing a ring ends in ncclSystemError when channels are set up"
        if libraries
        else "Correct rdma_nccl_path, the engine's venv, or rdma_nccl_image, an image that is on the node (docker or podman image ls) and has NCCL",
    )
