# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling import Verdict, verdict
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_plan import planned, ring_plan
from ansible_collections.gb10.ring.tests.unit.fixtures.cabling import World, fabric_ports, ring, spark


def look(world: World, shape: str = "ring", wanted: list[tuple[str, ...]] | None = None) -> Verdict:
    cables = wanted if wanted is not None else list(ring(world.nodes))
    return verdict(world.results(), world.nodes, planned(shape, fabric_ports(world.nodes, cables)))


def kinds(found: Verdict) -> list[tuple[str, list[str]]]:
    return [(finding.kind, [str(end) for end in finding.ends]) for finding in found.findings]


def rewired(count: int, *changes: tuple[str, str]) -> World:
    """A ring in which plugs were exchanged, or moved to an empty port."""
    cables = [list(cable) for cable in ring(spark(count))]
    for one, two in changes:
        swap = {one: two, two: one}
        cables = [[swap.get(end, end) for end in cable] for cable in cables]
    return World(spark(count), [tuple(cable) for cable in cables])


def without(count: int, number: int) -> World:
    cables = ring(spark(count))
    return World(spark(count), [cable for index, cable in enumerate(cables) if index != number])


@pytest.mark.parametrize("joined", [False, True], ids=["rails apart", "rails on one wire"])
@pytest.mark.parametrize("count", range(2, 9))
def test_a_ring_as_planned(count: int, joined: bool) -> None:
    world = World(spark(count), list(ring(spark(count))), joined=joined)
    found = look(world)
    assert found.kind == "as_planned"
    assert found.findings == ()
    assert [(check.node, check.ok) for check in found.checks] == [(node, True) for node in spark(count)]
    following = f"spark{2}", f"spark{count}"
    assert found.checks[0].found == f"P0 to {following[0]} P1, P1 to {following[1]} P0"


@pytest.mark.parametrize("joined", [False, True], ids=["rails apart", "rails on one wire"])
@pytest.mark.parametrize("count", range(3, 9))
def test_a_missing_cable(count: int, joined: bool) -> None:
    found = look(replace(without(count, 1), joined=joined))
    assert kinds(found) == [("open", ["spark2 P0", "spark3 P1"])]
    assert found.findings[0].found == "spark2 P0 has no carrier; spark3 P1 has no carrier"
    assert {check.node for check in found.checks if check.ok} == set(spark(count)) - {"spark2", "spark3"}


SWAPS = [
    (3, ("spark1:0", "spark1:1"), ["spark1 P0", "spark1 P1"]),
    (3, ("spark2:1", "spark3:1"), ["spark2 P1", "spark3 P1"]),
    (3, ("spark1:0", "spark3:1"), ["spark2 P0", "spark2 P1"]),  # the same as exchanging the two plugs in spark2
    (4, ("spark2:1", "spark4:1"), ["spark2 P1", "spark4 P1"]),
    (4, ("spark1:0", "spark3:0"), ["spark2 P1", "spark4 P1"]),
    (4, ("spark3:0", "spark3:1"), ["spark3 P0", "spark3 P1"]),
    (8, ("spark2:1", "spark7:1"), ["spark2 P1", "spark7 P1"]),
]


@pytest.mark.parametrize("joined", [False, True], ids=["rails apart", "rails on one wire"])
@pytest.mark.parametrize(("count", "swap", "expected"), SWAPS)
def test_two_cables_swapped(count: int, swap: tuple[str, str], expected: list[str], joined: bool) -> None:
    found = look(replace(rewired(count, swap), joined=joined))
    assert kinds(found) == [("swapped", expected)]
    assert found.findings[0].cure == f"exchange the plugs in {' and '.join(expected)}"


def test_the_advised_exchange_makes_the_plan() -> None:
    for count, swap, expected in SWAPS:
        plugs = [end.replace(" P", ":") for end in expected]
        assert look(rewired(count, swap, (plugs[0], plugs[1]))).kind == "as_planned"


def test_two_pairs_of_swapped_cables_are_two_findings() -> None:
    found = look(rewired(8, ("spark1:0", "spark1:1"), ("spark5:0", "spark5:1")))
    assert kinds(found) == [("swapped", ["spark1 P0", "spark1 P1"]), ("swapped", ["spark5 P0", "spark5 P1"])]


@pytest.mark.parametrize("count", [3, 4, 8])
def test_port_0_to_port_0(count: int) -> None:
    cables = [
        ("spark1:0", "spark2:0"),
        *[cable for cable in ring(spark(count)) if "spark1:0" not in cable and "spark2:0" not in cable],
    ]
    found = look(World(spark(count), cables))
    assert kinds(found) == [("same_port", ["spark1 P0", "spark2 P0"]), ("open", ["spark2 P0", "spark3 P1"])]
    assert found.findings[0].found == "spark1 P0 is cabled to spark2 P0"
    assert found.findings[0].cure == "move the plug in spark2 P0 to spark2 P1"
    assert found.findings[1].found == "spark2 P0 is cabled to spark1 P0; spark3 P1 has no carrier"


def test_all_cables_between_the_same_ports() -> None:
    cables = [("spark1:0", "spark2:0"), ("spark2:1", "spark3:1"), ("spark3:0", "spark4:0"), ("spark4:1", "spark1:1")]
    found = look(World(spark(4), cables))
    assert kinds(found) == [("swapped", ["spark2 P0", "spark2 P1"]), ("swapped", ["spark4 P0", "spark4 P1"])]


def test_a_plug_in_the_port_of_another_node() -> None:
    cables = [cable for cable in ring(spark(4)) if cable[0] not in ("spark1:0", "spark2:0")] + [
        ("spark1:0", "spark3:1")
    ]
    found = look(World(spark(4), cables))
    assert kinds(found) == [("wrong_port", ["spark1 P0", "spark3 P1"]), ("open", ["spark2 P0", "spark3 P1"])]
    assert found.findings[0].cure == "move the plug in spark3 P1 to spark2 P1"


def test_three_plugs_rotated() -> None:
    found = look(rewired(4, ("spark2:1", "spark3:1"), ("spark3:1", "spark4:1")))
    assert [finding.kind for finding in found.findings] == ["wrong_port", "loop", "loop"]
    assert [finding.cure for finding in found.findings] == [
        "move the plug in spark4 P1 to spark2 P1",
        "move the plug in spark2 P1 to spark3 P1",
        "move the plug in spark3 P1 to spark4 P1",
    ]


@pytest.mark.parametrize("order", [[1, 3, 2], [1, 3, 2, 4], [1, 2, 4, 3, 5]])
def test_a_ring_in_another_order(order: list[int]) -> None:
    names = [f"spark{number}" for number in order]
    found = look(World(spark(len(order)), list(ring(names))))
    assert kinds(found) == [("other_order", [f"{name} P0" for name in names])]
    assert found.findings[0].cure == f"list the nodes in the order {', '.join(names)}, or move the cables"
    assert not any(check.ok for check in found.checks)


@pytest.mark.parametrize("count", [3, 4, 8])
def test_crossed_rails(count: int) -> None:
    found = look(World(spark(count), list(ring(spark(count))), crossed={0}))
    assert kinds(found) == [("crossed_rails", ["spark1 P0", "spark2 P1"])]
    assert "spark1 P0 rail 0 (enp1s0f0np0) hears spark2 P1 rail 1 (enP2p1s0f1np1)" in found.findings[0].found


@pytest.mark.parametrize("joined", [False, True], ids=["rails apart", "rails on one wire"])
def test_one_direction_silent(joined: bool) -> None:
    found = look(World(spark(3), list(ring(spark(3))), deaf={"spark2:1"}, joined=joined))
    assert kinds(found) == [("one_way", ["spark2 P1", "spark1 P0"])]
    assert found.findings[0].found == "spark2 P1 hears nothing from spark1 P0, and spark1 P0 hears spark2 P1"


def test_one_rail_of_a_cable_silent() -> None:
    found = look(World(spark(3), list(ring(spark(3))), dead={("spark2:1", 1)}))
    assert kinds(found) == [("rail_silent", ["spark1 P0", "spark2 P1"])]
    assert "spark1 P0 rail 1 (enP2p1s0f0np0)" in found.findings[0].found


def test_one_rail_of_a_port_absent() -> None:
    found = look(World(spark(3), list(ring(spark(3))), absent={("spark2:1", 1)}))
    assert kinds(found) == [("rail_absent", ["spark2 P1"])]


def test_a_port_that_hot_plug_has_powered_off() -> None:
    world = without(3, 0)
    found = look(replace(world, absent={("spark1:0", 0), ("spark1:0", 1)}))
    assert kinds(found) == [("open", ["spark1 P0", "spark2 P1"])]
    assert found.findings[0].found.startswith("spark1 P0 is absent (the machine powers an unused port off)")


def test_a_strangers_machine_that_probes() -> None:
    found = look(replace(without(3, 1), strangers={"spark2:0": "spark1"}))
    assert kinds(found) == [("stranger", ["spark2 P0"])]
    assert found.findings[0].found == "spark2 P0 hears P1 of a machine that calls itself spark1 (machine guid-other)"
    assert found.findings[0].cure.startswith("plug the cable of spark2 P0 into spark3 P1")


def test_a_strangers_machine_that_does_not_probe() -> None:
    found = look(replace(without(3, 1), others={"spark2:0": "02:00:00:00:00:01"}))
    assert kinds(found) == [("stranger", ["spark2 P0"])]
    assert "02:00:00:00:00:01" in found.findings[0].found


def test_unknown_senders_beside_the_right_neighbour_are_no_news() -> None:
    found = look(World(spark(3), list(ring(spark(3))), others={"spark2:0": "02:00:00:00:00:01"}))
    assert found.kind == "as_planned"


def test_carrier_and_silence_at_both_ends() -> None:
    found = look(replace(without(3, 1), silent={"spark2:0", "spark3:1"}))
    assert kinds(found) == [("silent", ["spark2 P0", "spark3 P1"])]


@pytest.mark.parametrize("joined", [False, True], ids=["rails apart", "rails on one wire"])
def test_a_switch_where_cables_are_planned(joined: bool) -> None:
    found = look(World(spark(3), [tuple(f"{node}:{port}" for node in spark(3) for port in (0, 1))], joined=joined))
    assert kinds(found) == [("switch", [f"spark{number} P{port}" for number in (1, 2, 3) for port in (0, 1)])]


def test_a_switch_at_one_cable_leaves_the_others_judged() -> None:
    cables = [("spark1:0", "spark2:1", "spark4:0"), ("spark2:0", "spark3:1"), ("spark4:1", "spark3:0")]
    found = look(World(spark(4), cables))
    assert kinds(found) == [("switch", ["spark1 P0", "spark2 P1", "spark4 P0"])]


def test_a_cable_with_both_plugs_in_one_node() -> None:
    found = look(World(spark(3), [("spark1:0", "spark1:1"), ("spark2:0", "spark3:1")]))
    assert kinds(found) == [("loop", ["spark1 P0", "spark1 P1"]), ("open", ["spark1 P1", "spark3 P0"])]


def test_ports_that_were_left_down_are_not_judged() -> None:
    world = World(spark(3), list(ring(spark(3))), unprobed={"spark1:0"})
    found = look(world)
    assert kinds(found) == [("unjudged", ["spark1 P0", "spark2 P1"])]
    assert found.findings[0].severity == "info"


def test_a_node_that_gave_no_result() -> None:
    world = World(spark(3), list(ring(spark(3))))
    plan = planned("ring", fabric_ports(spark(3), list(ring(spark(3)))))
    found = verdict(world.results()[:2], spark(3), plan)
    assert kinds(found) == [("unjudged", ["spark1 P1", "spark3 P0"]), ("unjudged", ["spark2 P0", "spark3 P1"])]
    assert all("spark3 did not report" in finding.found and finding.severity == "error" for finding in found.findings)


def test_one_machine_under_two_names() -> None:
    results = World(spark(3), list(ring(spark(3)))).results()
    results[2]["machine"] = results[1]["machine"]
    found = verdict(results, spark(3), ring_plan(spark(3)))
    assert [finding.kind for finding in found.findings] == ["same_machine"]
    assert "spark2 and spark3 are the same machine" in found.findings[0].found


PAIR = [("spark1:0", "spark2:0")]


@pytest.mark.parametrize(
    ("cables", "expected"),
    [
        (PAIR, []),
        ([("spark1:0", "spark2:1")], [("wrong_port", ["spark1 P0", "spark2 P1"])]),
        ([("spark1:1", "spark2:1")], [("extra", ["spark1 P1", "spark2 P1"]), ("open", ["spark1 P0", "spark2 P0"])]),
        ([], [("open", ["spark1 P0", "spark2 P0"])]),
        ([*PAIR, ("spark1:1", "spark2:1")], [("extra", ["spark1 P1", "spark2 P1"])]),
    ],
)
def test_a_pair(cables: list[tuple[str, ...]], expected: list[tuple[str, list[str]]]) -> None:
    found = look(World(spark(2), cables), "pair", PAIR)
    assert sorted(kinds(found)) == sorted(expected)


def test_a_plug_in_the_other_port_of_a_pair_may_stay_there() -> None:
    found = look(World(spark(2), [("spark1:0", "spark2:1")]), "pair", PAIR)
    assert (
        found.findings[0].cure
        == "move the plug in spark2 P1 to spark2 P0, or set port: 1 for spark2 in the topology file"
    )


SWITCH = [tuple(f"{node}:1" for node in spark(4))]


@pytest.mark.parametrize("joined", [False, True], ids=["rails apart", "rails on one wire"])
@pytest.mark.parametrize(
    ("cables", "expected"),
    [
        (SWITCH, []),
        ([("spark1:1", "spark2:1", "spark3:1", "spark4:0")], [("wrong_port", ["spark4 P1", "spark4 P0"])]),
        ([("spark1:1", "spark2:1", "spark3:1")], [("open", ["spark4 P1"])]),
    ],
)
def test_a_switch(cables: list[tuple[str, ...]], expected: list[tuple[str, list[str]]], joined: bool) -> None:
    assert kinds(look(World(spark(4), cables, joined=joined), "switch", SWITCH)) == expected


def test_a_node_that_a_switch_keeps_from_another() -> None:
    found = look(
        World(spark(3), [("spark1:1", "spark2:1"), ("spark2:1", "spark3:1")]),
        "switch",
        [tuple(f"{node}:1" for node in spark(3))],
    )
    assert [kind for kind, _ends in kinds(found)] == ["rail_silent", "rail_silent"]


def limited(
    world: World, names: list[str], shape: str = "ring", wanted: list[tuple[str, ...]] | None = None
) -> Verdict:
    """The verdict of a run on these nodes alone: the others do not probe."""
    results = [result for result in world.results() if result["node"] in names]
    for port in (port for result in results for port in result["ports"]):
        port["heard"] = [hello for hello in port["heard"] if hello["node"] in names or hello["nonce"] != "run1"]
    cables = wanted if wanted is not None else list(ring(world.nodes))
    return verdict(results, names, planned(shape, fabric_ports(world.nodes, cables)))


def told(found: Verdict) -> list[tuple[str, bool, str, str]]:
    return [(check.node, check.ok, check.severity, check.found) for check in found.checks]


def test_a_run_on_one_node_of_a_ring_judges_no_cable() -> None:
    noise = {"spark2:0": "02:00:00:00:00:01", "spark2:1": "02:00:00:00:00:02"}  # the neighbours' own traffic
    found = limited(World(spark(3), list(ring(spark(3))), others=noise), ["spark2"])
    text = "spark2 P0 to spark3 P1, spark2 P1 to spark1 P0: not judged towards spark1, spark3, outside of this run"
    assert told(found) == [("spark2", False, "info", text)]
    assert "--limit" in found.checks[0].cure
    assert found.kind == "unjudged"


@pytest.mark.parametrize("count", range(3, 9))
def test_a_run_on_two_neighbours_judges_the_cable_between_them(count: int) -> None:
    found = limited(World(spark(count), list(ring(spark(count)))), ["spark1", "spark2"])
    assert [(node, ok, severity) for node, ok, severity, _text in told(found)] == [
        ("spark1", False, "info"),
        ("spark2", False, "info"),
        ("spark1", True, "error"),
        ("spark2", True, "error"),
    ]
    assert [check.found for check in found.checks if check.ok] == ["P0 to spark2 P1", "P1 to spark1 P0"]
    broken = limited(without(count, 0), ["spark1", "spark2"])
    assert kinds(broken)[0] == ("open", ["spark1 P0", "spark2 P1"])
    assert not any(check.ok for check in broken.checks)


def test_a_wrong_cable_between_two_nodes_of_the_run_is_found_and_may_belong_in_another() -> None:
    found = limited(World(spark(3), [("spark1:1", "spark2:0")]), ["spark1", "spark2"])
    assert kinds(found)[0] == ("wrong_port", ["spark1 P1", "spark2 P0"])
    assert "extra" not in {kind for kind, _ends in kinds(found)}


def test_a_stranger_that_probes_is_found_in_a_run_on_one_node() -> None:
    other = World(spark(3), [], strangers={"spark2:0": "spark9"})
    assert kinds(limited(other, ["spark2"]))[0] == ("stranger", ["spark2 P0"])
    meanwhile = World(spark(3), [], strangers={"spark2:0": "spark3"})  # another run, on that node
    assert [kind for kind, _ends in kinds(limited(meanwhile, ["spark2"]))] == ["unjudged"]


def test_a_run_on_one_node_of_a_pair() -> None:
    found = limited(World(spark(2), PAIR), ["spark2"], "pair", PAIR)
    text = "spark2 P0 to spark1 P0: not judged towards spark1, outside of this run"
    assert told(found) == [("spark2", False, "info", text)]


def test_a_run_on_some_nodes_at_a_switch() -> None:
    cables: list[tuple[str, ...]] = [tuple(f"{node}:1" for node in spark(4))]
    world = World(spark(4), cables, others={"spark1:1": "02:00:00:00:00:01"})
    (alone,) = told(limited(world, ["spark1"], "switch", cables))
    text = "spark1 P1 to the switch: not judged towards spark2, spark3, spark4, outside of this run"
    assert alone == ("spark1", False, "info", text)
    two = limited(world, ["spark1", "spark2"], "switch", cables)
    assert [(check.node, check.ok) for check in two.checks if check.severity != "info"] == [
        ("spark1", True),
        ("spark2", True),
    ]
    off = limited(World(spark(4), [("spark1:1", "spark3:1", "spark4:1")]), ["spark1", "spark2"], "switch", cables)
    assert ("open", ["spark2 P1"]) in kinds(off)


def test_the_whole_ring_is_judged_as_without_a_limit() -> None:
    world = without(4, 1)
    assert limited(world, world.nodes).to_dict() == look(world).to_dict()


def test_the_verdict_as_a_dictionary() -> None:
    found = look(without(3, 1)).to_dict()
    assert (found["kind"], found["shape"], found["order"]) == ("open", "ring", spark(3))
    assert found["findings"][0]["ends"] == ["spark2 P0", "spark3 P1"]
    assert found["checks"][0] == {
        "id": "fabric.cabling",
        "node": "spark2",
        "ok": False,
        "severity": "error",
        "found": "spark2 P0 has no carrier; spark3 P1 has no carrier",
        "expected": "spark2 P0 cabled to spark3 P1",
        "cure": "plug a cable from spark2 P0 into spark3 P1; where one is, seat it, and see that both nodes are on",
    }
