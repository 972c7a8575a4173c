# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import image
from ansible_collections.gb10.ring.plugins.module_utils.fabric import rdma, rdma_user
from ansible_collections.gb10.ring.plugins.module_utils.fabric.checks import Ping
from ansible_collections.gb10.ring.plugins.module_utils.fabric.info import Function
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ladder import Expected, Route, Seen, leg_checks
from ansible_collections.gb10.ring.plugins.module_utils.fabric.links import Link
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import Port, parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check
from ansible_collections.gb10.ring.plugins.module_utils.report.site import memory, odd, site, versions
from ansible_collections.gb10.ring.tests.unit.fixtures import report_site

GIB = 1 << 30


def ends(shown):
    return {(end["node"], end["netdev"]): end for leg in shown["legs"] for end in leg["ends"]}


@pytest.mark.parametrize(("shape", "size"), [("ring", 2), ("ring", 3), ("ring", 8), ("pair", 2), ("switch", 4)])
def test_every_leg_has_what_its_ends_found(shape, size):
    hostvars = report_site.verified(shape, size)
    shown = site(hostvars, reversed(list(hostvars)))
    assert [node["name"] for node in shown["nodes"]] == list(hostvars)
    found = ends(shown)
    assert len(found) == sum(len(values["fabric_ports"]) for values in hostvars.values())
    assert {end["state"] for end in found.values()} == {"ok"}
    assert {end["mtu"] for end in found.values()} == {9000}
    assert {end["gbps"] for end in found.values()} == {92.57, 97.28}


def test_a_fault_is_shown_at_its_end_alone():
    hostvars = report_site.verified()
    # the rails' names end alike: enp1s0f0np0 and enP2p1s0f0np0
    hostvars["spark2"]["fabric_checks"]["checks"] = report_site.fabric_checks(
        "spark2", hostvars["spark2"], {"enp1s0f0np0": 1500}, {"enP2p1s0f1np1": 14.2}
    )
    found = ends(site(hostvars, hostvars))
    bad = {where: end for where, end in found.items() if end["state"] != "ok"}
    assert {where: (end["state"], end["problems"], end["mtu"], end["gbps"]) for where, end in bad.items()} == {
        ("spark2", "enp1s0f0np0"): ("failed", ["fabric.mtu"], 1500, 92.57),
        ("spark2", "enP2p1s0f1np1"): ("failed", ["fabric.bandwidth"], 9000, 14.2),
    }


def failed_legs(shown):
    return {
        tuple(end["node"] for end in leg["ends"])
        for leg in shown["legs"]
        for end in leg["ends"]
        if end["state"] != "ok"
    }


@pytest.mark.parametrize("size", [3, 4])
def test_a_cut_cable_is_shown_at_its_two_ends_alone(size):
    """The far end of a cable has the name of this node's other port."""
    hostvars = report_site.verified("ring", size)
    report_site.cut(hostvars, "spark1", "spark2")
    shown = site(hostvars, hostvars)
    bad = {where: end for where, end in ends(shown).items() if end["state"] != "ok"}
    assert {node for node, _netdev in bad} == {"spark1", "spark2"}
    assert {(end["state"], *end["problems"]) for end in bad.values()} == {("failed", "fabric.carrier", "rdma.state")}
    assert failed_legs(shown) == {("spark1", "spark2")}
    assert len(bad) == 4  # two rails, two ends


def test_a_node_that_is_off_leaves_the_cable_between_the_others_well():
    hostvars = report_site.verified()
    report_site.switch_off(hostvars, "spark3")
    shown = site(hostvars, hostvars)
    states = {(end["node"], end["state"]) for leg in shown["legs"] if leg["cable"] == 1 for end in leg["ends"]}
    assert states == {("spark1", "ok"), ("spark2", "ok")}
    assert all("spark3" in nodes for nodes in failed_legs(shown))
    assert {end["state"] for (node, _netdev), end in ends(shown).items() if node == "spark3"} == {"unknown"}


OTHER_END = "enp1s0f1np1"  # of the cable at enp1s0f0np0, and the node's own other port


def look(port: Port, **changes: Any) -> Seen:
    """Of a healthy leg; changes: of its link, function, route and ping, None: not there."""
    function = Function(
        *(port.port, port.rail, port.netdev),
        present=True,
        rdma_device=port.rdma_device,
        gid_index=3,
        driver="mlx5_core",
        carrier_changes=2,
        speed=200000,
        pcie_speed="32.0 GT/s",
        pcie_width=4,
    )
    held = {
        "links": replace(Link(port.netdev, 9000, True, True, (port.cidr,)), **changes.get("link", {})),
        "functions": replace(function, **changes.get("function", {})),
        "routes": changes.get("route", Route(port.netdev, port.address)),
        "pings": changes.get("ping", Ping(2, 2)),
    }
    return Seen(**{name: {port.netdev: value} for name, value in held.items()})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"function": {"driver": "r8169"}}, "fabric.presence"),
        ({"function": {"master": OTHER_END}}, "fabric.presence"),
        ({"function": {"pcie_width": 1}}, "fabric.pcie"),
        ({"function": {"speed": 100000}}, "fabric.speed"),
        ({"function": {"gid_index": None}}, "fabric.gid"),
        ({"link": {"carrier": False}}, "fabric.carrier"),
        ({"link": {"mtu": 1500}}, "fabric.mtu"),
        ({"link": {"ipv4": ()}}, "fabric.address"),
        ({"route": Route(OTHER_END, "10.100.4.1")}, "fabric.route"),
        ({"ping": Ping(2, 0, f"From 10.100.0.1 by {OTHER_END}: unreachable")}, "fabric.ping"),
    ],
)
def test_a_fault_of_any_kind_is_shown_at_its_own_end(changes, problem):
    hostvars = report_site.verified()
    own = parse_ports(hostvars["spark1"]["fabric_ports"])
    hostvars["spark1"]["fabric_checks"]["checks"] = [
        check.to_dict()
        for port in own
        for check in leg_checks("spark1", port, Expected(9000), look(port, **(changes if port == own[0] else {})))
    ]
    bad = {where: end["problems"] for where, end in ends(site(hostvars, hostvars)).items() if end["state"] != "ok"}
    expected = {"fabric.mtu", "fabric.active_mtu"} if problem == "fabric.mtu" else {problem}
    assert own[0].netdev == "enp1s0f0np0"
    assert list(bad) == [("spark1", own[0].netdev)]
    assert set(bad["spark1", own[0].netdev]) <= expected
    assert problem in bad["spark1", own[0].netdev]


def test_a_device_at_another_port_is_shown_where_it_is_planned():
    hostvars = report_site.verified()
    ports = rdma.ports_from(hostvars["spark1"]["fabric_ports"])
    devices = {port.rdma_device: rdma.Device(port.rdma_device, (port.netdev,), "4: ACTIVE") for port in ports}
    first = ports[0].rdma_device
    devices[first] = replace(devices[first], netdevs=(OTHER_END,))
    found = rdma.checks("spark1", ports, devices, 0)
    hostvars["spark1"]["rdma_checks"] = {"checks": [check.to_dict() for check in found]}
    bad = [where for where, end in ends(site(hostvars, hostvars)).items() if end["state"] != "ok"]
    assert bad == [("spark1", ports[0].netdev)]


@pytest.mark.parametrize(("severity", "state"), [("error", "failed"), ("warning", "warning"), ("info", "ok")])
def test_severity_makes_the_state(severity, state):
    hostvars = report_site.verified()
    bad = Check("fabric.flaps", "spark1", False, "30 changes", "20", "", severity, netdevs=("enp1s0f0np0",))
    hostvars["spark1"]["fabric_checks"]["checks"].append(bad.to_dict())
    assert ends(site(hostvars, hostvars))["spark1", "enp1s0f0np0"]["state"] == state


def test_what_was_not_looked_at_is_not_known():
    shown = site(report_site.planned(), ["spark1", "spark2", "spark3"])
    assert {(end["state"], end["mtu"], end["gbps"]) for end in ends(shown).values()} == {("unknown", None, None)}
    assert {(node["disk"], node["memory"], node["engram"]) for node in shown["nodes"]} == {(None, None, None)}
    assert shown["versions"] == []


def test_a_part_of_the_ring_has_no_legs_but_its_nodes():
    hostvars = report_site.verified()
    shown = site(hostvars, ["spark2"])
    assert (shown["shape"], shown["legs"]) == ("", [])
    assert [node["name"] for node in shown["nodes"]] == ["spark2"]


def test_the_ceiling_is_that_of_the_check():
    disk = site(report_site.verified(), ["spark1", "spark2", "spark3"])["nodes"][0]["disk"]
    assert (disk["size"], disk["used"], disk["ceiling"]) == (4000 * 10**9, 1300 * 10**9, 3400 * 10**9)
    assert [(one["revision"], one["active"]) for one in disk["revisions"]] == [
        ("6d2f1f7a3c0b9e55", True),
        ("95f6c5b5a4e8275a", False),
    ]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"preflight_checks": {"facts": {}}}, None),
        (
            {"preflight_checks": {"facts": {"memtotal_kib": 1024}}},
            {"total": 1 << 20, "available": None, "weights": None, "kv": None},
        ),
        (
            {"engine_gate_checks": {"memory": {"total": 128 * GIB, "available": 9 * GIB, "weights": None, "kv": GIB}}},
            {"total": 128 * GIB, "available": 9 * GIB, "weights": None, "kv": GIB},
        ),
    ],
)
def test_memory_is_what_is_known_of_it(variables, expected):
    assert memory(variables) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"a": "1", "b": "1", "c": "1"}, []),
        ({"a": "1", "b": "2", "c": "1"}, ["b"]),
        ({"a": "1", "b": "2"}, ["a", "b"]),
        ({"a": "1", "b": "2", "c": "3"}, ["a", "b", "c"]),
        ({"a": "1", "b": "1", "c": "2", "d": "2", "e": "1"}, ["c", "d"]),
        ({"a": "1"}, []),
        ({}, []),
    ],
)
def test_the_odd_one_out(values, expected):
    assert odd(values) == expected


def test_versions_leave_out_what_a_node_did_not_tell():
    assert versions({"a": {"kernel": "1"}, "b": {"kernel": "2", "driver": "x"}, "c": {"kernel": "2"}}) == [
        {"name": "kernel", "values": {"a": "1", "b": "2", "c": "2"}, "odd": ["a"]},
        {"name": "driver", "values": {"b": "x"}, "odd": []},
    ]


def test_versions_of_a_whole_group():
    hostvars = report_site.verified()
    hostvars["spark3"]["preflight_checks"]["facts"] = report_site.facts(kernel="6.17.0-1026-nvidia")
    shown = {row["name"]: row for row in site(hostvars, hostvars)["versions"]}
    assert shown["kernel"]["odd"] == ["spark3"]
    assert shown["ConnectX firmware"]["values"]["spark1"] == "28.45.4028"
    assert {"NVIDIA driver", "checkpoint revision"} <= set(shown)


def test_an_odd_image_and_an_odd_nccl_are_marked():
    """Each is a check, too; the table shows what the others have."""
    hostvars, right, other = report_site.verified(), f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
    wanted = image.Wanted("docker", "vllm:tp3", right)
    ports = [{**values, "name": name} for name, values in hostvars.items()]
    looks = {
        name: {
            "images": {right: 9},
            "unit_image": other if name == "spark2" else right,
            "disk": {"size": 9, "available": 9},
        }
        for name in hostvars
    }
    nodes = image.nodes_of([{**row, "look": looks[row["name"]]} for row in ports])
    for check in image.checks(wanted, nodes):
        hostvars[check.node]["engine_checks"]["checks"].append(check.to_dict())
        library = rdma_user.nccl_check(check.node, "in image", [], subnet_aware=False)
        hostvars[check.node]["rdma_checks"] = {"checks": [library.to_dict()]}
    hostvars["spark3"]["engine_gate_checks"]["versions"] = {"engine": "0.32.0", "nccl": "2.28.9"}
    shown = {row["name"]: row for row in site(hostvars, hostvars)["versions"]}
    assert shown["engine image"]["values"] == {
        "spark1": "sha256:111111111111",
        "spark2": "its unit runs sha256:222222222222",
        "spark3": "sha256:111111111111",
    }
    assert shown["engine image"]["odd"] == ["spark2"]
    assert shown["NCCL in use"]["odd"] == ["spark3"]
    assert (shown["engine"]["values"]["spark1"], shown["engine"]["odd"]) == ("0.32.0", [])
    assert shown["NCCL library"]["values"]["spark1"] == "no libnccl.so in image"
