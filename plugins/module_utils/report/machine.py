# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One read-only look at a machine for the preflight checks."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..host import HostError, read_text, run
from ..topology.overlap import Held, own_netdevs, parse_held
from .preflight import FileSystem, MachineFacts

# sudo's secure_path and a plain SSH session differ; the administrator's tools count either way.
TOOL_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])

OWN_NETPLAN = "etc/netplan/60-gb10-ring.yaml"


def look(tools: Sequence[str], data_path: str, root: Path = Path("/")) -> MachineFacts:
    """Facts for ``preflight.checks``. root stands for / where files are read."""
    file_system, file_system_error = _file_system(Path(data_path))
    system = os.uname()
    links = _ip("addr", "show")
    return MachineFacts(
        os_release=_text(root / "etc/os-release"),
        dgx_release=_text(root / "etc/dgx-release"),
        architecture=system.machine,
        kernel=system.release,
        python=sys.version_info[:3],
        pid1=_text(root / "proc/1/comm").strip(),
        euid=os.geteuid(),
        missing_tools=tuple(tool for tool in tools if shutil.which(tool, path=TOOL_PATH) is None),
        netplan=_package_version("netplan.io"),
        netdevs=tuple(sorted(path.name for path in (root / "sys/class/net").glob("*") if path.is_dir())),
        addresses=None if links is None else parse_addresses(links),
        held=_held(links),
        own_netdevs=own_netdevs(_text(root / OWN_NETPLAN)),
        file_system=file_system,
        file_system_error=file_system_error,
    )


def boot_id(root: Path = Path("/")) -> str:
    return _text(root / "proc/sys/kernel/random/boot_id").strip()


def _text(path: Path) -> str:
    """The file's text, empty when it is absent or closed to us: the check on it says so."""
    try:
        return read_text(path) or ""
    except HostError:
        return ""


def _package_version(package: str) -> str:
    """The installed version by dpkg, empty when it is not installed (or this is no Debian)."""
    try:
        done = run(["dpkg-query", "--show", "--showformat", "${db:Status-Status} ${Version}", package], check=False)
    except HostError:
        return ""
    status, _blank, version = done.stdout.partition(" ")
    return version.strip() if done.rc == 0 and status == "installed" else ""


def _ip(*words: str) -> list[dict[str, Any]] | None:
    """What ``ip`` tells of IPv4 as JSON, None when it can't."""
    try:
        found: list[dict[str, Any]] = json.loads(run(["ip", "-j", "-4", *words]).stdout or "[]")
    except (HostError, ValueError):
        return None
    return found


def _held(links: Sequence[Mapping[str, Any]] | None) -> tuple[Held, ...] | None:
    routes = None if links is None else _ip("route", "show", "table", "all")
    return None if links is None or routes is None else parse_held(links, routes)


def parse_addresses(links: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """IPv4 addresses by netdev from ``ip -j -4 addr``; the part of a veth name behind @ is another field there."""
    return {
        link["ifname"]: tuple(info["local"] for info in link.get("addr_info", ()) if info.get("family") == "inet")
        for link in links
        if "ifname" in link
    }


def _file_system(path: Path) -> tuple[FileSystem | None, str]:
    """The file system of the path or of its nearest existing parent, or why it can't be read."""
    try:
        here = next(place for place in (path, *path.parents) if place.exists())
        held = os.statvfs(here)
    except OSError as error:
        return None, f"cannot read {path}: {error.strerror}"
    read_only = bool(held.f_flag & os.ST_RDONLY)
    inodes = held.f_favail if held.f_files else None
    return FileSystem(str(here), held.f_bavail * held.f_frsize, inodes, read_only), ""
