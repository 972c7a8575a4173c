# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_picture import (
    End,
    Picture,
    parse_observation,
    picture,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_plan import (
    CablePlan,
    closest,
    planned,
    ring_order,
    ring_plan,
)
from ansible_collections.gb10.ring.tests.unit.fixtures.cabling import World, fabric_ports, plug, ring, spark


def cable(one: str, two: str) -> frozenset[End]:
    return frozenset(End(*plug(end)) for end in (one, two))


def seen(world: World) -> Picture:
    return picture([parse_observation(result) for result in world.results()], world.nodes)


@pytest.mark.parametrize("count", range(2, 9))
def test_the_plan_of_a_ring_from_the_inventory(count: int) -> None:
    plan = planned("ring", fabric_ports(spark(count), list(ring(spark(count)))))
    assert plan == ring_plan(spark(count))
    assert len(plan.cables) == count
    assert plan.peer(End("spark1", 0)) == End("spark2", 1)
    assert plan.peer(End("spark1", 1)) == End(f"spark{count}", 0)


def test_the_plan_of_a_pair_with_mixed_ports() -> None:
    plan = planned("pair", fabric_ports(spark(2), [("spark1:0", "spark2:1")]))
    assert plan.cables == {cable("1:0", "2:1")}
    assert plan.peer(End("spark2", 0)) is None


def test_the_plan_of_a_switch_is_one_cable_with_an_end_a_node() -> None:
    plan = planned("switch", fabric_ports(spark(3), [tuple(f"{node}:1" for node in spark(3))]))
    assert plan.cables == {frozenset(End(node, 1) for node in spark(3))}
    assert plan.peer(End("spark1", 1)) is None
    assert plan.ends() == {End(node, 1) for node in spark(3)}


def test_ports_that_contradict_each_other() -> None:
    ports = fabric_ports(spark(3), list(ring(spark(3))))
    ports["spark2"] = []
    with pytest.raises(ValueError, match="fabric_ports of spark1 names enp1s0f1np1 of spark2"):
        planned("ring", ports)


@pytest.mark.parametrize(
    ("cables", "order"),
    [
        (ring(spark(3)), (1, 2, 3)),
        (ring(["spark1", "spark3", "spark2"]), (1, 3, 2)),
        (ring(["spark3", "spark2", "spark1"]), (1, 3, 2)),
        (ring(spark(3))[:2], None),
        ([("1:0", "2:0"), ("2:1", "3:1"), ("3:0", "1:1")], None),
        ([("1:0", "2:1"), ("2:0", "1:1"), ("3:0", "3:1")], None),
    ],
)
def test_ring_order(cables: list[tuple[str, str]], order: tuple[int, ...] | None) -> None:
    expected = tuple(f"spark{number}" for number in order) if order else None
    assert ring_order(spark(3), [cable(*ends) for ends in cables]) == expected


def test_a_ring_of_two_has_an_order() -> None:
    assert ring_order(spark(2), [cable("1:0", "2:1"), cable("2:0", "1:1")]) == ("spark1", "spark2")


def shape_of(nodes: list[str], cables: list[tuple[str, ...]]) -> CablePlan:
    return closest(seen(World(nodes, cables)), nodes)


@pytest.mark.parametrize("order", [[1, 2, 3], [1, 3, 2], [1, 4, 2, 3], [1, 5, 3, 7, 2, 8, 4, 6]])
def test_any_ring_is_found(order: list[int]) -> None:
    names = [f"spark{number}" for number in order]
    assert shape_of(sorted(names), list(ring(names))) == ring_plan(names)


def test_the_first_node_gets_rank_0() -> None:
    assert shape_of(["spark3", "spark1", "spark2"], list(ring(spark(3)))).nodes == ("spark3", "spark1", "spark2")


@pytest.mark.parametrize("missing", range(4))
def test_a_ring_with_a_cable_out_keeps_its_order(missing: int) -> None:
    names = ["spark1", "spark3", "spark2", "spark4"]
    cables = [each for index, each in enumerate(ring(names)) if index != missing]
    assert shape_of(sorted(names), list(cables)).nodes == tuple(names)


def test_cables_between_the_same_ports_keep_the_order_of_the_neighbours() -> None:
    cables: list[tuple[str, ...]] = [
        ("spark1:0", "spark3:0"),
        ("spark3:1", "spark2:1"),
        ("spark2:0", "spark4:0"),
        ("spark4:1", "spark1:1"),
    ]
    assert shape_of(spark(4), cables).nodes == ("spark1", "spark3", "spark2", "spark4")


@pytest.mark.parametrize(
    ("cables", "shape", "ends"),
    [
        ([("spark1:0", "spark2:0")], "pair", {"1:0", "2:0"}),
        ([("spark1:1", "spark2:0")], "pair", {"1:1", "2:0"}),
        ([("spark1:1", "spark2:1"), ("spark1:0", "spark2:0")], "pair", {"1:0", "2:0"}),
        ([], "pair", {"1:0", "2:0"}),
        ([("spark1:0", "spark2:1"), ("spark2:0", "spark1:1")], "ring", {"1:0", "1:1", "2:0", "2:1"}),
    ],
)
def test_two_nodes(cables: list[tuple[str, ...]], shape: str, ends: set[str]) -> None:
    plan = shape_of(spark(2), cables)
    assert (plan.shape, plan.ends()) == (shape, {End(*plug(end)) for end in ends})


@pytest.mark.parametrize("joined", [False, True])
def test_a_switch_is_found_with_the_port_of_each_node(joined: bool) -> None:
    world = World(spark(4), [("spark1:1", "spark2:1", "spark3:0", "spark4:1")], joined=joined)
    plan = closest(seen(world), world.nodes)
    assert plan.shape == "switch"
    assert plan.ends() == {End("spark1", 1), End("spark2", 1), End("spark3", 0), End("spark4", 1)}


def test_the_other_rail_of_the_same_port_is_no_cable() -> None:
    world = World(spark(3), list(ring(spark(3))), joined=True)
    assert seen(world).cables() == ring_plan(spark(3)).cables
