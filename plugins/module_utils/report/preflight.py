# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a machine can become a node: facts in, checks out; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..topology.overlap import Held, PlannedLeg, overlap
from .checks import Check

CLOCK_TOLERANCE_S = 30.0
NETPLAN_MINIMUM = (1, 0)
INODES_MINIMUM = 1000

# Where a missing tool comes from on Debian and Ubuntu.
_PACKAGES = {
    "apt-get": "apt",
    "ip": "iproute2",
    "journalctl": "systemd",
    "modprobe": "kmod",
    "netplan": "netplan.io",
    "ping": "iputils-ping",
    "swapoff": "mount",
    "systemctl": "systemd",
}


@dataclass(frozen=True)
class FileSystem:
    """The file system that holds, or will hold, the data path. free_inodes is None where the file system does not count them."""

    path: str
    free_bytes: int
    free_inodes: int | None
    read_only: bool

    def text(self) -> str:
        inodes = "" if self.free_inodes is None else f", {self.free_inodes} inodes free"
        return (
            f"{self.path}: {self.free_bytes / 1e9:.1f} GB free{inodes}{', mounted read-only' if self.read_only else ''}"
        )


@dataclass(frozen=True)
class MachineFacts:
    """What one look at a machine found.

    os_release, dgx_release: texts of the files, empty for an absent one. python: version of the running interpreter. pid1: name of
    process 1. missing_tools: those asked for that are not on PATH. netplan: version of the package, empty when unknown. netdevs: all
    network devices. addresses: IPv4 addresses by netdev, None when they could not be read. file_system: None with the reason in
    file_system_error. held: IPv4 ranges in use, None when they could not be read. own_netdevs: those that our netplan file defines.
    """

    os_release: str
    dgx_release: str
    architecture: str
    kernel: str
    python: tuple[int, int, int]
    pid1: str
    euid: int
    missing_tools: tuple[str, ...]
    netplan: str
    netdevs: tuple[str, ...]
    addresses: Mapping[str, tuple[str, ...]] | None
    file_system: FileSystem | None
    file_system_error: str = ""
    held: tuple[Held, ...] | None = ()
    own_netdevs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PlannedPort:
    """A fabric netdev that the plan counts on."""

    port: int
    netdev: str


@dataclass(frozen=True)
class Expected:
    """What is asked of a node. Empty architectures, systems, management_address or legs leave that check out."""

    node: str
    min_python: tuple[int, ...] = (3, 10)
    architectures: tuple[str, ...] = ("aarch64",)
    systems: tuple[str, ...] = ()
    ports: tuple[PlannedPort, ...] = ()
    management_interface: str = ""
    management_address: str = ""
    data_path: str = "/var/lib/gb10-ring"
    legs: tuple[PlannedLeg, ...] = ()


def checks(facts: MachineFacts, expected: Expected) -> list[Check]:
    """All checks of one machine; none stops another."""
    node = expected.node
    return [
        *_platform(facts, expected),
        _python(facts, expected),
        *_process(node, facts),
        _tools(node, facts.missing_tools),
        _netplan(node, facts.netplan),
        *_ports(facts, expected),
        *_management(facts, expected),
        *_overlap(facts, expected),
        _data_path(facts, expected),
    ]


def release(text: str) -> dict[str, str]:
    """The assignments of an os-release or dgx-release file, quotes taken off."""
    found = re.findall(r"""^([A-Z_0-9]+)=(["']?)(.*)\2$""", text, re.MULTILINE)
    return {key: value for key, _quote, value in found}


def system(os_release: str) -> str:
    """The system as expected ones are written: ``ubuntu 24.04``, ``debian 13``."""
    fields = release(os_release)
    return f"{fields.get('ID', 'unknown')} {fields.get('VERSION_ID', '')}".strip()


def system_title(os_release: str, dgx_release: str) -> str:
    """The system for a person; a DGX says which one it is, and the last of its over-the-air versions counts."""
    name = release(os_release).get("PRETTY_NAME", system(os_release))
    dgx = release(dgx_release)
    if "DGX_PRETTY_NAME" not in dgx:
        return name
    number = dgx.get("DGX_OTA_VERSION", dgx.get("DGX_SWBUILD_VERSION", ""))
    return f"{name}, {dgx['DGX_PRETTY_NAME']} {number}".rstrip()


def version(text: str) -> tuple[int, ...]:
    """Leading numbers of a package version, its epoch left out: ``2:1.1.2-7`` gives (1, 1, 2)."""
    found = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _platform(facts: MachineFacts, expected: Expected) -> list[Check]:
    found = system(facts.os_release)
    system_check = Check(
        "preflight.os",
        expected.node,
        ok=found in expected.systems,
        found=f"{found} ({system_title(facts.os_release, facts.dgx_release)})",
        expected=" or ".join(expected.systems),
        cure="Install DGX OS 7 (it is an Ubuntu 24.04), or add this system to preflight_expected_os to try it",
    )
    architecture_check = Check(
        "preflight.architecture",
        expected.node,
        ok=facts.architecture in expected.architectures,
        found=facts.architecture,
        expected=" or ".join(expected.architectures),
        cure="This is no GB10; correct the node's management_address, or preflight_expected_architectures",
    )
    return [system_check] * bool(expected.systems) + [architecture_check] * bool(expected.architectures)


def _python(facts: MachineFacts, expected: Expected) -> Check:
    return Check(
        "preflight.python",
        expected.node,
        ok=facts.python >= expected.min_python,
        found=_dotted(facts.python),
        expected=f"{_dotted(expected.min_python)} or newer",
        cure="Point ansible_python_interpreter of this node at a newer Python, or install one",
    )


def _process(node: str, facts: MachineFacts) -> list[Check]:
    return [
        Check(
            "preflight.systemd",
            node,
            ok=facts.pid1 == "systemd",
            found=f"process 1 is {facts.pid1 or 'unknown'}",
            expected="process 1 is systemd",
            cure="Boot the machine with systemd; the engine and the network are systemd's units",
        ),
        Check(
            "preflight.privileges",
            node,
            ok=facts.euid == 0,
            found=f"user id {facts.euid}",
            expected="user id 0 (root)",
            cure="Run with become: true, and with --ask-become-pass if sudo asks for a password",
        ),
    ]


def _tools(node: str, missing: Sequence[str]) -> Check:
    packages = sorted({_PACKAGES.get(tool, tool) for tool in missing})
    return Check(
        "preflight.tools",
        node,
        ok=not missing,
        found=f"not on PATH: {', '.join(missing)}" if missing else "all on PATH",
        expected="all needed tools on PATH",
        cure=f"sudo apt-get install {' '.join(packages)}",
    )


def _netplan(node: str, found: str) -> Check:
    return Check(
        "preflight.netplan",
        node,
        ok=version(found) >= NETPLAN_MINIMUM,
        found=found or "no netplan.io package",
        expected=f"netplan.io {_dotted(NETPLAN_MINIMUM)} or newer",
        cure="Install netplan.io from Ubuntu 24.04, Debian 13 or newer; netplan 0.106 of Debian 12 fails on apply",
    )


def _ports(facts: MachineFacts, expected: Expected) -> list[Check]:
    """One check a physical port: its two netdevs come and go together."""
    found = []
    for number in sorted({port.port for port in expected.ports}):
        netdevs = [port.netdev for port in expected.ports if port.port == number]
        absent = [netdev for netdev in netdevs if netdev not in facts.netdevs]
        present = f"port {number}: {', '.join(netdevs)} present"
        found.append(
            Check(
                "preflight.port",
                expected.node,
                ok=not absent,
                found=f"port {number}: {', '.join(absent)} absent" if absent else present,
                expected=present,
                cure=f"Plug the cable of port {number} at both ends: with no cable, hot-plug (dgx-spark-mlnx-hotplug) powers the "
                "ConnectX off and its netdevs are absent. With a cable, look at dmesg for cx7-pcie-hotplug; if the netdevs have "
                "other names (ip -br link), set netdevs of this node in the topology file",
            )
        )
    return found


def _management(facts: MachineFacts, expected: Expected) -> list[Check]:
    interface, address = expected.management_interface, expected.management_address
    if not (interface and address):
        return []
    return [
        Check(
            "preflight.management",
            expected.node,
            ok=facts.addresses is not None and _holders(facts.addresses, address) == [interface],
            found=_management_found(facts, interface, address),
            expected=f"{address} on {interface}",
            cure="Set management_interface to the netdev that carries the management address (the same name on every node), or "
            "correct management_address, in the topology file",
        )
    ]


def _holders(addresses: Mapping[str, Sequence[str]], address: str) -> list[str]:
    return [netdev for netdev, held in addresses.items() if address in held]


def _management_found(facts: MachineFacts, interface: str, address: str) -> str:
    if facts.addresses is None:
        return "addresses unknown, since ip (iproute2) could not be run"
    holders = _holders(facts.addresses, address)
    if holders:
        return f"{address} on {', '.join(holders)}"
    if interface not in facts.netdevs:
        return f"no netdev {interface}; there are {', '.join(sorted(facts.netdevs)) or 'none'}"
    return f"{interface} with {', '.join(facts.addresses.get(interface, ())) or 'no IPv4 address'}"


def _overlap(facts: MachineFacts, expected: Expected) -> list[Check]:
    own = {port.netdev for port in expected.ports} | facts.own_netdevs
    return [overlap(expected.node, facts.held, expected.legs, own)] if expected.legs else []


def _data_path(facts: MachineFacts, expected: Expected) -> Check:
    held = facts.file_system
    return Check(
        "preflight.data_path",
        expected.node,
        ok=held is not None and not held.read_only and (held.free_inodes is None or held.free_inodes >= INODES_MINIMUM),
        found=held.text() if held else facts.file_system_error or "unreadable",
        expected=f"{expected.data_path} on a writable file system with {INODES_MINIMUM} free inodes or more",
        cure="Mount or repair the file system (dmesg tells why it became read-only), free inodes, or set preflight_data_path",
    )


def _dotted(numbers: Iterable[int]) -> str:
    return ".".join(map(str, numbers))


def clock(node: str, found: float, earliest: float, latest: float) -> Check:
    """The node's clock, read between two readings of the controller's clock; all in seconds since 1970."""
    offset = min(0.0, found - earliest) + max(0.0, found - latest)
    return Check(
        "preflight.clock",
        node,
        ok=abs(offset) <= CLOCK_TOLERANCE_S,
        found=f"{abs(offset):.0f} s {'behind' if offset < 0 else 'ahead of'} the controller",
        expected=f"within {CLOCK_TOLERANCE_S:g} s of the controller",
        cure="Turn time synchronisation on (timedatectl set-ntp true); S3 signatures and TLS fail on a wrong clock",
        severity="warning",
    )


def ssh_command(host: str, user: str = "", port: int | str | None = None) -> str:
    """What a person types to see the same failure."""
    target = f"{user}@{host}" if user else host
    return f"ssh -v{f' -p {port}' if port else ''} {target} true"


def unreachable(node: str, reason: str, command: str) -> Check:
    """The check that stands for a node that did not answer."""
    return Check(
        "preflight.reachable",
        node,
        ok=False,
        found=_short(reason),
        expected="a node that accepts the connection",
        cure=f"Try from the controller: {command}; check power, cable and management_address of the node",
    )


def not_run(node: str, reason: str, interpreter_unusable: bool) -> Check:
    """The check that stands for a node that answered and yet could not run the module."""
    if interpreter_unusable:
        cure = "Install python3 on the node, or point ansible_python_interpreter at one that is new enough"
        return Check("preflight.python", node, False, _short(reason), "a usable Python interpreter", cure)
    cure = "Run ansible -m ansible.builtin.ping -b -vvv against this node to see the whole output"
    return Check("preflight.module", node, False, _short(reason), "a node that runs modules as root", cure)


def _short(reason: str) -> str:
    """The end of a message in one line; ssh's banners come first and its reason last."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return "; ".join(lines[-3:]) if lines else "no reason given"
