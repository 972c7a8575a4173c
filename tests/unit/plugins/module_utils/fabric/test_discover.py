# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.fabric.discover import DiscoverError, discover
from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import host_variables
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology
from ansible_collections.gb10.ring.tests.unit.fixtures.cabling import World, ring, spark


def address(node: str) -> str:
    return f"192.0.2.1{node[-1]}"


def named_by_address(world: World) -> list[dict[str, Any]]:
    """As from a host list: the inventory name is the address, the host name is the machine's own."""
    results = world.results()
    for result in results:
        result["node"] = address(result["node"])
        for port in result["ports"]:
            port["heard"] = [{**hello, "node": address(hello["node"])} for hello in port["heard"]]
    return results


def found(world: World, order: list[str] | None = None, supernet: str | None = None) -> str:
    text = discover(
        named_by_address(world), {address(node): address(node) for node in order or world.nodes}, supernet
    ).text
    assert text is not None
    return text


def test_the_file_of_a_ring() -> None:
    world = World(spark(3), list(ring(["spark1", "spark3", "spark2"])))
    lines = found(world, ["spark2", "spark1", "spark3"]).splitlines()
    assert lines[0].startswith("# ")
    assert lines[1:] == [
        "plugin: gb10.ring.topology",
        "shape: ring",
        "",
        "nodes:",
        "  - name: spark2",
        "    management_address: 192.0.2.12",
        "  - name: spark1",
        "    management_address: 192.0.2.11",
        "  - name: spark3",
        "    management_address: 192.0.2.13",
    ]


@pytest.mark.parametrize("count", range(2, 9))
def test_every_ring_is_a_file_that_the_inventory_reads(count: int) -> None:
    topology = parse_topology(yaml.safe_load(found(World(spark(count), list(ring(spark(count))), joined=True))))
    variables = host_variables(topology)
    assert list(variables) == spark(count)
    assert [variables[node]["management_address"] for node in spark(count)] == [address(node) for node in spark(count)]


@pytest.mark.parametrize(
    ("cables", "shape", "ports"),
    [
        ([("spark1:0", "spark2:0")], "pair", [None, None]),
        ([("spark1:1", "spark2:0")], "pair", [1, None]),
        ([("spark1:1", "spark2:1", "spark3:0")], "switch", [None, None, 0]),
    ],
)
def test_pair_and_switch(cables: list[tuple[str, ...]], shape: str, ports: list[int | None]) -> None:
    content = yaml.safe_load(found(World(spark(len(ports)), cables)))
    assert content["shape"] == shape
    assert [node.get("port") for node in content["nodes"]] == ports


def test_a_wrong_cable_is_a_verdict_in_place_of_a_file() -> None:
    world = World(spark(3), [("spark1:0", "spark2:0"), ("spark3:0", "spark1:1")])
    result = discover(named_by_address(world), {address(node): address(node) for node in spark(3)}, None)
    assert result.text is None
    assert result.verdict.findings[0].cure == "move the plug in spark2 P0 to spark2 P1"


def test_a_second_cable_of_a_pair_is_no_obstacle() -> None:
    assert "shape: pair" in found(World(spark(2), [("spark1:0", "spark2:0"), ("spark1:1", "spark2:1")]))


def test_a_network_that_is_taken_is_passed_over() -> None:
    world = World(spark(3), list(ring(spark(3))))
    results = world.results()
    results[1]["addresses"]["docker0"] = ["10.100.7.1/24"]
    results[1]["addresses"]["enp1s0f0np0"] = ["10.101.0.1/24"]  # of an earlier plan
    text = discover(results, {node: address(node) for node in spark(3)}, None).text
    assert text is not None
    assert yaml.safe_load(text)["supernet"] == "10.101.0.0/16"
    assert "supernet: 172.20.0.0/16" in found(world, supernet="172.20.0.0/16")


def test_other_names_of_interfaces_are_written() -> None:
    world = World(spark(3), list(ring(spark(3))))
    results = world.results()
    for result in results:
        result["addresses"] = {"eth0": [f"192.0.2.1{result['node'][-1]}/20"]}
    for port in results[2]["ports"]:
        port["netdev"], port["rdma_device"] = (
            f"cx{port['port']}r{port['rail']}",
            f"mlx5_{2 * port['port'] + port['rail']}",
        )
    text = discover(results, {node: address(node) for node in spark(3)}, None).text
    assert text is not None
    content = yaml.safe_load(text)
    assert (content["management_interface"], content["management_prefix"]) == ("eth0", 20)
    assert content["nodes"][2] == {
        "name": "spark3",
        "management_address": "192.0.2.13",
        "netdevs": {0: ["cx0r0", "cx0r1"], 1: ["cx1r0", "cx1r1"]},
        "rdma_devices": {0: ["mlx5_0", "mlx5_1"], 1: ["mlx5_2", "mlx5_3"]},
    }
    assert "netdevs" not in content["nodes"][0]


def broken(**changes: Any) -> list[dict[str, Any]]:
    results = World(spark(3), list(ring(spark(3)))).results()
    results[2].update(changes)
    return results


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (broken(hostname="spark2"), "192.0.2.12 and 192.0.2.13 both call themselves spark2"),
        (broken(addresses={"enP7s7": ["192.0.2.99/24"]}), "192.0.2.13 is on no interface of spark3"),
        (broken(addresses={"wlP9s9": ["192.0.2.13/24"]}), "spark1: enP7s7, spark2: enP7s7, spark3: wlP9s9"),
        (broken()[:2], "no result of spark3"),
        (
            broken(addresses={"enP7s7": ["192.0.2.13/24"], "a": ["10.0.0.1/8"]}),
            "give a free network in discover_supernet",
        ),
    ],
)
def test_what_keeps_a_file_from_being_written(results: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(DiscoverError, match=said):
        discover(results, {node: address(node) for node in spark(3)}, None)


def test_a_single_host() -> None:
    with pytest.raises(DiscoverError, match="found 1 host"):
        discover(World(["spark1"], []).results(), {"spark1": "192.0.2.11"}, None)


def test_a_supernet_that_the_inventory_would_refuse() -> None:
    with pytest.raises(DiscoverError, match="supernet"):
        discover(broken(), {node: address(node) for node in spark(3)}, "192.0.2.0/24")
