# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a topology to cables, legs, addresses and host variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from .model import LEG_PREFIX, RAILS, LegOverride, Node, Shape, Topology

Plug = tuple[int, int]  # rank, port
Cable = tuple[Plug, ...]

# Host variables that the plan gives; a node's own ``vars`` may not replace them.
DERIVED_VARIABLES = (
    "ansible_host",
    "fabric_mtu",
    "fabric_ports",
    "management_address",
    "management_interface",
    "ring_head_address",
    "ring_rank",
    "ring_shape",
    "ring_size",
)


@dataclass(frozen=True)
class End:
    """One netdev on a leg."""

    rank: int
    port: int
    rail: int
    netdev: str
    rdma_device: str
    address: IPv4Address


@dataclass(frozen=True)
class Leg:
    """One rail of one cable (or of the switch) and everything that is plugged into it."""

    index: int
    subnet: IPv4Network
    ends: tuple[End, ...]

    def peer_of(self, end: End) -> End:
        """The end that ``end`` is checked against: the other one, or on a switch the next node's (the last faces the first)."""
        return self.ends[(self.ends.index(end) + 1) % len(self.ends)]


def leg_count(shape: Shape, size: int) -> int:
    """How many subnets a group of ``size`` nodes needs."""
    return len(RAILS) * (size if shape == "ring" else 1)


def cables(shape: Shape, ports: Sequence[int | None]) -> tuple[Cable, ...]:
    """What is plugged together, cable by cable; a switch counts as one cable with many ends. ports: the cabled one by rank."""
    size = len(ports)
    if shape == "ring":
        return tuple(((rank, 0), ((rank + 1) % size, 1)) for rank in range(size))
    return (tuple((rank, port or 0) for rank, port in enumerate(ports)),)


def leg_subnet(supernet: IPv4Network, index: int) -> IPv4Network:
    """The index-th /24 of the supernet."""
    return IPv4Network((int(supernet.network_address) + (index << (32 - LEG_PREFIX)), LEG_PREFIX))


def subnet_of(supernet: IPv4Network, overrides: Mapping[int, LegOverride], index: int) -> IPv4Network:
    """The subnet of a leg: the file's, or its share of the supernet."""
    own = overrides[index].subnet if index in overrides else None
    return own or leg_subnet(supernet, index)


def address_of(subnet: IPv4Network, override: LegOverride | None, rank: int) -> IPv4Address:
    """The address of a rank on a leg: the file's, or number rank + 1 of the subnet."""
    own = override.addresses.get(rank) if override else None
    return own or subnet.network_address + rank + 1


def legs(topology: Topology) -> tuple[Leg, ...]:
    """All legs, in cable order, rail 0 before rail 1."""
    planned = []
    for cable, plugs in enumerate(cables(topology.shape, [node.port for node in topology.nodes])):
        for rail in RAILS:
            index = len(RAILS) * cable + rail
            subnet = subnet_of(topology.supernet, topology.overrides, index)
            override = topology.overrides.get(index)
            ends = tuple(
                _end(topology.nodes[rank], (rank, port), rail, address_of(subnet, override, rank))
                for rank, port in plugs
            )
            planned.append(Leg(index, subnet, ends))
    return tuple(planned)


def _end(node: Node, plug: Plug, rail: int, address: IPv4Address) -> End:
    rank, port = plug
    return End(rank, port, rail, node.netdevs[port][rail], node.rdma_devices[port][rail], address)


def fabric_ports(topology: Topology, planned: tuple[Leg, ...], rank: int) -> list[dict[str, object]]:
    """The host variable of one node: an entry a netdev, by port, then rail."""
    own = [(end, leg) for leg in planned for end in leg.ends if end.rank == rank]
    own.sort(key=lambda pair: (pair[0].port, pair[0].rail))
    return [_entry(topology, leg, end) for end, leg in own]


def _entry(topology: Topology, leg: Leg, end: End) -> dict[str, object]:
    peer = leg.peer_of(end)
    return {
        "port": end.port,
        "rail": end.rail,
        "netdev": end.netdev,
        "rdma_device": end.rdma_device,
        "address": str(end.address),
        "prefix": leg.subnet.prefixlen,
        "subnet": str(leg.subnet),
        "peer": topology.nodes[peer.rank].name,
        "peer_netdev": peer.netdev,
        "peer_address": str(peer.address),
    }


def host_variables(topology: Topology) -> dict[str, dict[str, object]]:
    """Variables of every host, in rank order: the node's own, then the derived ones."""
    planned = legs(topology)
    return {node.name: _variables(topology, planned, rank, node) for rank, node in enumerate(topology.nodes)}


def _variables(topology: Topology, planned: tuple[Leg, ...], rank: int, node: Node) -> dict[str, object]:
    address = str(node.management_address)
    return {
        **node.extra,
        "ansible_host": address,
        "management_address": address,
        "management_interface": topology.management_interface,
        "ring_rank": rank,
        "ring_size": len(topology.nodes),
        "ring_shape": topology.shape,
        "ring_head_address": str(topology.nodes[0].management_address),
        "fabric_mtu": topology.mtu,
        "fabric_ports": fabric_ports(topology, planned, rank),
    }


def groups(topology: Topology) -> dict[str, list[str]]:
    """Group name -> hosts."""
    names = [node.name for node in topology.nodes]
    return {"ring": names, "head": names[:1], "workers": names[1:]}
