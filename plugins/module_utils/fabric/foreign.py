# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other definitions of the fabric's ports, in netplan files and NetworkManager profiles: who claims what, and how to take it out; pure.

Netplan joins the address lists of all files, and NetworkManager runs the profile that it likes best: a forgotten one is a second address.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

DEVICES = ("ethernets", "wifis", "modems", "nm-devices", "virtual-ethernets", "dummy-devices")
GROUPS = {"bonds": "bond", "bridges": "bridge", "vrfs": "vrf"}
_HOLDERS = ("link", "interfaces")

Network = Mapping[str, Any]  # a parsed netplan file, all scalars as text


@dataclass(frozen=True)
class Netdev:
    """An interface of this machine. macs: its addresses, lower case, also the permanent one that a bond hides."""

    name: str
    macs: tuple[str, ...] = ()
    driver: str = ""


@dataclass(frozen=True)
class Claim:
    """A definition of fabric ports outside our file. file: its path. where: kind and name of the definition, empty for a profile.

    item: the one list entry to take out, when the definition holds other interfaces too. blocked: why it cannot be taken out.
    """

    file: str
    where: tuple[str, ...]
    ports: tuple[str, ...]
    how: str
    item: str = ""
    blocked: str = ""

    def text(self) -> str:
        name = ".".join(self.where) if self.where else "connection"
        return f"{self.file}: {name} defines {', '.join(self.ports)} ({self.how})" + (
            f"; {self.blocked}" if self.blocked else ""
        )


@dataclass(frozen=True)
class _Definition:
    file: str
    kind: str
    name: str
    body: Mapping[str, Any]


def effective(paths: Iterable[str]) -> list[str]:
    """The files that netplan reads, in its order: by name; one in /etc hides its namesake in /run, that one in /usr/lib."""
    ranks = {"/etc/": 0, "/run/": 1}
    best: dict[str, str] = {}
    for path in sorted(
        paths, key=lambda path: next((rank for prefix, rank in ranks.items() if path.startswith(prefix)), 2)
    ):
        best.setdefault(path.rsplit("/", 1)[-1], path)
    return [best[name] for name in sorted(best)]


def claims(
    networks: Mapping[str, Network], ports: Sequence[str], netdevs: Sequence[Netdev], keep: Sequence[str]
) -> list[Claim]:
    """What other netplan files say about the fabric's ports.

    networks: by file, our own left out. netdevs: of the machine. keep: management interfaces, which no step may take away.
    """
    definitions = [each for file, network in networks.items() for each in _definitions(file, network)]
    found, gone = _device_claims(definitions, ports, netdevs)
    holders = [each for each in definitions if each.kind not in DEVICES]
    known = -1
    while known != len(gone):  # a vlan on a bond on a port
        known = len(gone)
        for holder in holders:
            if holder.name not in gone and (lost := _lost(holder, definitions, gone)) is not None:
                gone[holder.name] = lost
    for holder in holders:
        found += _holder_claims(holder, gone, keep)
    return found


def _definitions(file: str, network: Network) -> list[_Definition]:
    top = network.get("network")
    if not isinstance(top, Mapping):
        return []
    return [
        _Definition(file, kind, name, body if isinstance(body, Mapping) else {})
        for kind, section in top.items()
        if isinstance(section, Mapping)
        for name, body in section.items()
    ]


def _device_claims(
    definitions: Sequence[_Definition], ports: Sequence[str], netdevs: Sequence[Netdev]
) -> tuple[list[Claim], dict[str, tuple[str, ...]]]:
    """Claims by definitions of devices, and id -> ports of all that would go."""
    absent = [Netdev(name) for name in ports if name not in {netdev.name for netdev in netdevs}]
    found, gone = [], {}
    for each in definitions:
        if each.kind not in DEVICES:
            continue
        body = _merged(each.name, definitions)
        hit = [netdev.name for netdev in (*netdevs, *absent) if _matches(each.name, body, netdev)]
        mine = tuple(name for name in ports if name in hit)
        if mine:
            others = [name for name in hit if name not in ports]
            blocked = f"it is for {', '.join(others)} too and cannot be taken out" if others else ""
            found.append(Claim(each.file, (each.kind, each.name), mine, _how(body), blocked=blocked))
            gone[each.name] = mine
    return found, gone


def _merged(name: str, definitions: Iterable[_Definition]) -> dict[str, Any]:
    """What all files together say about a device; netplan joins definitions of one name."""
    body: dict[str, Any] = {}
    for each in definitions:
        if each.name == name and each.kind in DEVICES:
            body.update(each.body)
    return body


def _matches(name: str, body: Mapping[str, Any], netdev: Netdev) -> bool:
    if body.get("set-name") == netdev.name:
        return True
    named = _profile_interface(body)
    if named:
        return named == netdev.name
    match = body.get("match")
    if match is None:
        return name == netdev.name
    if not isinstance(match, Mapping):
        return True  # an empty match is for every interface
    return all(_property(key, value, netdev) for key, value in match.items())


def fits(match: Mapping[str, Any], netdev: Netdev) -> bool:
    """Whether a match holds for an interface that its definition has renamed: its name of before is not known any more."""
    return all(_property(key, value, netdev) for key, value in match.items() if key != "name")


def _property(key: str, value: Any, netdev: Netdev) -> bool:
    patterns = [str(each) for each in value] if isinstance(value, list) else [str(value)]
    if key == "name":
        return any(fnmatchcase(netdev.name, pattern) for pattern in patterns)
    if key == "macaddress":
        return any(pattern.lower() in netdev.macs for pattern in patterns)
    if key == "driver":
        return any(fnmatchcase(netdev.driver, pattern) for pattern in patterns)
    return True


def _profile_interface(body: Mapping[str, Any]) -> str:
    """The interface of a NetworkManager profile that Ubuntu keeps as a netplan file (90-NM-UUID.yaml)."""
    settings = body.get("networkmanager")
    passthrough = settings.get("passthrough") if isinstance(settings, Mapping) else None
    return str(passthrough.get("connection.interface-name", "")) if isinstance(passthrough, Mapping) else ""


def _how(body: Mapping[str, Any]) -> str:
    match = body.get("match")
    if isinstance(match, Mapping) and match:
        how = "match " + ", ".join(f"{key} {value}" for key, value in match.items())
    elif _profile_interface(body):
        how = "NetworkManager profile"
    else:
        how = "by name" if match is None else "match of every interface"
    return f"{how}, set-name" if "set-name" in body else how


def _members(body: Mapping[str, Any]) -> list[str]:
    interfaces = body.get("interfaces")
    link = body.get("link")
    return [str(each) for each in interfaces] if isinstance(interfaces, list) else [str(link)] if link else []


def _lost(
    holder: _Definition, definitions: Iterable[_Definition], gone: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...] | None:
    """The ports below a definition that loses all its members, over all files; None when something is left of it."""
    members = [member for each in definitions if each.name == holder.name for member in _members(each.body)]
    if not members or not all(member in gone for member in members):
        return None
    return tuple(dict.fromkeys(port for member in members for port in gone[member]))


def _holder_claims(holder: _Definition, gone: Mapping[str, tuple[str, ...]], keep: Sequence[str]) -> list[Claim]:
    where = (holder.kind, holder.name)
    kind = GROUPS.get(holder.kind, holder.kind.removesuffix("s"))
    if holder.name in gone:
        blocked = f"{holder.name} is a management interface" if holder.name in keep else ""
        return [Claim(holder.file, where, gone[holder.name], f"{kind} over it", blocked=blocked)]
    return [
        Claim(holder.file, (*where, "interfaces"), gone[member], f"member of a {kind}", item=member)
        for member in _members(holder.body)
        if member in gone
    ]


def profile_claims(profiles: Mapping[str, str], ports: Sequence[str], netdevs: Sequence[Netdev]) -> list[Claim]:
    """What NetworkManager's own profiles (keyfiles, by path) say about the ports."""
    macs = {mac: netdev.name for netdev in netdevs if netdev.name in ports for mac in netdev.macs}
    found = []
    for file, text in profiles.items():
        profile = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",), allow_no_value=True)
        try:
            profile.read_string(text)
        except configparser.Error:
            continue  # NetworkManager does not load it either
        if profile.get(".nmmeta", "nm-generated", fallback="") == "true":
            continue  # made up by NetworkManager for a port without a profile; it yields to any real one
        hit, how = _profile_ports(profile, ports, macs)
        if hit:
            found.append(Claim(file, (), hit, f"NetworkManager profile, {how}"))
    return found


def _profile_ports(
    profile: configparser.ConfigParser, ports: Sequence[str], macs: Mapping[str, str]
) -> tuple[tuple[str, ...], str]:
    named = profile.get("connection", "interface-name", fallback="")
    if named:
        parent = profile.get("vlan", "parent", fallback="")
        hit = named if named in ports else parent
        return ((hit,), "by name" if hit == named else "vlan over it") if hit in ports else ((), "")
    for section in ("ethernet", "802-3-ethernet"):
        mac = profile.get(section, "mac-address", fallback="").lower()
        if mac in macs:
            return (macs[mac],), "by MAC address"
    patterns = [pattern for pattern in profile.get("match", "interface-name", fallback="").split(";") if pattern]
    return tuple(port for port in ports if any(fnmatchcase(port, pattern) for pattern in patterns)), "by match"
