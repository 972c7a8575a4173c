# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The netplan file of the fabric, the state of the interfaces that it stands for, and what netplan's complaints mean; pure."""

from __future__ import annotations

import json
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
{naming}{renderer}      addresses:
        - {cidr}
      mtu: {mtu}
      dhcp4: false
      dhcp6: false
      accept-ra: false
      link-local: []
      optional: true
"""
# A port that is not in the plan any more and has its name from here; nothing else is said of it, others may use it.
_NAMED = """\
    {netdev}:
{naming}{renderer}      link-local: []
      optional: true
"""
# "link-local: []" becomes ipv6.method=ignore, which leaves the kernel's link-local address (netplan 1.1)
_NM = (
    f"      renderer: {NETWORK_MANAGER}\n      networkmanager:\n        passthrough:\n          ipv6.method: disabled\n"
)
_NM_NO_ADDRESS = "          ipv4.method: disabled\n"  # netplan 1.1 makes it link-local otherwise
_RENDERERS = {"": "", NETWORKD: f"      renderer: {NETWORKD}\n", NETWORK_MANAGER: _NM}
_COMPLAINT = re.compile(r"(?P<path>/\S*/netplan/[^/:]+\.yaml):(?:(?P<line>\d+):\d+:)? (?P<what>.+)")

LinkState = Mapping[str, Any]  # as guard.parse_look() gives it


def render(
    ports: Sequence[Port],
    mtu: int,
    renderers: Mapping[str, str] | None = None,
    namings: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The file's text; the same ports give the same bytes.

    renderers: by netdev; without one netplan's default stands. namings: what interfaces are recognised by that get their name
    here, those that left the plan among them; netplan writes udev's .link file for it whatever the renderer.
    """
    known, names = renderers or {}, namings or {}
    planned = {port.netdev: port for port in ports}
    entries = []
    for netdev in dict.fromkeys([*planned, *names]):
        renderer, naming = _RENDERERS[known.get(netdev, "")], _naming(netdev, names.get(netdev, {}))
        if netdev in planned:
            cidr = planned[netdev].cidr
            entries.append(_PORT.format(netdev=netdev, cidr=cidr, mtu=mtu, renderer=renderer, naming=naming))
        else:
            renderer += _NM_NO_ADDRESS if renderer == _NM else ""
            entries.append(_NAMED.format(netdev=netdev, renderer=renderer, naming=naming))
    return f"{_HEADER}network:\n  version: 2\n  ethernets:\n{''.join(entries)}"


def _naming(netdev: str, match: Mapping[str, Any]) -> str:
    """JSON's texts and lists are YAML's too."""
    lines = [f"        {key}: {json.dumps(value)}\n" for key, value in match.items()]
    return f"      match:\n{''.join(lines)}      set-name: {netdev}\n" if lines else ""


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
