# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every refusal of a topology file."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import DERIVED_VARIABLES
from ansible_collections.gb10.ring.plugins.module_utils.topology.model import TopologyError
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology

REMOVED = object()


def data(shape: str = "ring", size: int = 3) -> dict:
    nodes = [{"name": f"spark{i}", "management_address": f"192.0.2.{10 + i}"} for i in range(1, size + 1)]
    return {"plugin": "gb10.ring.topology", "shape": shape, "nodes": nodes}


def changed(base: dict, *path_and_value: object) -> dict:
    """A copy with the value at the path replaced, or taken out."""
    *path, last, value = path_and_value
    result = copy.deepcopy(base)
    target = result
    for step in path:
        target = target[step]
    if value is REMOVED:
        del target[last]
    else:
        target[last] = value
    return result


def problems(content: object) -> list[str]:
    with pytest.raises(TopologyError) as caught:
        parse_topology(content)
    return [str(problem) for problem in caught.value.problems]


RING = data()
PAIR = data("pair", 2)
SWITCH = data("switch", 3)

HOST_NAME = "a host name of letters, digits, '-' and '.', up to 63 characters between dots"
ADDRESS = "an IPv4 address that the other nodes can reach, such as 192.0.2.11"
NETWORK = "an IPv4 network with its prefix length, such as 10.100.0.0/16"
NETDEV = "an interface name of 1 to 15 letters, digits, '_', '-' and '.' (see 'ip -br link')"
NODE_KEYS = "one of management_address, name, netdevs, port, rdma_devices, vars"

REFUSALS = [
    # the file as a whole
    (None, "found an empty file; allowed: a topology that starts with 'plugin: gb10.ring.topology'"),
    ([], "found a list; allowed: a mapping that starts with 'plugin: gb10.ring.topology'"),
    ("text", "found 'text'; allowed: a mapping that starts with 'plugin: gb10.ring.topology'"),
    (changed(RING, "plugin", "ring"), "plugin: found 'ring'; allowed: gb10.ring.topology"),
    # keys
    (changed(RING, "supernt", "10.0.0.0/8"), "supernt: found an unknown key; allowed: did you mean 'supernet'?"),
    (changed(RING, "nodes", 1, "rank", "x"), f"nodes[1].rank: found an unknown key; allowed: {NODE_KEYS}"),
    (changed(RING, "nodes", 1, "ports", 1), "nodes[1].ports: found an unknown key; allowed: did you mean 'port'?"),
    (changed(RING, "shape", REMOVED), "shape: found nothing; allowed: ring, pair or switch"),
    (changed(RING, "nodes", 0, "name", REMOVED), f"nodes[0].name: found nothing; allowed: {HOST_NAME}"),
    (
        changed(RING, "nodes", 2, "management_address", REMOVED),
        f"nodes[2].management_address: found nothing; allowed: {ADDRESS}",
    ),
    # shape and number of nodes
    (changed(RING, "shape", "line"), "shape: found 'line'; allowed: ring, pair or switch"),
    (changed(RING, "shape", ["ring"]), "shape: found a list; allowed: ring, pair or switch"),
    (data("ring", 1), "nodes: found 1 node; allowed: 2 to 8 nodes for shape ring"),
    (data("ring", 9), "nodes: found 9 nodes; allowed: 2 to 8 nodes for shape ring"),
    (data("switch", 9), "nodes: found 9 nodes; allowed: 2 to 8 nodes for shape switch"),
    (data("pair", 3), "nodes: found 3 nodes; allowed: exactly 2 nodes for shape pair"),
    (data("ring", 0), "nodes: found 0 nodes; allowed: 2 to 8 nodes for shape ring"),
    (
        changed(RING, "nodes", {"spark1": "192.0.2.11"}),
        "nodes: found a mapping; allowed: a list of nodes in cable order, each with name and management_address",
    ),
    (
        changed(RING, "nodes", 1, "spark2"),
        "nodes[1]: found 'spark2'; allowed: a mapping with name and management_address",
    ),
    # names
    (changed(RING, "nodes", 0, "name", "spark_1"), f"nodes[0].name: found 'spark_1'; allowed: {HOST_NAME}"),
    (changed(RING, "nodes", 0, "name", "-spark"), f"nodes[0].name: found '-spark'; allowed: {HOST_NAME}"),
    (changed(RING, "nodes", 0, "name", "a" * 64), f"nodes[0].name: found '{'a' * 64}'; allowed: {HOST_NAME}"),
    (changed(RING, "nodes", 0, "name", 7), f"nodes[0].name: found 7; allowed: {HOST_NAME}"),
    (
        changed(RING, "nodes", 0, "name", "192.0.2.11"),
        "nodes[0].name: found '192.0.2.11'; allowed: a host name, not a number or an address "
        "(that goes into management_address)",
    ),
    (
        changed(RING, "nodes", 0, "name", "head"),
        "nodes[0].name: found 'head'; allowed: a name that no group has "
        "(not all, ungrouped, ring, head, workers, localhost)",
    ),
    (
        changed(RING, "nodes", 2, "name", "Spark1"),
        "nodes[2].name: found 'spark1', which nodes[0] has already; allowed: a value of its own",
    ),
    # management addresses
    (
        changed(RING, "nodes", 2, "management_address", "fd00::1"),
        f"nodes[2].management_address: found 'fd00::1'; allowed: {ADDRESS}",
    ),
    (
        changed(RING, "nodes", 2, "management_address", "192.0.2.300"),
        f"nodes[2].management_address: found '192.0.2.300'; allowed: {ADDRESS}",
    ),
    (
        changed(RING, "nodes", 2, "management_address", "192.0.2.13/24"),
        f"nodes[2].management_address: found '192.0.2.13/24'; allowed: {ADDRESS}",
    ),
    (
        changed(RING, "nodes", 2, "management_address", "127.0.0.1"),
        f"nodes[2].management_address: found '127.0.0.1'; allowed: {ADDRESS}",
    ),
    (
        changed(RING, "nodes", 2, "management_address", "spark3.local"),
        f"nodes[2].management_address: found 'spark3.local'; allowed: {ADDRESS}",
    ),
    (
        changed(RING, "nodes", 2, "management_address", "192.0.2.11"),
        "nodes[2].management_address: found '192.0.2.11', which nodes[0] has already; allowed: a value of its own",
    ),
    (
        changed(RING, "nodes", 2, "management_address", "192.0.2.255"),
        "nodes[2].management_address: found '192.0.2.255', the network or broadcast address of 192.0.2.0/24; "
        "allowed: a host address in 192.0.2.0/24; management_prefix sets its size",
    ),
    # supernet
    (changed(RING, "supernet", "10.100.0.0"), f"supernet: found '10.100.0.0'; allowed: {NETWORK}"),
    (changed(RING, "supernet", "10.100.0.0/33"), f"supernet: found '10.100.0.0/33'; allowed: {NETWORK}"),
    (changed(RING, "supernet", "fd00::/48"), f"supernet: found 'fd00::/48'; allowed: {NETWORK}"),
    (changed(RING, "supernet", 10), f"supernet: found 10; allowed: {NETWORK}"),
    (changed(RING, "supernet", "224.0.0.0/16"), f"supernet: found '224.0.0.0/16'; allowed: {NETWORK}"),
    (
        changed(RING, "supernet", "10.100.1.0/16"),
        "supernet: found '10.100.1.0/16', which has host bits set; allowed: the network itself: 10.100.0.0/16",
    ),
    (
        changed(RING, "supernet", "10.100.0.0/22"),
        "supernet: found '10.100.0.0/22', which holds 4 networks of /24; "
        "allowed: a /21 or wider: the 6 legs of this ring need a /24 each",
    ),
    (
        changed(SWITCH, "supernet", "10.100.0.0/24"),
        "supernet: found '10.100.0.0/24', which holds 1 networks of /24; "
        "allowed: a /23 or wider: the 2 legs of this switch need a /24 each",
    ),
    (
        changed(PAIR, "supernet", "10.100.0.0/28"),
        "supernet: found '10.100.0.0/28', which holds 0 networks of /24; "
        "allowed: a /23 or wider: the 2 legs of this pair need a /24 each",
    ),
    (
        changed(RING, "supernet", "192.0.0.0/16"),
        "supernet: found '192.0.0.0/16', which overlaps the management network 192.0.2.0/24 of nodes[0]; "
        "allowed: a range apart from it; management_prefix sets the size of the management network",
    ),
    (
        changed(changed(RING, "nodes", 1, "management_address", "10.99.0.5"), "management_prefix", 8),
        "supernet: found '10.100.0.0/16', which overlaps the management network 10.0.0.0/8 of nodes[1]; "
        "allowed: a range apart from it; management_prefix sets the size of the management network",
    ),
    # numbers
    (changed(RING, "mtu", 1279), "mtu: found 1279; allowed: a whole number from 1280 to 9216 (bytes)"),
    (changed(RING, "mtu", 9217), "mtu: found 9217; allowed: a whole number from 1280 to 9216 (bytes)"),
    (changed(RING, "mtu", "9000"), "mtu: found '9000'; allowed: a whole number from 1280 to 9216 (bytes)"),
    (changed(RING, "mtu", True), "mtu: found true; allowed: a whole number from 1280 to 9216 (bytes)"),
    (changed(RING, "management_prefix", 33), "management_prefix: found 33; allowed: a whole number from 8 to 32"),
    # ports
    (
        changed(PAIR, "nodes", 0, "port", 2),
        "nodes[0].port: found 2; allowed: 0 (the cage beside the RJ45 socket) or 1",
    ),
    (
        changed(SWITCH, "nodes", 2, "port", True),
        "nodes[2].port: found true; allowed: 0 (the cage beside the RJ45 socket) or 1",
    ),
    (
        changed(RING, "nodes", 0, "port", 1),
        "nodes[0].port: found 1; allowed: no port in shape ring, where both are cabled; remove the line",
    ),
    # names of devices
    (changed(RING, "management_interface", "a" * 16), f"management_interface: found '{'a' * 16}'; allowed: {NETDEV}"),
    (
        changed(RING, "management_interface", "enP2p1s0f0np0"),
        "management_interface: found 'enP2p1s0f0np0', which is a fabric netdev of nodes[0]; "
        "allowed: an interface outside the fabric, such as enP7s7",
    ),
    (
        changed(RING, "netdevs", {0: ["enp1s0f0np0", "enp1s0f1np1"]}),
        "netdevs: found 'enp1s0f1np1' 2 times in one node; allowed: a name for each rail of each port, all different",
    ),
    (
        changed(RING, "nodes", 2, "netdevs", {1: ["enp1s0f0np0", "enP2p1s0f1np1"]}),
        "nodes[2].netdevs: found 'enp1s0f0np0' 2 times in one node; "
        "allowed: a name for each rail of each port, all different",
    ),
    (
        changed(RING, "nodes", 2, "rdma_devices", {1: ["rocep1s0f0", "roceP2p1s0f1"]}),
        "nodes[2].rdma_devices: found 'rocep1s0f0' 2 times in one node; "
        "allowed: a name for each rail of each port, all different",
    ),
    (
        changed(RING, "netdevs", {0: ["enp1s0f0np0", "enP2p1s0f0np0_x16"]}),
        f"netdevs[0][1]: found 'enP2p1s0f0np0_x16'; allowed: {NETDEV}",
    ),
    (changed(RING, "netdevs", {0: "eth0"}), "netdevs[0]: found 'eth0'; allowed: a list of two names: [rail 0, rail 1]"),
    (
        changed(RING, "netdevs", {0: ["a"]}),
        "netdevs[0]: found a list of 1; allowed: a list of two names: [rail 0, rail 1]",
    ),
    (
        changed(RING, "netdevs", {2: ["a0", "a1"]}),
        "netdevs (port): found 2; allowed: 0 (the cage beside the RJ45 socket) or 1",
    ),
    (
        changed(RING, "netdevs", ["a0", "a1"]),
        "netdevs: found a list; allowed: a mapping of port (0, 1) to the list [name of rail 0, name of rail 1]",
    ),
    (
        changed(RING, "nodes", 0, "netdevs", {1: ["enp1s0f1np1", "eth5"]}),
        "nodes[0].rdma_devices: found no entry for netdev 'eth5', whose name is not of the form enp1s0f0np0; "
        "allowed: {1: [name of rail 0, name of rail 1]} (see 'rdma link')",
    ),
    (
        changed(RING, "rdma_devices", {0: ["a/b", "c"]}),
        "rdma_devices[0][0]: found 'a/b'; allowed: an RDMA device name such as rocep1s0f0 (see 'rdma link')",
    ),
    # a node's own variables
    (
        changed(RING, "nodes", 1, "vars", ["a"]),
        "nodes[1].vars: found a list; allowed: a mapping of variable names to values",
    ),
    (
        changed(RING, "nodes", 1, "vars", {"my-var": 1}),
        "nodes[1].vars: found the name 'my-var'; allowed: variable names of letters, digits and '_'",
    ),
]


@pytest.mark.parametrize(("content", "expected"), REFUSALS, ids=[text[:70] for _content, text in REFUSALS])
def test_refusal(content, expected):
    assert problems(content) == [expected]


@pytest.mark.parametrize("name", DERIVED_VARIABLES)
def test_derived_variables_cannot_be_replaced(name):
    content = changed(RING, "nodes", 1, "vars", {name: "s3cret"})
    assert problems(content) == [
        f"nodes[1].vars.{name}: found a variable that the topology derives; allowed: any other name; remove it"
    ]


def test_the_unused_port_of_a_pair_needs_no_device_names():
    content = changed(PAIR, "netdevs", {1: ["eth5", "eth6"]})
    assert parse_topology(content).nodes[0].rdma_devices[0] == ("rocep1s0f0", "roceP2p1s0f0")


def test_all_problems_are_collected():
    content = {
        "plugin": "gb10.ring.topology",
        "shape": "ring",
        "mtu": 1,
        "nodes": [
            {"name": "spark1", "management_address": "x"},
            {"name": "spark1", "management_address": "192.0.2.2", "port": 0},
        ],
    }
    with pytest.raises(TopologyError) as caught:
        parse_topology(content)
    assert caught.value.message("inventories/a/ring.yml").splitlines() == [
        "inventories/a/ring.yml: 4 problems:",
        "  - mtu: found 1; allowed: a whole number from 1280 to 9216 (bytes)",
        f"  - nodes[0].management_address: found 'x'; allowed: {ADDRESS}",
        "  - nodes[1].port: found 0; allowed: no port in shape ring, where both are cabled; remove the line",
        "  - nodes[1].name: found 'spark1', which nodes[0] has already; allowed: a value of its own",
    ]


def test_a_single_problem_is_one_line():
    with pytest.raises(TopologyError) as caught:
        parse_topology(changed(RING, "shape", "star"))
    assert caught.value.message("ring.yml") == "ring.yml: shape: found 'star'; allowed: ring, pair or switch"
    assert str(caught.value) == "shape: found 'star'; allowed: ring, pair or switch"
