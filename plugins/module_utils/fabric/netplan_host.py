# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading the machine's network configuration, and asking netplan about another one, as the pure core in change.py needs it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ..host import HostError, run, write_text
from . import before, guard, netplan_yaml
from .change import Machine
from .foreign import Netdev
from .links import Link, read_links
from .netplan import FILE_MODE, Managers, Refusal, explain_refusal
from .objections import ENGINE_UNIT, queue_pairs

NETPLAN_DIRECTORIES = ("etc/netplan", "run/netplan", "usr/lib/netplan")
PROFILE_DIRECTORIES = (
    "etc/NetworkManager/system-connections",
    "run/NetworkManager/system-connections",
    "usr/lib/NetworkManager/system-connections",
)
LINK_FILES = "run/systemd/network"
GENERATE_TIMEOUT = 60.0  # seconds


def locate(name: str) -> str:
    """The path again. Raises HostError when netplan would not read it."""
    path = PurePosixPath(name)
    if str(path.parent) != "/etc/netplan" or path.suffix != ".yaml":
        raise HostError(f"path is '{name}', expected a file directly in /etc/netplan with a name that ends in .yaml")
    return str(path)


def read_machine(root: Path, management: str) -> Machine:
    """Everything that a change may depend on. root: ``/`` but for tests. management: the interface that the inventory names."""
    if not netplan_yaml.HAS_YAML:
        raise HostError(netplan_yaml.MISSING)
    paths = [path for directory in NETPLAN_DIRECTORIES for path in sorted((root / directory).glob("*.yaml"))]
    paths += [path for directory in PROFILE_DIRECTORIES for path in _profiles(root / directory)]
    originals = [path for path in (root / before.FOLDER.lstrip("/")).rglob("*") if path.is_file()]
    stats = {path: path.stat() for path in paths}
    found = read_links()
    links = _look(found)
    link_files = sorted((root / LINK_FILES).glob("*-netplan-*.link"))
    return Machine(
        files={_name(root, path): _read(path) for path in paths},
        stats={_name(root, path): (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid) for path, stat in stats.items()},
        originals={_name(root, path): _read(path) for path in originals},
        link_files={_name(root, path): _read(path) for path in link_files},
        links=links,
        netdevs=tuple(_netdev(found[name]) for name in links),
        managers=Managers(_network_manager_states(), _networkd_states()),
        management=_management(management, links),
        serving=(*_engine(), *queue_pairs(_answer(["rdma", "-j", "resource", "show", "qp"]))),
    )


def _profiles(directory: Path) -> list[Path]:
    """NetworkManager's own profiles; those that netplan generates belong to netplan's files."""
    return [path for path in sorted(directory.glob("*.nmconnection")) if not path.name.startswith("netplan-")]


def _name(root: Path, path: Path) -> str:
    return f"/{path.relative_to(root)}"


def _read(path: Path) -> str:
    """The text such that writing it again gives the same bytes, whatever they are."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error


def _look(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    try:
        return guard.look(names)
    except ValueError as error:
        raise HostError(f"ip -j addr: not the JSON that was expected: {error}") from error


def _netdev(link: Link) -> Netdev:
    folder = Path("/sys/class/net") / link.name
    try:
        mac = (folder / "address").read_text(encoding="ascii").strip().lower()
    except OSError:
        mac = ""
    macs = tuple(each for each in (mac, link.permanent_mac.lower()) if each)
    driver = folder / "device/driver"
    return Netdev(link.name, macs, driver.resolve().name if driver.exists() else "")


def _answer(argv: list[str]) -> str:
    """What a program says, empty when it is missing or fails."""
    try:
        done = run(argv, timeout=20.0, check=False)
    except HostError:
        return ""
    return done.stdout if done.rc == 0 else ""


def _network_manager_states() -> dict[str, str]:
    lines = _answer(["nmcli", "-t", "-f", "DEVICE,STATE", "device", "status"]).splitlines()
    return {name: state for name, _colon, state in (line.partition(":") for line in lines)}


def _networkd_states() -> dict[str, str]:
    rows = [line.split() for line in _answer(["networkctl", "--no-pager", "--no-legend", "list"]).splitlines()]
    return {row[1]: row[4] for row in rows if len(row) == 5}


def _management(named: str, links: Iterable[str]) -> tuple[str, ...]:
    """Interfaces that may carry the way to this machine: the named one, that of the SSH session, those of default routes."""
    found = [named]
    routes = _answer(["ip", "-o", "-4", "route", "show", "default"]) + _answer(
        ["ip", "-o", "-6", "route", "show", "default"]
    )
    found += [words[words.index("dev") + 1] for words in map(str.split, routes.splitlines()) if "dev" in words]
    server = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 3)[2]
    if server:
        rows = _answer(["ip", "-o", "addr", "show", "to", server]).splitlines()
        found += [row.split()[1] for row in rows]
    return tuple(name for name in dict.fromkeys(found) if name in links)


def _engine() -> list[str]:
    state = _answer_any(["systemctl", "is-active", ENGINE_UNIT])
    return [f"{ENGINE_UNIT} is {state}"] if state in ("active", "activating", "reloading") else []


def _answer_any(argv: list[str]) -> str:
    try:
        return run(argv, timeout=20.0, check=False).stdout.strip()
    except HostError:
        return ""


def judge(files: Mapping[str, str]) -> Refusal | None:
    """What netplan says about these files (absolute paths) as the machine's whole configuration; None when it accepts them."""
    with tempfile.TemporaryDirectory(prefix="gb10-netplan-") as name:  # 0700, since the copies may hold secrets
        copy = Path(name)
        for directory in NETPLAN_DIRECTORIES:
            (copy / directory).mkdir(parents=True)
        (copy / "lib").symlink_to("usr/lib")  # older netplan looks there
        for path, text in files.items():
            write_text(copy / path.lstrip("/"), text, FILE_MODE)
        # netplan is Python: without this a dry run leaves its bytecode caches behind
        quiet = {"PYTHONDONTWRITEBYTECODE": "1"}
        done = run(["netplan", "generate", "--root-dir", name], timeout=GENERATE_TIMEOUT, check=False, env=quiet)
    return None if done.rc == 0 else explain_refusal(done.stderr or done.stdout, name)
