# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's view of network interfaces, as ``ip -j addr`` prints it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..host import HostError, run


@dataclass(frozen=True)
class Link:
    """One interface. mtu in bytes; up: set up by the administrator; carrier: the other end is up too; ipv4: in CIDR form.

    permanent_mac: where it differs from the address in use, as in a bond.
    """

    name: str
    mtu: int
    up: bool
    carrier: bool
    ipv4: tuple[str, ...]
    permanent_mac: str = ""

    def describe(self) -> str:
        state = "no carrier" if self.up and not self.carrier else "down"
        parts = [] if self.carrier else [state]
        return ", ".join([*parts, self.addresses(), f"mtu {self.mtu}"])

    def addresses(self) -> str:
        return ", ".join(self.ipv4) if self.ipv4 else "no IPv4 address"


def read_links() -> dict[str, Link]:
    """All interfaces of this machine. Raises HostError."""
    said = run(["ip", "-j", "addr"])
    try:
        return parse_links(said.stdout)
    except ValueError as error:
        raise HostError(f"ip -j addr: not the JSON that was expected: {error}") from error


def parse_links(text: str) -> dict[str, Link]:
    """Name -> interface. Raises ValueError when the text is not the JSON that ``ip`` prints."""
    return {entry["ifname"]: _link(entry) for entry in json.loads(text) if "ifname" in entry}


def _link(entry: Mapping[str, Any]) -> Link:
    flags = entry.get("flags", [])
    return Link(
        name=entry["ifname"],
        mtu=entry.get("mtu", 0),
        up="UP" in flags,
        carrier="LOWER_UP" in flags,
        ipv4=tuple(
            f"{address['local']}/{address['prefixlen']}"
            for address in entry.get("addr_info", [])
            if address.get("family") == "inet"
        ),
        permanent_mac=entry.get("permaddr", ""),
    )
