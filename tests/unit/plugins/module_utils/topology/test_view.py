# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan put together again from the variables of its hosts, and its table."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import host_variables, legs
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology
from ansible_collections.gb10.ring.plugins.module_utils.topology.view import ViewError, fabric_legs, fabric_view, rows

ALL_SHAPES = [("ring", size) for size in range(2, 9)] + [("pair", 2)] + [("switch", size) for size in range(2, 9)]


def planned(shape: str, size: int, **more: object):
    nodes = [{"name": f"spark{i}", "management_address": f"192.0.2.{10 + i}"} for i in range(1, size + 1)]
    return parse_topology({"plugin": "gb10.ring.topology", "shape": shape, "nodes": nodes, **more})


@pytest.mark.parametrize(("shape", "size"), ALL_SHAPES)
def test_the_view_is_the_plan_that_the_variables_came_from(shape, size):
    topology = planned(shape, size)
    hostvars = host_variables(topology)
    view = fabric_view(hostvars, reversed(list(hostvars)))
    assert (view.shape, view.mtu) == (shape, 9000)
    assert [(node.name, node.rank) for node in view.nodes] == [(f"spark{r + 1}", r) for r in range(size)]
    names = list(hostvars)
    assert [(leg.cable, leg.rail, leg.subnet) for leg in view.legs] == [
        (1 + leg.index // 2, leg.index % 2, str(leg.subnet)) for leg in legs(topology)
    ]
    assert [[(end.node, end.port, end.netdev, end.address) for end in leg.ends] for leg in view.legs] == [
        [(names[end.rank], end.port, end.netdev, str(end.address)) for end in leg.ends] for leg in legs(topology)
    ]


def test_legs_as_plain_data():
    hostvars = host_variables(planned("pair", 2))
    assert fabric_legs(hostvars, ["spark1", "spark2"])[1] == {
        "cable": 1,
        "rail": 1,
        "subnet": "10.100.1.0/24",
        "ends": [
            {"node": "spark1", "port": 0, "netdev": "enP2p1s0f0np0", "address": "10.100.1.1"},
            {"node": "spark2", "port": 0, "netdev": "enP2p1s0f0np0", "address": "10.100.1.2"},
        ],
    }


def test_a_row_a_leg():
    hostvars = host_variables(planned("ring", 3))
    table = rows(fabric_view(hostvars, hostvars))
    assert [(row["cable"], row["rail"], row["end"], row["other end"]) for row in table] == [
        (cable, rail, one, other)
        for cable, (one, other) in enumerate(
            [("spark1:0", "spark2:1"), ("spark2:0", "spark3:1"), ("spark3:0", "spark1:1")], 1
        )
        for rail in (0, 1)
    ]
    assert table[5] == {
        "cable": 3,
        "rail": 1,
        "subnet": "10.100.5.0/24",
        "end": "spark3:0",
        "netdev": "enP2p1s0f0np0",
        "address": "10.100.5.3",
        "other end": "spark1:1",
        "its netdev": "enP2p1s0f1np1",
        "its address": "10.100.5.1",
    }


def test_a_row_a_netdev_on_a_switch():
    hostvars = host_variables(planned("switch", 3))
    assert [
        (r["cable"], r["rail"], r["end"], r["address"], r["other end"]) for r in rows(fabric_view(hostvars, hostvars))
    ] == [
        (number, rail, f"spark{number}:1", f"10.100.{rail}.{number}", "switch")
        for rail in (0, 1)
        for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.clear(), "no hosts; the group ring of a topology file (plugin gb10.ring.topology) is expected"),
        (
            lambda v: [v["spark2"].pop(name) for name in ("ring_rank", "fabric_ports")],
            "spark2: no fabric_ports, ring_rank; list the node in the topology file (plugin gb10.ring.topology)",
        ),
        (
            lambda v: v.pop("spark3"),
            "subnet 10.100.4.0/24 is planned at spark1:1; two ends are expected in shape ring",
        ),
    ],
)
def test_variables_that_are_not_of_one_plan(change, message):
    hostvars = host_variables(planned("ring", 3))
    change(hostvars)
    with pytest.raises(ViewError) as caught:
        fabric_view(hostvars, list(hostvars))
    assert str(caught.value) == message
