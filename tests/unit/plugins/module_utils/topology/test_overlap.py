# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Legs against what ``ip -j -4 addr`` and ``ip -j -4 route show table all`` tell of a machine."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan import render
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import Port
from ansible_collections.gb10.ring.plugins.module_utils.topology.overlap import (
    overlap,
    own_netdevs,
    parse_held,
    planned_legs,
)

ENDS = [{"node": "spark1", "port": 0}, {"node": "spark2", "port": 1}]
LEGS = planned_legs(
    [{"subnet": f"10.100.{number}.0/24", "rail": number % 2, "ends": ENDS} for number in range(6)],
)
LINKS = [
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {"ifname": "enP7s7", "addr_info": [{"family": "inet", "local": "192.0.2.11", "prefixlen": 24}]},
    {"ifname": "enp1s0f0np0", "addr_info": [{"family": "inet", "local": "10.100.0.1", "prefixlen": 24}]},
    {"ifname": "enp1s0f1np1", "addr_info": []},
    {},
]
ROUTES = [
    {"dst": "default", "gateway": "192.0.2.1", "dev": "enP7s7", "protocol": "dhcp", "flags": []},
    {
        "dst": "10.100.0.0/24",
        "dev": "enp1s0f0np0",
        "protocol": "kernel",
        "scope": "link",
        "prefsrc": "10.100.0.1",
        "flags": [],
    },
    {
        "dst": "192.0.2.0/24",
        "dev": "enP7s7",
        "protocol": "kernel",
        "scope": "link",
        "prefsrc": "192.0.2.11",
        "flags": [],
    },
    {"type": "local", "dst": "10.100.0.1", "dev": "enp1s0f0np0", "table": "local", "protocol": "kernel", "flags": []},
    {
        "type": "broadcast",
        "dst": "10.100.0.255",
        "dev": "enp1s0f0np0",
        "table": "local",
        "protocol": "kernel",
        "flags": [],
    },
]
OWN = {"enp1s0f0np0", "enp1s0f1np1"}


def address(netdev: str, local: str, prefix: int) -> dict:
    return {"ifname": netdev, "addr_info": [{"family": "inet", "local": local, "prefixlen": prefix}]}


def test_the_planned_addresses_themselves_are_no_overlap():
    check = overlap("spark1", parse_held(LINKS, ROUTES), LEGS, OWN)
    assert (check.id, check.node, check.ok, check.found) == ("preflight.overlap", "spark1", True, "none")
    assert check.expected == "no other address or route in the fabric's 6 subnets"


@pytest.mark.parametrize(
    ("links", "routes", "found"),
    [
        pytest.param(
            [address("docker0", "10.100.3.1", 24)],
            [{"dst": "10.100.3.0/24", "dev": "docker0", "protocol": "kernel", "flags": ["linkdown"]}],
            "10.100.3.1/24 on docker0 overlaps 10.100.3.0/24 (spark1:0 - spark2:1 rail 1)",
            id="a bridge in a leg, told once",
        ),
        pytest.param(
            [address("lo", "10.100.5.200", 32)],
            [],
            "10.100.5.200/32 on lo overlaps 10.100.5.0/24 (spark1:0 - spark2:1 rail 1)",
            id="a host address",
        ),
        pytest.param(
            [],
            [{"dst": "10.100.4.7", "dev": "wlP9s9", "flags": []}],
            "route 10.100.4.7 by wlP9s9 overlaps 10.100.4.0/24 (spark1:0 - spark2:1 rail 0)",
            id="a route to one host",
        ),
        pytest.param(
            [],
            [{"dst": "10.0.0.0/8", "dev": "tailscale0", "table": "52", "flags": []}],
            "route 10.0.0.0/8 by tailscale0 overlaps 10.100.0.0/24 (spark1:0 - spark2:1 rail 0), 10.100.1.0/24 "
            "(spark1:0 - spark2:1 rail 1), 10.100.2.0/24 (spark1:0 - spark2:1 rail 0) and 3 more",
            id="a wide route of another table",
        ),
        pytest.param(
            [],
            [{"type": "unreachable", "dst": "10.100.0.0/23", "flags": []}],
            "route 10.100.0.0/23 (unreachable) overlaps 10.100.0.0/24 (spark1:0 - spark2:1 rail 0), 10.100.1.0/24 "
            "(spark1:0 - spark2:1 rail 1)",
            id="a route that leads nowhere",
        ),
        pytest.param(
            [],
            [{"dst": "10.100.0.0/24", "flags": [], "nexthops": [{"dev": "enp1s0f0np0"}, {"dev": "eth1"}]}],
            "route 10.100.0.0/24 by enp1s0f0np0, eth1 overlaps 10.100.0.0/24 (spark1:0 - spark2:1 rail 0)",
            id="a route of which one way is another netdev",
        ),
        pytest.param(
            [address("bond0", "10.100.0.5", 24), address("br0", "10.100.1.5", 24)],
            [],
            "10.100.0.5/24 on bond0 overlaps 10.100.0.0/24 (spark1:0 - spark2:1 rail 0); "
            "10.100.1.5/24 on br0 overlaps 10.100.1.0/24 (spark1:0 - spark2:1 rail 1)",
            id="all of them together",
        ),
    ],
)
def test_overlap(links, routes, found):
    check = overlap("spark1", parse_held([*LINKS, *links], [*ROUTES, *routes]), LEGS, OWN)
    assert (check.ok, check.severity, check.found) == (False, "error", found)
    assert "supernet" in check.cure


def test_a_route_by_own_netdevs_is_of_an_earlier_plan():
    routes = [{"dst": "10.100.5.0/24", "dev": "enp1s0f1np1", "flags": []}]
    assert overlap("spark1", parse_held(LINKS, routes), LEGS, OWN).ok


def test_a_fabric_netdev_that_is_not_in_the_plan_is_another_one():
    check = overlap("spark1", parse_held(LINKS, ROUTES), LEGS, {"enp1s0f1np1"})
    assert check.found == "10.100.0.1/24 on enp1s0f0np0 overlaps 10.100.0.0/24 (spark1:0 - spark2:1 rail 0)"


def test_what_could_not_be_read_is_no_pass():
    check = overlap("spark1", None, LEGS, OWN)
    assert (check.ok, check.found) == (False, "addresses and routes unknown, since ip (iproute2) could not be run")


def test_a_leg_of_a_switch_has_a_label():
    (leg,) = planned_legs([{"subnet": "10.100.0.0/24", "rail": 0, "ends": [*ENDS, {"node": "spark3", "port": 1}]}])
    assert (leg.label, leg.subnet) == ("switch rail 0", IPv4Network("10.100.0.0/24"))


def test_own_netdevs_are_those_of_the_file_that_we_write():
    names = ("enp1s0f0np0", "enP2p1s0f0np0")
    ports = [
        Port(0, rail, name, f"10.100.{rail}.1", 24, f"10.100.{rail}.0/24", "b", "x", f"10.100.{rail}.2")
        for rail, name in enumerate(names)
    ]
    assert own_netdevs(render(ports, 9000)) == set(names)
    assert own_netdevs(render(ports, 9000, namings={names[1]: {"macaddress": "4c:bb:47:01:00:00"}})) == set(names)
    assert own_netdevs("") == frozenset()
