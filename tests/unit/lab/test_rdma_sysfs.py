# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.lab.node import rdma_sysfs
from ansible_collections.gb10.ring.lab.node.rdma_sysfs import DEVICES, EMPTY_GID, GidTable, Netdev

MAC = "4c:bb:47:01:00:00"
DEFAULT = "fe80:0000:0000:0000:4ebb:47ff:fe01:0000"
V1, V2 = "IB/RoCE v1", "RoCE v2"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("198.19.0.1", "0000:0000:0000:0000:0000:ffff:c613:0001"),
        ("10.100.2.254", "0000:0000:0000:0000:0000:ffff:0a64:02fe"),
        ("fe80::1", "fe80:0000:0000:0000:0000:0000:0000:0001"),
    ],
)
def test_gid_of_an_address(address: str, expected: str) -> None:
    assert rdma_sysfs.gid_of(address) == expected


def test_names_made_from_a_mac() -> None:
    assert rdma_sysfs.link_local(MAC) == DEFAULT
    assert rdma_sysfs.guid(MAC) == "4cbb:4703:0001:0000"
    assert rdma_sysfs.guid(MAC, 5) == "4cbb:4703:0001:0005"


def table(*steps: tuple[str, ...]) -> list[tuple[str, str]]:
    made = GidTable(DEFAULT)
    for addresses in steps:
        made.update(addresses)
    return made.entries()


def kinds(entries: list[tuple[str, str]], address: str) -> list[tuple[int, str]]:
    gid = rdma_sysfs.gid_of(address)
    return [(index, kind) for index, (found, kind) in enumerate(entries) if found == gid]


def test_an_empty_table_has_the_default_gid_twice() -> None:
    entries = table()
    assert entries[:2] == [(DEFAULT, V1), (DEFAULT, V2)]
    assert entries[2:] == [(EMPTY_GID, "")] * 14


@pytest.mark.parametrize(
    ("steps", "address", "expected"),
    [
        ([("10.0.0.1",)], "10.0.0.1", [(2, V1), (3, V2)]),
        ([("10.0.0.1", "10.0.0.2")], "10.0.0.2", [(4, V1), (5, V2)]),
        ([("fe80::1", "10.0.0.1")], "10.0.0.1", [(4, V1), (5, V2)]),
        ([(DEFAULT, "10.0.0.1")], "10.0.0.1", [(2, V1), (3, V2)]),
        ([("10.0.0.1",), ("10.0.0.2", "10.0.0.1")], "10.0.0.1", [(2, V1), (3, V2)]),
        ([("10.0.0.1", "10.0.0.2"), ("10.0.0.2",)], "10.0.0.2", [(4, V1), (5, V2)]),
        ([("10.0.0.1", "10.0.0.2"), ("10.0.0.2",), ("10.0.0.2", "10.0.0.3")], "10.0.0.3", [(2, V1), (3, V2)]),
        ([("10.0.0.1",), ()], "10.0.0.1", []),
    ],
)
def test_indices_follow_the_order_of_arrival(
    steps: list[tuple[str, ...]], address: str, expected: list[tuple[int, str]]
) -> None:
    assert kinds(table(*steps), address) == expected


def test_a_full_table_takes_no_more() -> None:
    addresses = tuple(f"10.0.0.{number}" for number in range(1, 12))
    entries = table(addresses)
    assert len(entries) == 16
    assert kinds(entries, "10.0.0.7") == [(14, V1), (15, V2)]
    assert kinds(entries, "10.0.0.8") == []


@pytest.mark.parametrize(
    ("carrier", "state", "phys_state", "rate"),
    [
        (True, "4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)"),
        (False, "1: DOWN", "3: Disabled", "40 Gb/sec (4X QDR)"),
    ],
)
def test_the_port_follows_the_carrier(carrier: bool, state: str, phys_state: str, rate: str) -> None:
    files = rdma_sysfs.port_files("enp1s0f0np0", Netdev(MAC, carrier, ()), GidTable(DEFAULT))
    assert (files["state"], files["phys_state"], files["rate"]) == (state, phys_state, rate)
    assert files["gid_attrs/ndevs/0"] == "enp1s0f0np0"
    assert files["gid_attrs/types/2"] == files["gid_attrs/ndevs/2"] == ""


def test_one_machine_has_one_image_guid_and_four_node_guids() -> None:
    fixed = [rdma_sysfs.fixed_files(device, MAC) for device in DEVICES]
    assert {files["sys_image_guid"] for files in fixed} == {"4cbb:4703:0001:0000"}
    assert len({files["node_guid"] for files in fixed}) == 4


def test_netdevs_as_ip_prints_them() -> None:
    printed = [
        {
            "ifname": "lo",
            "flags": ["LOOPBACK", "UP", "LOWER_UP"],
            "addr_info": [{"family": "inet", "local": "127.0.0.1"}],
        },
        {
            "ifname": "a",
            "flags": ["BROADCAST", "UP", "LOWER_UP"],
            "address": MAC,
            "addr_info": [{}, {"local": "10.0.0.1"}],
        },
        {"ifname": "b", "flags": ["NO-CARRIER", "BROADCAST", "UP"], "address": MAC, "addr_info": []},
        {"ifname": "c", "flags": ["BROADCAST"], "address": MAC},
    ]
    found = rdma_sysfs.read_netdevs(printed)
    assert found["a"] == Netdev(MAC, True, ("10.0.0.1",))
    assert found["b"] == Netdev(MAC, False, ())
    assert found["c"].carrier is False
