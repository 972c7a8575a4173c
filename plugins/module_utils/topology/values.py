# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of single values of a topology file: each returns the value, or notes a problem and returns None."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError

from .model import PORTS, Problem

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_NETDEV = re.compile(r"[A-Za-z0-9_.-]{1,15}")  # the kernel's IFNAMSIZ leaves 15 characters
_RDMA_DEVICE = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GROUP_NAMES = ("all", "ungrouped", "ring", "head", "workers", "localhost")


class Problems:
    """What was found wrong so far; the same problem is kept once."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def add(self, key: str, found: str, allowed: str) -> None:
        self._found.setdefault(Problem(key, found, allowed))

    def all(self) -> tuple[Problem, ...]:
        return tuple(self._found)


def show(value: object) -> str:
    """A value as a person wrote it; containers only by kind."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else str(value)


def nearest(word: str, known: Collection[str]) -> str:
    """The known word that was probably meant, or all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else "one of " + ", ".join(sorted(known))


def known_keys(problems: Problems, where: str, data: Mapping[object, object], known: Collection[str]) -> None:
    for key in data:
        if key not in known:
            path = f"{where}.{key}" if where else str(key)
            problems.add(path, "an unknown key", nearest(str(key), known))


def whole_number(problems: Problems, key: str, value: object, low: int, high: int, *, unit: str = "") -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    problems.add(key, show(value), f"a whole number from {low} to {high}{unit}")
    return None


def host_name(problems: Problems, key: str, value: object) -> str | None:
    if not isinstance(value, str) or len(value) > 253 or not all(_LABEL.fullmatch(part) for part in value.split(".")):
        problems.add(key, show(value), "a host name of letters, digits, '-' and '.', up to 63 characters between dots")
    elif value.split(".")[-1].isdigit():
        problems.add(key, show(value), "a host name, not a number or an address (that goes into management_address)")
    elif value.lower() in _GROUP_NAMES:
        problems.add(key, show(value), f"a name that no group has (not {', '.join(_GROUP_NAMES)})")
    else:
        return value
    return None


def ipv4_address(problems: Problems, key: str, value: object) -> IPv4Address | None:
    allowed = "an IPv4 address that the other nodes can reach, such as 192.0.2.11"
    try:
        address = IPv4Address(value) if isinstance(value, str) else None
    except AddressValueError:
        address = None
    if address and not (address.is_loopback or address.is_multicast or address.is_unspecified or address.is_reserved):
        return address
    problems.add(key, show(value), allowed)
    return None


def ipv4_network(problems: Problems, key: str, value: object) -> IPv4Network | None:
    allowed = "an IPv4 network with its prefix length, such as 10.100.0.0/16"
    try:
        network = IPv4Network(value, strict=False) if isinstance(value, str) and "/" in value else None
    except (AddressValueError, NetmaskValueError):
        network = None
    if network is None or network.is_loopback or network.is_multicast or network.is_unspecified or network.is_reserved:
        problems.add(key, show(value), allowed)
        return None
    if IPv4Address(str(value).split("/", maxsplit=1)[0]) != network.network_address:
        problems.add(key, f"{show(value)}, which has host bits set", f"the network itself: {network}")
        return None
    return network


def netdev_name(problems: Problems, key: str, value: object) -> str | None:
    if isinstance(value, str) and _NETDEV.fullmatch(value) and value not in (".", ".."):
        return value
    problems.add(key, show(value), "an interface name of 1 to 15 letters, digits, '_', '-' and '.' (see 'ip -br link')")
    return None


def rdma_name(problems: Problems, key: str, value: object) -> str | None:
    if isinstance(value, str) and _RDMA_DEVICE.fullmatch(value):
        return value
    problems.add(key, show(value), "an RDMA device name such as rocep1s0f0 (see 'rdma link')")
    return None


def variables(problems: Problems, key: str, value: object, derived: Collection[str]) -> dict[str, object]:
    """A node's own variables, verbatim; a problem never shows a value, since it may be secret."""
    if not isinstance(value, Mapping):
        problems.add(key, show(value), "a mapping of variable names to values")
        return {}
    for name in value:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            problems.add(key, f"the name {show(name)}", "variable names of letters, digits and '_'")
        elif name in derived:
            problems.add(f"{key}.{name}", "a variable that the topology derives", "any other name; remove it")
    return dict(value)


def port_number(problems: Problems, key: str, value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value in PORTS:
        return value
    problems.add(key, show(value), "0 (the cage beside the RJ45 socket) or 1")
    return None
