# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A topology file as far as it could be read, while problems are still being collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from .model import PORTS, PortPairs, Shape


@dataclass(frozen=True)
class Settings:
    """The top level of the file; None stands for a value that was refused."""

    shape: Shape | None
    supernet: IPv4Network | None
    mtu: int | None
    management_interface: str | None
    management_prefix: int | None
    netdevs: PortPairs
    rdma_devices: PortPairs


@dataclass(frozen=True)
class Draft:
    """A node; key is its place in the file (``nodes[0]``), None stands for a value that was refused."""

    key: str
    name: str | None
    address: IPv4Address | None
    port: int | None
    netdevs: PortPairs
    rdma_devices: PortPairs
    extra: Mapping[str, object]

    @property
    def used_ports(self) -> tuple[int, ...]:
        return PORTS if self.port is None else (self.port,)


@dataclass(frozen=True)
class LegDraft:
    """An entry of ``legs``; key is its place in the file (``legs[0]``), None stands for a value that was refused.

    between: node names with their ports where given; empty where the file has no ``between``. subnet: None also where the file
    has none. addresses: by node name.
    """

    key: str
    between: tuple[tuple[str, int | None], ...] | None
    rail: int | None
    subnet: IPv4Network | None
    addresses: Mapping[str, IPv4Address]
