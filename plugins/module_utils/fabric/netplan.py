# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The netplan file of the fabric, the state of the interfaces that it stands for, and what netplan's complaints mean; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..plan import Change
from .guard import corrections
from .ports import Port

FILE_MODE = 0o600  # netplan 1.1 warns on every call about a file that others can read
DEFAULT_MTU = 1500  # bytes, Ethernet's
NETWORKD = "networkd"
NETWORK_MANAGER = "NetworkManager"

_HEADER = "# managed by gb10.ring: written from the topology file, changes made here are overwritten\n"
# IPv6 stays off, so that RoCE v2 GIDs are those of the IPv4 addresses. optional: a port without a cable must not delay the boot.
_PORT = """\
    {netdev}:
{renderer}      addresses:
        - {cidr}
      mtu: {mtu}
      dhcp4: false
      dhcp6: false
      accept-ra: false
      link-local: []
      optional: true
"""
# "link-local: []" becomes ipv6.method=ignore, which leaves the kernel's link-local address (netplan 1.1)
_NM = (
    f"      renderer: {NETWORK_MANAGER}\n      networkmanager:\n        passthrough:\n          ipv6.method: disabled\n"
)
_RENDERERS = {"": "", NETWORKD: f"      renderer: {NETWORKD}\n", NETWORK_MANAGER: _NM}
_COMPLAINT = re.compile(r"(?P<path>/\S*/netplan/[^/:]+\.yaml):(?:(?P<line>\d+):\d+:)? (?P<what>.+)")

LinkState = Mapping[str, Any]  # as guard.parse_look() gives it


def render(ports: Sequence[Port], mtu: int, renderers: Mapping[str, str] | None = None) -> str:
    """The file's text; the same ports give the same bytes. renderers: by netdev; without one netplan's default stands."""
    known = renderers or {}
    entries = [
        _PORT.format(netdev=port.netdev, cidr=port.cidr, mtu=mtu, renderer=_RENDERERS[known.get(port.netdev, "")])
        for port in ports
    ]
    return f"{_HEADER}network:\n  version: 2\n  ethernets:\n{''.join(entries)}"


@dataclass(frozen=True)
class Managers:
    """Who is at the interfaces: states by netdev as ``nmcli`` and ``networkctl`` give them, empty when that one does not run."""

    network_manager: Mapping[str, str] = field(default_factory=dict)
    networkd: Mapping[str, str] = field(default_factory=dict)

    def of(self, netdev: str) -> str:
        """The renderer that acts on a port; empty when none does, or when no other one could."""
        if not self.network_manager:
            return ""
        state = self.network_manager.get(netdev, "")
        if state and state != "unmanaged" and not state.endswith("(externally)"):
            return NETWORK_MANAGER
        return NETWORKD if self.networkd.get(netdev, "unmanaged") not in ("unmanaged", "pending") else ""


def choose_renderers(ports: Sequence[Port], managers: Managers, own: Mapping[str, str], asked: str) -> dict[str, str]:
    """The renderer of each port: what is asked for, else what our file says already, else who is at the port now.

    own: netdev -> renderer of the file as it is. A port that nobody knows (powered off) goes with the others: never mix them.
    """
    if asked:
        return {port.netdev: asked for port in ports}
    found = {port.netdev: own.get(port.netdev, managers.of(port.netdev)) for port in ports}
    usual = next((renderer for renderer in found.values() if renderer), "")
    return {netdev: renderer if renderer or netdev in own else usual for netdev, renderer in found.items()}


def own_ports(network: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """netdev -> definition, in the parsed text of our file."""
    found = network.get("network")
    ethernets = found.get("ethernets") if isinstance(found, Mapping) else None
    return {name: body for name, body in (ethernets or {}).items() if isinstance(body, Mapping)}


def wanted_state(port: Port, mtu: int) -> dict[str, Any]:
    """The interface of a port as the file has it."""
    addresses = [{"cidr": port.cidr, "dynamic": False}]
    return {"up": True, "mtu": mtu, "master": "", "addresses": addresses, "link_local": False}


def drift(wanted: Mapping[str, LinkState], seen: Mapping[str, LinkState], why: str) -> tuple[Change, ...]:
    """Interfaces that are not as they should be.

    One that is absent (unplugged, powered off) or waits for its other end cannot be judged: it gets its address with carrier.
    """
    changes = []
    for name, want in wanted.items():
        state = seen.get(name)
        if state is None or (state["up"] and not state["carrier"] and want.get("up", True)):
            continue
        if corrections(name, want, state, add=True):
            changes.append(
                Change(name, describe(state), describe({**state, "carrier": True, "link_locals": [], **want}), why)
            )
    return tuple(changes)


def describe(state: LinkState) -> str:
    """One interface for a person."""
    parts = [] if state["up"] and state["carrier"] else ["no carrier" if state["up"] else "down"]
    addresses = [address["cidr"] for address in state["addresses"]] + list(state["link_locals"])
    parts += [", ".join(addresses) or "no address", f"mtu {state['mtu']}"]
    return ", ".join([*parts, f"in {state['master']}"] if state.get("master") else parts)


@dataclass(frozen=True)
class Refusal:
    """netplan does not accept a file. path: empty when it named none; line: empty when it named none."""

    path: str
    line: str
    what: str

    @property
    def place(self) -> str:
        return f"{self.path}, line {self.line}" if self.line else self.path


def explain_refusal(said: str, root: str) -> Refusal:
    """What ``netplan generate`` said about a copy under ``root``, about the machine's own files.

    Only the place and the reason are kept: the lines that netplan quotes may hold secrets.
    """
    found = _COMPLAINT.search(said.replace(root, ""))
    if found is None:
        lines = (said.strip() or "no output").replace(root, "").splitlines()
        return Refusal("", "", next((line for line in lines if "rror" in line), lines[-1]))
    path = (
        found["path"].replace("/lib/netplan", "/usr/lib/netplan")
        if found["path"].startswith("/lib/")
        else found["path"]
    )
    return Refusal(path, found["line"] or "", found["what"].strip().rstrip(":"))
