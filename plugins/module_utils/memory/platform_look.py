# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One read-only look at a machine for the platform checks. root stands for / where files are read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..fabric.sysfs import HOTPLUG
from ..host import HostError, read_text, run
from . import swap, sysctl
from .holders import Process, engine_name, fields
from .platform import ENGINE, OOM_DAEMONS, Platform

UNITS = (ENGINE, *OOM_DAEMONS, "nvidia-persistenced.service", "unattended-upgrades.service")
PACKAGES = ("rdma-core", "ibverbs-utils", "infiniband-diags", "perftest")
OFED_PACKAGES = ("mlnx-ofed-kernel-dkms", "mlnx-ofed-kernel-utils", "mlnx-ofed-all", "doca-ofed", "doca-ofed-userspace")
_PEERMEM = ("nvidia-peermem", "nvidia_peermem", "nv_peer_mem")


def look(root: Path = Path("/")) -> Platform:
    """Everything that platform.checks decides from; what cannot be read is empty or None."""
    versions = packages((*PACKAGES, *OFED_PACKAGES))
    return Platform(
        kernel=text(root / "proc/sys/kernel/osrelease").strip(),
        cmdline=text(root / "proc/cmdline").strip(),
        page_size=os.sysconf("SC_PAGE_SIZE"),
        memory=fields(text(root / "proc/meminfo")),
        swaps=swap.parse_swaps(text(root / "proc/swaps")),
        thp=sysctl.selected(text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        driver=_driver(root),
        processes=processes(root),
        units=_units(),
        time_synced=_time_synced(),
        packages={name: versions[name] for name in PACKAGES if name in versions},
        ofed=tuple(_ofed(root, versions)),
        peermem=tuple(_peermem(root)),
        nccl_files=_nccl_files(root),
        ruleset=_ruleset(),
        hotplug=_hotplug(root),
    )


def text(path: Path) -> str:
    """The file's text, empty when it is absent or closed to us: the check on it says so."""
    try:
        return read_text(path) or ""
    except HostError:
        return ""


def _driver(root: Path) -> str:
    """Version of the loaded NVIDIA kernel module."""
    return text(root / "sys/module/nvidia/version").strip()


def processes(root: Path = Path("/")) -> tuple[Process, ...]:
    """Processes of inference engines, by pid; one that ends meanwhile is left out."""
    found = []
    for path in sorted((root / "proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        comm = text(path / "comm").strip()
        name = engine_name(comm, text(path / "cmdline").replace("\0", " "))
        if name:
            resident = fields(text(path / "status")).get("VmRSS", 0)
            found.append(Process(int(path.name), name, resident, text(path / "cgroup").strip()))
    return tuple(found)


def _said(*argv: str) -> str | None:
    """Output of a command, None when it cannot be had."""
    try:
        done = run(list(argv), timeout=20.0, check=False)
    except HostError:
        return None
    return done.stdout if done.rc == 0 else None


def _units() -> dict[str, str]:
    """ActiveState of the units that exist."""
    shown = _said("systemctl", "show", "-p", "Id,LoadState,ActiveState", "--", *UNITS) or ""
    found = {}
    for part in shown.split("\n\n"):
        values = dict(line.split("=", 1) for line in part.splitlines() if "=" in line)
        if values.get("LoadState") not in (None, "not-found"):
            found[values["Id"]] = values.get("ActiveState", "")
    return found


def _time_synced() -> bool | None:
    said = (_said("timedatectl", "show", "-p", "NTPSynchronized", "--value") or "").strip()
    return {"yes": True, "no": False}.get(said)


def packages(names: Iterable[str]) -> dict[str, str]:
    """Versions of the installed ones; dpkg-query answers 1 when any is unknown, and yet tells the others."""
    try:
        done = run(
            ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status} ${Version}\n", *names], check=False
        )
    except HostError:
        return {}
    rows = [line.split(" ") for line in done.stdout.splitlines()]
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[1] == "installed"}


def _ofed(root: Path, packages: Mapping[str, str]) -> Iterable[str]:
    yield from (f"package {name} {packages[name]}" for name in OFED_PACKAGES if name in packages)
    if (root / "usr/bin/ofed_info").exists():
        yield "/usr/bin/ofed_info"


def _peermem(root: Path) -> Iterable[str]:
    """nvidia-peermem, loaded or asked for at boot."""
    if (root / "sys/module/nvidia_peermem").exists():
        yield "module nvidia_peermem is loaded"
    for path in [root / "etc/modules", *sorted((root / "etc/modules-load.d").glob("*.conf"))]:
        names = {line.split("#")[0].strip() for line in text(path).splitlines()}
        yield from (f"/{path.relative_to(root)} loads {name}" for name in _PEERMEM if name in names)


def _nccl_files(root: Path) -> dict[str, str]:
    """/etc/nccl.conf and root's own file, which an engine's unit reads too."""
    held = {path: text(root / path.lstrip("/")) for path in ("/etc/nccl.conf", "/root/.nccl.conf")}
    return {path: content for path, content in held.items() if content}


def _ruleset() -> list[Any] | None:
    """nft's view, which shows the rules of iptables-nft (Ubuntu's, Docker's) too; None without nft."""
    said = _said("nft", "-j", "list", "ruleset")
    try:
        found: list[Any] | None = json.loads(said)["nftables"] if said else None
    except (ValueError, KeyError):
        return None
    return found


def _hotplug(root: Path) -> bool | None:
    """Whether DGX OS powers an unused ConnectX off: the kernel's control, else the package's flag file."""
    control = text(root / "sys" / HOTPLUG).strip()
    if control:
        return control == "1"
    return True if (root / "etc/nvidia/cx7-hotplug-enabled").exists() else None
