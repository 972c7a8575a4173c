# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses and cables of every shape and size."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import (
    groups,
    host_variables,
    leg_count,
    legs,
)
from ansible_collections.gb10.ring.plugins.module_utils.topology.model import Topology
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology

P0 = ("enp1s0f0np0", "enP2p1s0f0np0")
P1 = ("enp1s0f1np1", "enP2p1s0f1np1")


def topology(shape: str, size: int, **more: object) -> Topology:
    nodes = [{"name": f"spark{i}", "management_address": f"192.0.2.{10 + i}"} for i in range(1, size + 1)]
    return parse_topology({"plugin": "gb10.ring.topology", "shape": shape, "nodes": nodes, **more})


ALL_SHAPES = [("ring", size) for size in range(2, 9)] + [("pair", 2)] + [("switch", size) for size in range(2, 9)]


@pytest.mark.parametrize(("shape", "size"), ALL_SHAPES)
def test_addresses_are_distinct_and_in_their_subnet(shape, size):
    hosts = host_variables(topology(shape, size))
    ports = [port for variables in hosts.values() for port in variables["fabric_ports"]]
    addresses = [port["address"] for port in ports]
    assert len(set(addresses)) == len(addresses) == len(ports)
    for port in ports:
        network = IPv4Network(port["subnet"])
        assert network.prefixlen == port["prefix"] == 24
        assert network.subnet_of(IPv4Network("10.100.0.0/16"))
        assert {IPv4Address(port["address"]), IPv4Address(port["peer_address"])} <= set(network.hosts())


@pytest.mark.parametrize(("shape", "size"), ALL_SHAPES)
def test_each_subnet_is_at_its_ends_and_once_a_node(shape, size):
    hosts = host_variables(topology(shape, size))
    seen = Counter((port["subnet"], name) for name, variables in hosts.items() for port in variables["fabric_ports"])
    assert set(seen.values()) == {1}
    ends = Counter(subnet for subnet, _name in seen)
    assert set(ends.values()) == {size if shape == "switch" else 2}
    assert len(ends) == leg_count(shape, size)


@pytest.mark.parametrize(("shape", "size"), ALL_SHAPES)
def test_peers_name_each_other(shape, size):
    hosts = host_variables(topology(shape, size))
    for name, variables in hosts.items():
        for port in variables["fabric_ports"]:
            (facing,) = [p for p in hosts[port["peer"]]["fabric_ports"] if p["address"] == port["peer_address"]]
            assert (facing["netdev"], facing["subnet"], facing["rail"]) == (
                port["peer_netdev"],
                port["subnet"],
                port["rail"],
            )
            if shape != "switch" or size == 2:
                assert (facing["peer"], facing["peer_address"]) == (name, port["address"])


@pytest.mark.parametrize("size", range(2, 9))
def test_ring_goes_from_port_0_to_port_1_of_the_next(size):
    hosts = host_variables(topology("ring", size))
    names = list(hosts)
    for name, following in pairwise([*names, names[0]]):
        for port in hosts[name]["fabric_ports"]:
            if port["port"] == 0:
                assert port["peer"] == following
                assert port["peer_netdev"] == P1[port["rail"]]
    assert [(p["port"], p["rail"], p["netdev"]) for p in hosts["spark1"]["fabric_ports"]] == [
        (0, 0, P0[0]),
        (0, 1, P0[1]),
        (1, 0, P1[0]),
        (1, 1, P1[1]),
    ]


def test_ring_of_three_in_full():
    """Cables spark1.P0-spark2.P1, spark2.P0-spark3.P1, spark3.P0-spark1.P1; leg 2 * cable + rail."""
    hosts = host_variables(topology("ring", 3))
    assert {name: [port["address"] for port in v["fabric_ports"]] for name, v in hosts.items()} == {
        "spark1": ["10.100.0.1", "10.100.1.1", "10.100.4.1", "10.100.5.1"],
        "spark2": ["10.100.2.2", "10.100.3.2", "10.100.0.2", "10.100.1.2"],
        "spark3": ["10.100.4.3", "10.100.5.3", "10.100.2.3", "10.100.3.3"],
    }
    assert hosts["spark3"]["fabric_ports"][0] == {
        "port": 0,
        "rail": 0,
        "netdev": "enp1s0f0np0",
        "rdma_device": "rocep1s0f0",
        "address": "10.100.4.3",
        "prefix": 24,
        "subnet": "10.100.4.0/24",
        "peer": "spark1",
        "peer_netdev": "enp1s0f1np1",
        "peer_address": "10.100.4.1",
    }


def test_ring_of_two_has_two_cables():
    hosts = host_variables(topology("ring", 2))
    assert [port["address"] for port in hosts["spark1"]["fabric_ports"]] == [
        "10.100.0.1",
        "10.100.1.1",
        "10.100.2.1",
        "10.100.3.1",
    ]
    assert [port["peer_netdev"] for port in hosts["spark1"]["fabric_ports"]] == [*P1, *P0]


def test_pair_uses_port_0_or_the_given_ones():
    assert [p["netdev"] for p in host_variables(topology("pair", 2))["spark2"]["fabric_ports"]] == list(P0)
    nodes = [
        {"name": "a", "management_address": "192.0.2.1", "port": 1},
        {"name": "b", "management_address": "192.0.2.2"},
    ]
    hosts = host_variables(parse_topology({"plugin": "gb10.ring.topology", "shape": "pair", "nodes": nodes}))
    assert [(p["netdev"], p["peer_netdev"]) for p in hosts["a"]["fabric_ports"]] == list(zip(P1, P0, strict=True))
    assert [p["peer"] for p in hosts["b"]["fabric_ports"]] == ["a", "a"]


@pytest.mark.parametrize("shape", ["pair", "switch"])
@pytest.mark.parametrize("ports", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_two_nodes_may_use_any_port(shape, ports):
    nodes = [{"name": f"n{i}", "management_address": f"192.0.2.{i + 1}", "port": port} for i, port in enumerate(ports)]
    hosts = host_variables(parse_topology({"plugin": "gb10.ring.topology", "shape": shape, "nodes": nodes}))
    names = [(P0, P1)[port] for port in ports]
    assert [[p["netdev"] for p in v["fabric_ports"]] for v in hosts.values()] == [list(pair) for pair in names]
    assert [p["peer_netdev"] for p in hosts["n0"]["fabric_ports"]] == list(names[1])
    assert [p["peer_netdev"] for p in hosts["n1"]["fabric_ports"]] == list(names[0])
    addresses = [p["address"] for v in hosts.values() for p in v["fabric_ports"]]
    assert addresses == ["10.100.0.1", "10.100.1.1", "10.100.0.2", "10.100.1.2"]


def test_ring_of_four_in_full():
    """Tools that plan it as a ring of three give two nodes the same addresses."""
    hosts = host_variables(topology("ring", 4))
    planned = {name: [port["address"] for port in v["fabric_ports"]] for name, v in hosts.items()}
    assert planned == {
        "spark1": ["10.100.0.1", "10.100.1.1", "10.100.6.1", "10.100.7.1"],
        "spark2": ["10.100.2.2", "10.100.3.2", "10.100.0.2", "10.100.1.2"],
        "spark3": ["10.100.4.3", "10.100.5.3", "10.100.2.3", "10.100.3.3"],
        "spark4": ["10.100.6.4", "10.100.7.4", "10.100.4.4", "10.100.5.4"],
    }
    assert len({address for addresses in planned.values() for address in addresses}) == 16


def test_switch_shares_a_subnet_a_rail_and_peers_in_a_circle():
    hosts = host_variables(topology("switch", 3))
    assert {name: [port["address"] for port in v["fabric_ports"]] for name, v in hosts.items()} == {
        "spark1": ["10.100.0.1", "10.100.1.1"],
        "spark2": ["10.100.0.2", "10.100.1.2"],
        "spark3": ["10.100.0.3", "10.100.1.3"],
    }
    assert [v["fabric_ports"][0]["peer"] for v in hosts.values()] == ["spark2", "spark3", "spark1"]
    assert hosts["spark1"]["fabric_ports"][0]["netdev"] == P1[0]


def test_host_variables_beside_the_ports():
    hosts = host_variables(topology("ring", 2, mtu=1500, management_interface="eth9", supernet="172.20.0.0/22"))
    variables = dict(hosts["spark2"])
    ports = variables.pop("fabric_ports")
    assert variables == {
        "ansible_host": "192.0.2.12",
        "management_address": "192.0.2.12",
        "management_interface": "eth9",
        "ring_rank": 1,
        "ring_size": 2,
        "ring_shape": "ring",
        "ring_head_address": "192.0.2.11",
        "fabric_mtu": 1500,
    }
    assert [port["subnet"] for port in ports] == ["172.20.2.0/24", "172.20.3.0/24", "172.20.0.0/24", "172.20.1.0/24"]


def test_own_variables_are_kept():
    nodes = [
        {"name": "a", "management_address": "192.0.2.1", "vars": {"site_rack": {"row": 3}}},
        {"name": "b", "management_address": "192.0.2.2"},
    ]
    hosts = host_variables(parse_topology({"plugin": "gb10.ring.topology", "shape": "ring", "nodes": nodes}))
    assert hosts["a"]["site_rack"] == {"row": 3}
    assert "site_rack" not in hosts["b"]


def test_groups():
    assert groups(topology("ring", 3)) == {
        "ring": ["spark1", "spark2", "spark3"],
        "head": ["spark1"],
        "workers": ["spark2", "spark3"],
    }


def test_names_of_other_machines():
    netdevs = {0: ["eth0", "eth1"], 1: ["eth2", "eth3"]}
    devices = {0: ["rxe0", "rxe1"], 1: ["rxe2", "rxe3"]}
    nodes = [
        {"name": "a", "management_address": "192.0.2.1", "netdevs": {1: ["ens7np0", "ens8np0"]}},
        {"name": "b", "management_address": "192.0.2.2", "rdma_devices": {0: ["mlx5_0", "mlx5_1"]}},
    ]
    data = {
        "plugin": "gb10.ring.topology",
        "shape": "ring",
        "nodes": nodes,
        "netdevs": netdevs,
        "rdma_devices": devices,
    }
    hosts = host_variables(parse_topology(data))
    assert [p["netdev"] for p in hosts["a"]["fabric_ports"]] == ["eth0", "eth1", "ens7np0", "ens8np0"]
    assert [p["peer_netdev"] for p in hosts["b"]["fabric_ports"]] == ["ens7np0", "ens8np0", "eth0", "eth1"]
    assert [p["rdma_device"] for p in hosts["a"]["fabric_ports"]] == ["rxe0", "rxe1", "rxe2", "rxe3"]
    assert [p["rdma_device"] for p in hosts["b"]["fabric_ports"]] == ["mlx5_0", "mlx5_1", "rxe2", "rxe3"]


def test_legs_are_numbered_by_cable_and_rail():
    planned = legs(topology("ring", 4))
    assert [leg.index for leg in planned] == list(range(8))
    assert [str(leg.subnet) for leg in planned] == [f"10.100.{index}.0/24" for index in range(8)]
    assert [(end.rank, end.port, end.rail) for end in planned[7].ends] == [(3, 0, 1), (0, 1, 1)]
