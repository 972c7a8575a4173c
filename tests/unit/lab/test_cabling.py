# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.lab import cabling, status
from ansible_collections.gb10.ring.lab.cabling import Port, State
from ansible_collections.gb10.ring.lab.instance import LabError


@pytest.mark.parametrize("nodes", range(2, 9))
def test_a_ring_joins_port_0_to_port_1_of_the_next(nodes: int) -> None:
    state = cabling.plan("ring", nodes, 64)
    cables = state.cables()
    assert len(cables) == nodes
    for number in range(1, nodes + 1):
        assert set(cables[f"cable{number}"]) == {Port(number, 0), Port(number % nodes + 1, 1)}
    assert Counter(port for ends in cables.values() for port in ends) == Counter(state.ports())


def test_a_pair_has_one_cable_between_the_ports_0() -> None:
    assert cabling.plan("pair", 2, 64).cables() == {"cable1": (Port(1, 0), Port(2, 0))}


def test_a_switch_joins_all_ports_1_in_one_bridge_a_rail() -> None:
    state = cabling.plan("switch", 4, 64)
    assert state.cables() == {f"cable{number}": (Port(number, 1),) for number in range(1, 5)}
    assert state.bridges() == ["switchr0", "switchr1"]


@pytest.mark.parametrize(
    ("shape", "nodes", "said"),
    [("ring", 1, "1 nodes"), ("ring", 9, "9 nodes"), ("pair", 3, "pair has 2 nodes"), ("star", 3, "shape 'star'")],
)
def test_refused_shapes(shape: str, nodes: int, said: str) -> None:
    with pytest.raises(LabError, match=said):
        cabling.plan(shape, nodes, 64)


@pytest.mark.parametrize("text", ["spark1", "spark9:0", "spark1:2", "1:0", "spark1:0:0", ""])
def test_refused_ports(text: str) -> None:
    with pytest.raises(LabError, match="NODE:PORT"):
        Port.parse(text)


RING = cabling.plan("ring", 3, 64)


@pytest.mark.parametrize(("text", "cable"), [("cable2", "cable2"), ("spark1:0", "cable1"), ("spark1:1", "cable3")])
def test_a_cable_is_named_by_itself_or_by_an_end(text: str, cable: str) -> None:
    assert cabling.resolve(RING, text) == cable


@pytest.mark.parametrize("text", ["cable9", "spark7:0", "nonsense"])
def test_unknown_cables(text: str) -> None:
    with pytest.raises(LabError, match=r"cable"):
        cabling.resolve(RING, text)


def lines_for(state: State, port: str, about: str = "master") -> list[str]:
    names = [Port.parse(port).link(rail) for rail in (0, 1)]
    return [line for line in cabling.link_commands(state) if line.split()[3] in names and about in line.split()[4]]


def test_factory_cabling_brings_every_far_end_up_in_its_bridge() -> None:
    assert sum(len(lines_for(RING, str(port))) for port in RING.ports()) == 12
    assert lines_for(RING, "spark3:1") == [f"link set dev n3p1r{rail} master cable2r{rail} up" for rail in (0, 1)]


def test_a_cut_takes_the_carrier_at_both_ends_on_both_rails() -> None:
    state = cabling.set_cut(RING, "cable1", True)
    for port in ("spark1:0", "spark2:1"):
        assert [line.split()[-1] for line in lines_for(state, port)] == ["down", "down"]
    assert [line.split()[-1] for line in lines_for(state, "spark1:1")] == ["up", "up"]
    assert cabling.set_cut(state, "cable1", False) == RING


def test_a_node_without_power_takes_its_neighbours_carrier() -> None:
    state = cabling.set_power(RING, 2, on=False)
    assert lines_for(state, "spark2:0") == []
    assert [line.split()[-1] for line in lines_for(state, "spark1:0")] == ["down", "down"]
    assert [line.split()[-1] for line in lines_for(state, "spark3:1")] == ["down", "down"]
    assert [line.split()[-1] for line in lines_for(state, "spark3:0")] == ["up", "up"]
    assert cabling.set_power(state, 2, on=True) == RING


def test_a_node_without_power_leaves_the_others_at_a_switch_alone() -> None:
    state = cabling.set_power(cabling.plan("switch", 3, 64), 2, on=False)
    assert [line.split()[-1] for line in lines_for(state, "spark1:1")] == ["up", "up"]


def test_ports_without_a_cable_are_down_and_in_no_bridge() -> None:
    pair = cabling.plan("pair", 2, 64)
    assert lines_for(pair, "spark1:1") == [f"link set dev n1p1r{rail} nomaster down" for rail in (0, 1)]


def test_a_swap_exchanges_two_plugs_and_undoes_itself() -> None:
    state = cabling.swap(RING, "spark1:0", "spark1:1")
    assert state.cables()["cable1"] == (Port(1, 1), Port(2, 1))
    assert state.cables()["cable3"] == (Port(1, 0), Port(3, 0))
    assert cabling.swap(state, "spark1:1", "spark1:0") == RING


def test_pulled_plugs_take_the_carrier_of_both_cables() -> None:
    assert cabling.pulled(RING, "spark1:0", "spark1:1").cut == {"cable1", "cable3"}
    assert cabling.pulled(cabling.plan("pair", 2, 64), "spark1:0", "spark1:1").cut == {"cable1"}


def test_a_plug_moves_to_an_empty_port() -> None:
    state = cabling.swap(cabling.plan("pair", 2, 64), "spark2:0", "spark2:1")
    assert state.cables() == {"cable1": (Port(1, 0), Port(2, 1))}


def test_a_new_connection_leaves_the_plugs_that_were_in_the_way_loose() -> None:
    state = cabling.connect(RING, "spark1:0", "spark2:0", crossed=False)
    assert state.cables() == {
        "cable1": (Port(1, 0), Port(2, 0)),
        "cable2": (Port(3, 1),),
        "cable3": (Port(1, 1), Port(3, 0)),
    }
    assert [line.split()[-1] for line in lines_for(state, "spark3:1")] == ["down", "down"]
    assert lines_for(state, "spark2:1") == [f"link set dev n2p1r{rail} nomaster down" for rail in (0, 1)]
    state = cabling.connect(state, "spark1:0", "spark2:1", crossed=False)
    assert cabling.connect(state, "spark2:0", "spark3:1", crossed=False) == RING


def test_a_cable_that_lies_about_is_used_where_both_ports_are_empty() -> None:
    state = cabling.connect(RING, "spark1:0", "spark3:0", crossed=False)
    state = cabling.connect(state, "spark2:0", "spark1:1", crossed=False)
    assert "cable3" not in state.cables()
    assert cabling.connect(state, "spark2:1", "spark3:1", crossed=False).cables()["cable3"] == (Port(2, 1), Port(3, 1))


def test_a_crossed_cable_joins_rail_0_to_rail_1() -> None:
    state = cabling.connect(RING, "spark1:0", "spark2:1", crossed=True)
    assert lines_for(state, "spark1:0") == [f"link set dev n1p0r{rail} master cable1r{rail} up" for rail in (0, 1)]
    assert lines_for(state, "spark2:1") == [f"link set dev n2p1r{rail} master cable1r{1 - rail} up" for rail in (0, 1)]
    assert cabling.connect(state, "spark1:0", "spark2:1", crossed=False) == RING


def test_nothing_is_flooded_to_a_deaf_port() -> None:
    state = cabling.set_deaf(RING, "spark3:1", True)
    settings = "learning off flood off mcast_flood off bcast_flood off"
    assert lines_for(state, "spark3:1", "type") == [
        f"link set dev n3p1r{rail} type bridge_slave {settings}" for rail in (0, 1)
    ]
    assert all(" on" in line and " flood off" not in line for line in lines_for(state, "spark2:0", "type"))
    assert cabling.set_deaf(state, "spark3:1", False) == RING


@pytest.mark.parametrize(
    ("state", "first", "second", "said"),
    [
        (RING, "spark1:0", "spark1:0", "two ports"),
        (RING, "spark1:0", "spark4:1", "has the nodes"),
        (cabling.plan("switch", 3, 64), "spark1:0", "spark2:0", "without a switch"),
        (cabling.plan("pair", 2, 64), "spark1:1", "spark2:1", "no cable is left: cable1"),
    ],
)
def test_refused_connections(state: State, first: str, second: str, said: str) -> None:
    with pytest.raises(LabError, match=said):
        cabling.connect(state, first, second, crossed=False)


@pytest.mark.parametrize(
    ("shape", "first", "second", "said"),
    [
        ("ring", "spark1:0", "spark1:0", "two ports"),
        ("ring", "spark1:0", "spark7:0", "has the nodes"),
        ("pair", "spark1:1", "spark2:1", "at least one"),
    ],
)
def test_refused_swaps(shape: str, first: str, second: str, said: str) -> None:
    with pytest.raises(LabError, match=said):
        cabling.swap(cabling.plan(shape, 2, 64), first, second)


def test_the_state_survives_its_file() -> None:
    state = replace(cabling.swap(RING, "spark1:0", "spark2:0"), cut=frozenset({"cable2"}), off=frozenset({3}))
    state = replace(state, crossed=frozenset({"cable1"}), deaf=frozenset({Port(2, 1)}))
    assert State.from_json(state.to_json()) == state


def test_macs_are_distinct_in_the_whole_lab() -> None:
    macs = [cabling.mac(node, port, rail) for node in range(1, 9) for port in (0, 1) for rail in (0, 1)]
    macs += [cabling.mac(node, 0xFF, 0) for node in range(1, 9)]
    assert len(set(macs)) == len(macs)


def test_node_numbers() -> None:
    assert cabling.number_of(RING, "spark3") == 3
    with pytest.raises(LabError, match="spark1, spark2, spark3"):
        cabling.number_of(RING, "spark4")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (RING, "up"),
        (cabling.set_cut(RING, "cable1", True), "cut"),
        (cabling.set_power(RING, 1, on=False), "off"),
        (cabling.connect(RING, "spark1:0", "spark2:1", crossed=True), "up, crossed"),
    ],
)
def test_cable_list(state: State, expected: str) -> None:
    row = status.describe(state)[0]
    assert row == {"name": "cable1", "ends": ["spark1:0", "spark2:1"], "state": expected}
    assert status.cables(state).splitlines()[0].split() == ["cable1", "spark1:0", "-", "spark2:1", *expected.split()]


def test_cable_list_shows_a_loose_plug() -> None:
    rows = status.describe(cabling.connect(RING, "spark1:0", "spark2:0", crossed=False))
    assert rows[1] == {"name": "cable2", "ends": ["spark3:1"], "state": "loose"}
