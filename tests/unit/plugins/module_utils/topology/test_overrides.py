# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list ``legs``: what it changes in the plan, and every refusal of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import host_variables
from ansible_collections.gb10.ring.plugins.module_utils.topology.model import TopologyError
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology

DOCS = Path(__file__).parents[5] / "docs/topology.md"

# NVIDIA connect-three-sparks README: enp1s0f0np0, enP2p1s0f0np0, enp1s0f1np1, enP2p1s0f1np1 of each node.
NVIDIA = {
    "spark1": ["192.168.0.1", "192.168.1.1", "192.168.2.1", "192.168.3.1"],
    "spark2": ["192.168.4.1", "192.168.5.1", "192.168.0.2", "192.168.1.2"],
    "spark3": ["192.168.2.2", "192.168.3.2", "192.168.4.2", "192.168.5.2"],
}


def content(shape: str = "ring", size: int = 3, legs: object = (), **more: object) -> dict:
    nodes = [{"name": f"spark{i}", "management_address": f"192.0.2.{10 + i}"} for i in range(1, size + 1)]
    given = list(legs) if isinstance(legs, tuple) else legs
    return {"plugin": "gb10.ring.topology", "shape": shape, "nodes": nodes, "legs": given, **more}


def leg(*between: str, rail: int = 0, **more: object) -> dict:
    return {**({"between": list(between)} if between else {}), "rail": rail, **more}


def addresses(data: dict) -> dict[str, list[str]]:
    hosts = host_variables(parse_topology(data))
    return {name: [port["address"] for port in variables["fabric_ports"]] for name, variables in hosts.items()}


def problems(data: dict) -> list[str]:
    with pytest.raises(TopologyError) as caught:
        parse_topology(data)
    return [str(problem) for problem in caught.value.problems]


def nvidia_legs() -> tuple[dict, ...]:
    cables = [("spark1", "spark2", 0), ("spark1", "spark3", 2), ("spark2", "spark3", 4)]
    return tuple(
        leg(
            one,
            other,
            rail=rail,
            subnet=f"192.168.{net + rail}.0/24",
            addresses={one: f"192.168.{net + rail}.1", other: f"192.168.{net + rail}.2"},
        )
        for one, other, net in cables
        for rail in (0, 1)
    )


def test_the_published_plan_of_nvidia_for_three_nodes():
    hosts = host_variables(parse_topology(content(legs=nvidia_legs())))
    assert addresses(content(legs=nvidia_legs())) == NVIDIA
    assert [port["netdev"] for port in hosts["spark1"]["fabric_ports"]] == [
        "enp1s0f0np0",
        "enP2p1s0f0np0",
        "enp1s0f1np1",
        "enP2p1s0f1np1",
    ]
    for name, variables in hosts.items():
        for port in variables["fabric_ports"]:
            assert port["subnet"] == re.sub(r"\d+$", "0/24", port["address"])
            (facing,) = [p for p in hosts[port["peer"]]["fabric_ports"] if p["address"] == port["peer_address"]]
            assert (facing["peer"], facing["peer_address"], facing["rail"]) == (name, port["address"], port["rail"])


def test_the_file_in_the_documentation_is_that_plan():
    (block,) = [text for text in re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL) if "legs:" in text]
    assert addresses(yaml.safe_load(block)) == NVIDIA


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            content(legs=(leg("spark3", "spark1", rail=1, subnet="172.20.9.0/24"),)),
            {
                "spark1": ["10.100.0.1", "10.100.1.1", "10.100.4.1", "172.20.9.1"],
                "spark2": ["10.100.2.2", "10.100.3.2", "10.100.0.2", "10.100.1.2"],
                "spark3": ["10.100.4.3", "172.20.9.3", "10.100.2.3", "10.100.3.3"],
            },
            id="a subnet alone; the other legs stay where they are",
        ),
        pytest.param(
            content("ring", 2, (leg("spark1:1", "spark2:0", subnet="172.20.9.0/24"),)),
            {
                "spark1": ["10.100.0.1", "10.100.1.1", "172.20.9.1", "10.100.3.1"],
                "spark2": ["172.20.9.2", "10.100.3.2", "10.100.0.2", "10.100.1.2"],
            },
            id="ports tell the cables of a ring of two apart",
        ),
        pytest.param(
            content("pair", 2, (leg(rail=1, addresses={"spark2": "10.100.1.77"}),)),
            {"spark1": ["10.100.0.1", "10.100.1.1"], "spark2": ["10.100.0.2", "10.100.1.77"]},
            id="one address of a pair",
        ),
        pytest.param(
            content("pair", 2, (leg("spark2", "spark1:0", subnet="192.168.100.0/24"),)),
            {"spark1": ["192.168.100.1", "10.100.1.1"], "spark2": ["192.168.100.2", "10.100.1.2"]},
            id="the cable of a pair by name",
        ),
        pytest.param(
            content("switch", 3, tuple(leg(rail=rail, subnet=f"192.168.{100 + rail}.0/24") for rail in (0, 1))),
            {f"spark{i}": [f"192.168.100.{i}", f"192.168.101.{i}"] for i in (1, 2, 3)},
            id="the plan of NVIDIA multi-sparks-through-switch",
        ),
        pytest.param(
            content("pair", 2, (leg(rail=1, subnet="172.20.9.0/24"),), supernet="10.100.0.0/24"),
            {"spark1": ["10.100.0.1", "172.20.9.1"], "spark2": ["10.100.0.2", "172.20.9.2"]},
            id="the supernet needs room for the legs that use it only",
        ),
        pytest.param(
            content("pair", 2, tuple(leg(rail=r, subnet=f"172.20.{r}.0/24") for r in (0, 1)), supernet="192.0.0.0/16"),
            {"spark1": ["172.20.0.1", "172.20.1.1"], "spark2": ["172.20.0.2", "172.20.1.2"]},
            id="a supernet that no leg uses may be anywhere",
        ),
        pytest.param(
            content("pair", 2, []),
            {"spark1": ["10.100.0.1", "10.100.1.1"], "spark2": ["10.100.0.2", "10.100.1.2"]},
            id="none",
        ),
    ],
)
def test_plan(data, expected):
    assert addresses(data) == expected


A = leg("spark1", "spark2", subnet="172.20.0.0/24")
CABLES = "spark1:0 - spark2:1, spark2:0 - spark3:1, spark3:0 - spark1:1"
TWO_NODES = "the two nodes of the cable, such as [spark1, spark2] or [spark1:0, spark2:1] with ports"
REFUSALS = [
    # one entry
    (
        content(legs={"rail": 0}),
        "legs: found a mapping; allowed: a list of legs, each with between, rail and subnet or addresses",
    ),
    (content(legs=("x",)), "legs[0]: found 'x'; allowed: a mapping with between, rail and subnet or addresses"),
    (content(legs=({**A, "subnets": 1},)), "legs[0].subnets: found an unknown key; allowed: did you mean 'subnet'?"),
    (content(legs=({**A, "rail": 2},)), "legs[0].rail: found 2; allowed: a whole number from 0 to 1"),
    (
        content(legs=({k: A[k] for k in ("between", "subnet")},)),
        "legs[0].rail: found nothing; allowed: a whole number from 0 to 1",
    ),
    (
        content(legs=(leg("spark1", "spark2"),)),
        "legs[0]: found neither subnet nor addresses; allowed: one or both; remove the entry to keep the leg as it is planned",
    ),
    (
        content(legs=({**A, "subnet": "172.20.0.0"},)),
        "legs[0].subnet: found '172.20.0.0'; allowed: an IPv4 network with its prefix length, such as 10.100.0.0/16",
    ),
    *(
        (
            content(legs=({**A, "subnet": subnet},)),
            f"legs[0].subnet: found '{subnet}'; allowed: a /24, which NCCL's subnet-aware routing compares (NCCL_IB_SUBNET_PREFIX_LEN)",
        )
        for subnet in ("172.20.0.0/30", "172.20.0.0/16")
    ),
    (
        content(legs=({**A, "addresses": ["172.20.0.1"]},)),
        "legs[0].addresses: found a list; allowed: a mapping of node names to IPv4 addresses",
    ),
    (
        content(legs=({**A, "addresses": {"spark1": "172.20.0.1/24"}},)),
        "legs[0].addresses.spark1: found '172.20.0.1/24'; allowed: an IPv4 address that the other nodes can reach, such as 192.0.2.11",
    ),
    # the cable
    (content(legs=(leg("spark1", subnet="172.20.0.0/24"),)), f"legs[0].between: found [spark1]; allowed: {TWO_NODES}"),
    (content(legs=({**A, "between": "spark1"},)), f"legs[0].between: found 'spark1'; allowed: {TWO_NODES}"),
    (
        content(legs=({**A, "between": ["spark1:2", "spark2"]},)),
        f"legs[0].between: found [spark1:2, spark2]; allowed: {TWO_NODES}",
    ),
    (content(legs=({**A, "between": ["spark1", 5]},)), f"legs[0].between: found [spark1, 5]; allowed: {TWO_NODES}"),
    (
        content(legs=(leg(subnet="172.20.0.0/24"),)),
        "legs[0].between: found nothing; allowed: the two nodes of the cable, such as [spark1, spark2]",
    ),
    (
        content(legs=({**A, "between": ["spark1", "spark22"]},)),
        "legs[0].between: found 'spark22', which is no node of this file; allowed: did you mean 'spark2'?",
    ),
    (
        content(legs=({**A, "between": ["spark1:1", "spark2:1"]},)),
        "legs[0].between: found spark1:1 and spark2:1, which no cable of the plan joins; allowed: a cable of the plan: spark1:0 - spark2:1",
    ),
    (
        content("ring", 4, ({**A, "between": ["spark1", "spark3"]},)),
        "legs[0].between: found spark1 and spark3, which no cable of the plan joins; allowed: a cable of the plan: "
        "spark1:0 - spark2:1, spark2:0 - spark3:1, spark3:0 - spark4:1, spark4:0 - spark1:1",
    ),
    (
        content(legs=({**A, "between": ["spark1", "spark1"]},)),
        f"legs[0].between: found spark1 and spark1, which no cable of the plan joins; allowed: a cable of the plan: {CABLES}",
    ),
    (
        content("ring", 2, (A,)),
        "legs[0].between: found spark1 and spark2, which two cables join; allowed: the ports too: one of "
        "[spark1:0, spark2:1], [spark2:0, spark1:1]",
    ),
    (
        content("switch", 3, (A,)),
        "legs[0].between: found two nodes; allowed: no between in shape switch, where a rail is one leg of all nodes; remove it",
    ),
    # several entries and the plan
    (
        content(legs=(A, {**A, "between": ["spark2", "spark1"], "subnet": "172.20.9.0/24"})),
        "legs[1]: found rail 0 of spark1:0 - spark2:1, which legs[0] has already; allowed: one entry a leg",
    ),
    (
        content(legs=(leg("spark3", "spark1", subnet="172.20.0.0/24"), A)),
        "legs[1].subnet: found '172.20.0.0/24', which rail 0 of spark3:0 - spark1:1 (legs[0]) has too; allowed: a subnet for each leg",
    ),
    (
        content(legs=(A, {**A, "rail": 1})),
        "legs[1].subnet: found '172.20.0.0/24', which rail 0 of spark1:0 - spark2:1 (legs[0]) has too; allowed: a subnet for each leg",
    ),
    (
        content("switch", 3, (leg(rail=0, subnet="10.100.1.0/24"),)),
        "legs[0].subnet: found '10.100.1.0/24', which rail 1 of the switch (from supernet) has too; allowed: a subnet for each leg",
    ),
    (
        content(legs=({**A, "subnet": "10.100.3.0/24"},)),
        "legs[0].subnet: found '10.100.3.0/24', which rail 1 of spark2:0 - spark3:1 (from supernet) has too; allowed: a subnet for each leg",
    ),
    (
        content(legs=({**A, "subnet": "192.0.2.0/24"},)),
        "legs[0].subnet: found '192.0.2.0/24', which overlaps the management network 192.0.2.0/24 of nodes[0]; "
        "allowed: a range apart from it; management_prefix sets the size of the management network",
    ),
    (
        content("pair", 2, (leg(rail=1, addresses={"spark1": "10.100.1.9"}),), supernet="10.100.0.0/24"),
        "supernet: found '10.100.0.0/24', which holds 1 networks of /24; allowed: a /23 or wider: "
        "the 2 legs of this pair need a /24 each",
    ),
    # addresses
    (
        content(legs=({**A, "addresses": {"spark3": "172.20.0.3"}},)),
        "legs[0].addresses.spark3: found a node that is not on this leg; allowed: one of spark1, spark2",
    ),
    (
        content(legs=({**A, "addresses": {"spark1": "172.20.1.1"}},)),
        "legs[0].addresses.spark1: found '172.20.1.1', which is outside of the leg's subnet 172.20.0.0/24; allowed: a host address of 172.20.0.0/24",
    ),
    *(
        (
            content(legs=({**A, "addresses": {"spark2": address}},)),
            f"legs[0].addresses.spark2: found '{address}', the network or broadcast address of the leg's subnet 172.20.0.0/24; "
            "allowed: a host address of 172.20.0.0/24",
        )
        for address in ("172.20.0.0", "172.20.0.255")
    ),
    (
        content(legs=({**A, "addresses": {"spark1": "172.20.0.2"}},)),
        "legs[0].addresses: found '172.20.0.2' for spark1 and for spark2; allowed: an address for each node of the leg",
    ),
]


@pytest.mark.parametrize(("data", "expected"), REFUSALS, ids=[text[:70] for _data, text in REFUSALS])
def test_refusal(data, expected):
    assert problems(data) == [expected]


@pytest.mark.parametrize(
    "break_it",
    [
        lambda data: data["nodes"][1].pop("name"),
        lambda data: data["nodes"].__setitem__(1, "spark2"),
        lambda data: data["nodes"][1].update(name="spark1"),
        lambda data: data.pop("shape"),
        lambda data: data.update(supernet="x"),
    ],
    ids=["name missing", "node not a mapping", "name twice", "shape missing", "supernet wrong"],
)
def test_legs_are_not_judged_by_nodes_that_are_wrong_themselves(break_it):
    data = content(legs=(A,))
    break_it(data)
    assert len(problems(data)) == 1


def test_addresses_are_not_judged_by_a_subnet_that_was_refused():
    data = content(legs=({**A, "subnet": "172.20.0.0/30", "addresses": {"spark1": "172.20.0.1"}},))
    assert [problem.split(":")[0] for problem in problems(data)] == ["legs[0].subnet"]


def test_an_entry_is_judged_where_the_rest_of_the_file_is_wrong():
    found = problems(content(legs=({**A, "subnet": "172.20.0.0/30", "between": ["spark1", "sparky"]},), mtu=5))
    assert [problem.split(":")[0] for problem in found] == ["mtu", "legs[0].subnet", "legs[0].between"]
