# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A topology file from what the cabling probe heard. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

from ..topology.model import DEFAULT_NETDEVS, DEFAULT_PORT, PORTS, RAILS, PortPairs, TopologyError
from ..topology.parse import PLUGIN, parse_topology
from ..topology.rdma_names import rdma_device_of
from .cabling import Verdict, verdict

MANAGEMENT_INTERFACE = "enP7s7"  # the default of the topology file
MANAGEMENT_PREFIX = 24
_HEAD = """\
# Written from what the cabling probe heard (playbook gb10.ring.discover). docs/topology.md has the other settings.
"""


class DiscoverError(Exception):
    """Everything that keeps a topology file from being written; its text is the message for the user."""


@dataclass(frozen=True)
class Machine:
    """A node that was probed. interface: a netdev and its address and prefix, on which the management address is."""

    name: str
    address: str
    interface: tuple[str, IPv4Interface] | None
    networks: tuple[IPv4Network, ...]
    netdevs: PortPairs
    rdma_devices: PortPairs


@dataclass(frozen=True)
class Discovery:
    """verdict: of the cables, against the plan that comes closest. text: of the topology file, None when there can be none."""

    verdict: Verdict
    text: str | None


def discover(results: Sequence[Mapping[str, Any]], addresses: Mapping[str, str], supernet: str | None) -> Discovery:
    """results: of the module fabric_cabling. addresses: management address by inventory name, the one of rank 0 first.

    Raises DiscoverError for what is not about cables.
    """
    names = _names(results, addresses)
    renamed = [_renamed(result, names) for result in results]
    judged = verdict(renamed, [names[host] for host in addresses], None)
    if any(finding.severity == "error" for finding in judged.findings):
        return Discovery(judged, None)
    machines = {
        result["node"]: _machine(result, address)
        for result, address in zip(renamed, _in_order(results, addresses), strict=True)
    }
    content = _content(judged, machines, supernet)
    try:
        parse_topology(content)
    except TopologyError as error:
        raise DiscoverError(error.message("the topology that was found")) from error
    return Discovery(judged, _HEAD + _yaml(content))


def _in_order(results: Sequence[Mapping[str, Any]], addresses: Mapping[str, str]) -> list[str]:
    return [addresses[result["node"]] for result in results]


def _names(results: Sequence[Mapping[str, Any]], addresses: Mapping[str, str]) -> dict[str, str]:
    """Inventory name -> the machine's own name."""
    silent = [host for host in addresses if host not in {result["node"] for result in results}]
    if silent or len(addresses) < 2:
        found = f"no result of {', '.join(silent)}" if silent else f"{len(addresses)} host"
        raise DiscoverError(
            f"found {found}, expected the results of two to eight hosts; give the address of every node with -i"
        )
    names = {str(result["node"]): str(result["hostname"]) for result in results}
    for name in names.values():
        same = [addresses[host] for host, other in names.items() if other == name]
        if len(same) > 1:
            raise DiscoverError(
                f"{' and '.join(same)} both call themselves {name}, expected a name for each node; give one of them another: "
                "hostnamectl set-hostname NAME (one machine under two addresses: leave one out)"
            )
    return names


def _renamed(result: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The result with the machines' own names: they are on the labels that a person looks at."""
    ports = [
        {**port, "heard": [{**hello, "node": names.get(hello["node"], hello["node"])} for hello in port["heard"]]}
        for port in result["ports"]
    ]
    return {**result, "node": names[result["node"]], "ports": ports}


def _machine(result: Mapping[str, Any], address: str) -> Machine:
    fabric = {port["netdev"] for port in result["ports"]}
    interfaces = [(name, IPv4Interface(each)) for name, own in result["addresses"].items() for each in own]
    return Machine(
        name=str(result["node"]),
        address=address,
        interface=next(((name, own) for name, own in interfaces if str(own.ip) == address), None),
        networks=tuple(own.network for name, own in interfaces if name not in fabric),
        netdevs=_pairs(result, "netdev"),
        rdma_devices=_pairs(result, "rdma_device"),
    )


def _pairs(result: Mapping[str, Any], key: str) -> PortPairs:
    """Names by port, for the ports that have both rails."""
    names = {(port["port"], port["rail"]): str(port[key]) for port in result["ports"]}
    return {port: (names[port, 0], names[port, 1]) for port in PORTS if all(names.get((port, rail)) for rail in RAILS)}


def _content(judged: Verdict, machines: Mapping[str, Machine], supernet: str | None) -> dict[str, Any]:
    shape = judged.plan.shape
    content: dict[str, Any] = {"plugin": PLUGIN, "shape": shape}
    interface, prefix = _management(list(machines.values()))
    network = supernet or _free_network([network for machine in machines.values() for network in machine.networks])
    if network != "10.100.0.0/16":
        content["supernet"] = network
    if interface != MANAGEMENT_INTERFACE:
        content["management_interface"] = interface
    if prefix != MANAGEMENT_PREFIX:
        content["management_prefix"] = prefix
    ports = {end.node: end.port for end in judged.plan.ends()} if shape in DEFAULT_PORT else {}
    content["nodes"] = [_node(machines[name], ports.get(name), shape) for name in judged.plan.nodes]
    return content


def _management(machines: Sequence[Machine]) -> tuple[str, int]:
    """The management interface, the same on all nodes, and the shortest of the prefixes."""
    for machine in machines:
        if machine.interface is None:
            own = ", ".join(map(str, machine.networks)) or "none"
            raise DiscoverError(
                f"{machine.address} is on no interface of {machine.name} (its networks: {own}), expected the address by which the "
                "other nodes reach it; give that one with -i"
            )
    found = {machine.name: machine.interface for machine in machines if machine.interface}
    names = {name for name, _address in found.values()}
    if len(names) > 1:
        places = ", ".join(f"{node}: {name}" for node, (name, _address) in found.items())
        raise DiscoverError(
            f"the management addresses are on interfaces of different names ({places}), expected the same name on every node "
            "(NVIDIA nccl README); give addresses of the same interface with -i"
        )
    return names.pop(), min(address.network.prefixlen for _name, address in found.values())


def _free_network(taken: Sequence[IPv4Network]) -> str:
    """The first of 10.100.0.0/16, 10.101.0.0/16... that no node has an address in."""
    for second in range(100, 200):
        network = IPv4Network(f"10.{second}.0.0/16")
        if not any(network.overlaps(other) for other in taken):
            return str(network)
    raise DiscoverError(
        "the nodes have addresses in all of 10.100.0.0/16 to 10.199.0.0/16; give a free network in discover_supernet"
    )


def _node(machine: Machine, port: int | None, shape: str) -> dict[str, Any]:
    node: dict[str, Any] = {"name": machine.name, "management_address": machine.address}
    if port is not None and port != {str(each): number for each, number in DEFAULT_PORT.items()}[shape]:
        node["port"] = port
    unusual = {port: names for port, names in machine.netdevs.items() if names != DEFAULT_NETDEVS[port]}
    if unusual:
        node["netdevs"] = {port: list(names) for port, names in unusual.items()}
    given = {
        port: list(names)
        for port, names in machine.rdma_devices.items()
        if port in machine.netdevs and names != tuple(map(rdma_device_of, machine.netdevs[port]))
    }
    if given:
        node["rdma_devices"] = given
    return node


def _yaml(content: Mapping[str, Any]) -> str:
    """The file's few kinds of values as YAML: parse_topology has found all names to be plain words."""
    lines = [f"{key}: {value}" for key, value in content.items() if key != "nodes"]
    lines += ["", "nodes:"]
    for node in content["nodes"]:
        for index, (key, value) in enumerate(node.items()):
            text = (
                f"{{{', '.join(f'{port}: [{one}, {two}]' for port, (one, two) in value.items())}}}"
                if isinstance(value, dict)
                else value
            )
            lines.append(f"  {'- ' if index == 0 else '  '}{key}: {text}")
    return "\n".join(lines) + "\n"
