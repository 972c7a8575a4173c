# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which function is which, on the machines of fixtures/sysfs_trees and in tables."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.info import (
    Function,
    Netdev,
    Snapshot,
    firmware_of,
    functions,
    machine_guid,
    physical_port,
    rail_of,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.links import parse_links
from ansible_collections.gb10.ring.plugins.module_utils.fabric.rdma import Port, ports_from
from ansible_collections.gb10.ring.plugins.module_utils.fabric.sysfs import snapshot
from ansible_collections.gb10.ring.tests.unit.fixtures import sysfs
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

PLAN = ports_from(PORTS)
TWO = ["0000", "0002"]


def look(root, name, planned=()):
    links = parse_links(json.dumps(sysfs.machine(root, name)))
    return functions(snapshot(root, [port.netdev for port in planned]), links, planned)


def table(found, *names):
    return [tuple(getattr(function, name) for name in names) for function in found]


def test_a_dgx_spark(tmp_path):
    found = look(tmp_path, "dgx-spark")
    assert table(found, "port", "rail", "netdev", "rdma_device", "pci_address", "ipv4") == [
        (0, 0, "enp1s0f0np0", "rocep1s0f0", "0000:01:00.0", ("10.100.0.1/24",)),
        (0, 1, "enP2p1s0f0np0", "roceP2p1s0f0", "0002:01:00.0", ("10.100.1.1/24",)),
        (1, 0, "enp1s0f1np1", "rocep1s0f1", "0000:01:00.1", ("10.100.4.1/24",)),
        (1, 1, "enP2p1s0f1np1", "roceP2p1s0f1", "0002:01:00.1", ("10.100.5.1/24",)),
    ]
    assert set(
        table(found, "driver", "speed", "mtu", "pcie_speed", "pcie_width", "carrier", "carrier_changes", "gid_index")
    ) == {("mlx5_core", 200000, 9000, "32.0 GT/s", 4, True, 2, 3)}
    assert all(function.present and function.active and not function.planned for function in found)
    assert machine_guid(found) == sysfs.SYS_IMAGE_GUID
    assert firmware_of(found) == [sysfs.FIRMWARE]


def test_one_cable_out(tmp_path):
    found = look(tmp_path, "one-cable-out", PLAN)
    assert table(found, "port", "carrier", "speed", "rdma_state", "gid_index", "active") == [
        *[(0, True, 200000, "4: ACTIVE", 3, True)] * 2,
        *[(1, False, None, "1: DOWN", None, False)] * 2,
    ]
    assert all(function.present and function.planned for function in found)


@pytest.mark.parametrize(
    ("planned", "netdevs"), [((), {""}), (PLAN, {port["netdev"] for port in PORTS})], ids=["no plan", "plan"]
)
def test_ports_that_hot_plug_has_powered_off_are_absent(tmp_path, planned, netdevs):
    found = look(tmp_path, "hotplug-off", planned)
    assert [(function.port, function.rail) for function in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert not any(function.present for function in found)
    assert {function.netdev for function in found} == netdevs
    assert (machine_guid(found), firmware_of(found)) == ("", [])


def test_renamed_netdevs_are_known_by_their_port_name(tmp_path):
    assert table(look(tmp_path, "renamed"), "port", "rail", "netdev", "rdma_device") == [
        (0, 0, "cable-b", "mlx5_0"),
        (0, 1, "cable-d", "mlx5_2"),
        (1, 0, "cable-a", "mlx5_1"),
        (1, 1, "cable-c", "mlx5_3"),
    ]


def test_a_plan_with_other_names_leaves_its_own_absent_beside_them(tmp_path):
    found = look(tmp_path, "renamed", PLAN)
    assert {(function.netdev, function.present) for function in found if function.planned} == {
        (port["netdev"], False) for port in PORTS
    }
    assert len([function for function in found if function.present]) == 4


def test_bonded_twins_have_no_address_and_no_gid_of_their_own(tmp_path):
    found = look(tmp_path, "bonded", PLAN)
    assert table(found, "port", "master", "ipv4", "gid_index") == [
        *[(0, "bond0", (), None)] * 2,
        (1, "", ("10.100.4.1/24",), 3),
        (1, "", ("10.100.5.1/24",), 3),
    ]


def test_a_virtual_machine_has_no_connectx_but_what_the_plan_names(tmp_path):
    assert not any(function.present for function in look(tmp_path, "vm"))
    first, *rest = look(tmp_path, "vm", PLAN)
    assert (first.netdev, first.present, first.driver, first.rdma_device) == ("enp1s0f0np0", True, "virtio_net", "")
    assert (first.pci_address, first.pcie_speed, first.speed, first.ipv4) == (
        "0000:00:04.0",
        "",
        None,
        ("10.100.0.1/24",),
    )
    assert not any(function.present for function in rest)


@pytest.mark.parametrize(
    ("name", "phys_port_name", "planned", "port"),
    [
        ("enp1s0f0np0", "p0", None, 0),
        ("cable-a", "p1", None, 1),
        ("enp1s0f0np0", "p1", None, 1),  # a name that lies
        ("cable-a", "c1p1", None, 1),
        ("enP2p1s0f1np1", "", None, 1),
        ("eth4", "", None, None),
        ("eth4", "", 1, 1),
        ("enp1s0f0npf0vf1", "pf0vf1", None, None),  # a virtual function's representor
    ],
)
def test_physical_port(name, phys_port_name, planned, port):
    plan = None if planned is None else Port(planned, 0, name, "", "10.100.0.1")
    assert physical_port(Netdev(name, phys_port_name), plan) == port


@pytest.mark.parametrize(
    ("name", "pci", "domains", "planned", "rail"),
    [
        ("enp1s0f0np0", "0000:01:00.0", TWO, None, 0),
        ("cable-a", "0002:01:00.0", TWO, None, 1),
        ("enp1s0f0np0", "0002:01:00.0", TWO, None, 1),  # a name that lies
        ("enP2p1s0f1np1", "0000:00:04.0", ["0000"], None, 1),  # in a virtual machine all are in one domain
        ("enp1s0f1np1", "", [], None, 0),
        ("cable-a", "", [], 1, 1),
        ("cable-a", "0002:01:00.0", ["0002"], None, 1),
        ("cable-a", "0000:01:00.0", ["0000"], None, 0),
        ("cable-a", "", [], None, None),
    ],
)
def test_rail(name, pci, domains, planned, rail):
    plan = None if planned is None else Port(0, planned, name, "", "10.100.0.1")
    assert rail_of(Netdev(name, pci_address=pci), domains, plan) == rail


def test_a_netdev_of_unknown_port_comes_last_and_takes_no_place():
    odd = Netdev("eth4", driver="mlx5_core", pci_address="0000:01:00.0")
    found = functions(Snapshot({"eth4": odd}), {}, ())
    assert [(function.port, function.rail) for function in found] == [(0, 0), (0, 1), (1, 0), (1, 1), (None, 0)]
    assert found[-1].netdev == "eth4"


def test_the_gid_of_the_planned_address_counts(tmp_path):
    sysfs.function(tmp_path, "enp1s0f0np0", "0000:01:00.0", rdma="rocep1s0f0", gids=("192.168.0.1", "10.100.0.1"))
    links = parse_links(json.dumps([sysfs.link("enp1s0f0np0", ("192.168.0.1", "10.100.0.1"))]))
    seen = snapshot(tmp_path)
    assert [functions(seen, links, planned)[0].gid_index for planned in ((), PLAN)] == [3, 5]


def test_to_dict_is_plain_data():
    assert json.loads(json.dumps(Function(0, 1, ipv4=("10.100.0.1/24",)).to_dict()))["ipv4"] == ["10.100.0.1/24"]
