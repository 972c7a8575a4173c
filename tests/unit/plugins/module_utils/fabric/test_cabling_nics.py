# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import cabling_nics
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_nics import Nic
from ansible_collections.gb10.ring.plugins.module_utils.fabric.info import Function
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures import sysfs

SPARK = (
    Nic(0, 0, "enp1s0f0np0"),
    Nic(0, 1, "enP2p1s0f0np0"),
    Nic(1, 0, "enp1s0f1np1"),
    Nic(1, 1, "enP2p1s0f1np1"),
)
DEVICES = ("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1")
MACHINE_NAME = ("ba7816bf8f01cfea", "machine-id")  # of the machine id abc


@pytest.fixture(autouse=True)
def machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "machine-id"
    path.write_text("abc\n", encoding="ascii")
    monkeypatch.setattr(cabling_nics, "MACHINE_ID", path)
    return path


@pytest.mark.parametrize(
    ("tree", "nics", "devices"),
    [
        ("dgx-spark", SPARK, DEVICES),
        ("one-cable-out", SPARK, DEVICES),
        (
            "renamed",
            (Nic(0, 0, "cable-b"), Nic(0, 1, "cable-d"), Nic(1, 0, "cable-a"), Nic(1, 1, "cable-c")),
            ("mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"),
        ),
    ],
)
def test_the_netdevs_of_recorded_machines(tmp_path: Path, tree: str, nics: tuple[Nic, ...], devices: object) -> None:
    sysfs.machine(tmp_path, tree)
    found = cabling_nics.read_fabric(tmp_path, [])
    assert found.nics == nics
    assert (found.machine, found.source) == (sysfs.SYS_IMAGE_GUID, "sys_image_guid")
    assert tuple(found.rdma_devices[nic.netdev] for nic in nics) == devices


def test_two_netdevs_at_one_place_that_nobody_planned() -> None:
    functions = [Function(0, 0, name, present=True) for name in "ab"]
    with pytest.raises(ValueError, match="port 0, rail 0 has the netdevs a, b, expected one"):
        cabling_nics.chosen([], functions)
    assert cabling_nics.chosen([{"port": 0, "rail": 0, "netdev": "b"}], functions) == (Nic(0, 0, "b"),)


def test_absent_functions_and_those_of_no_port_are_left_out() -> None:
    assert (
        cabling_nics.chosen([], [Function(0, 0), Function(None, 0, "e", present=True), Function(4, 0, "f", True)]) == ()
    )


def test_planned_netdevs_come_first_and_the_other_ports_are_added() -> None:
    planned = [
        {"port": 0, "rail": 0, "netdev": "mine0", "peer": "x"},
        {"port": 0, "rail": 1, "netdev": "enP2p1s0f0np0"},
    ]
    functions = [Function(nic.port, nic.rail, nic.netdev, present=True) for nic in SPARK]
    assert cabling_nics.chosen(planned, functions) == (Nic(0, 0, "mine0"), SPARK[1], SPARK[2], SPARK[3])


@pytest.mark.parametrize(
    ("guids", "machine_id", "expected"),
    [
        (["4cbb:4703:0001:0000"] * 4, "abc", ("4cbb:4703:0001:0000", "sys_image_guid")),
        (["ffff:0", "1111:0"], "", ("1111:0", "sys_image_guid")),
        (["0000:0000:0000:0000", ""], "abc", MACHINE_NAME),
    ],
)
def test_machine_names(guids: list[str], machine_id: str, expected: tuple[str, str]) -> None:
    assert cabling_nics.machine_key(guids, machine_id) == expected


def test_a_machine_without_a_name() -> None:
    with pytest.raises(ValueError, match="systemd-machine-id-setup"):
        cabling_nics.machine_key([], "")


@pytest.mark.parametrize("tree", ["hotplug-off", "vm"])
def test_a_machine_without_fabric_netdevs(tmp_path: Path, tree: str) -> None:
    sysfs.machine(tmp_path, tree)
    with pytest.raises(HostError, match=r"driver mlx5_core.*plug in a cable"):
        cabling_nics.read_fabric(tmp_path, [])


def test_ports_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"ports: .*netdev"):
        cabling_nics.read_fabric(tmp_path, [{"port": 0, "rail": 0}])


def test_the_machine_id_stands_in_for_a_guid(tmp_path: Path, machine_id: Path) -> None:
    planned = [{"port": 0, "rail": 0, "netdev": "eth0"}]
    found = cabling_nics.read_fabric(tmp_path, planned)
    assert (found.nics, found.machine, found.source) == ((Nic(0, 0, "eth0"),), *MACHINE_NAME)
    machine_id.unlink()
    with pytest.raises(HostError, match="has no name"):
        cabling_nics.read_fabric(tmp_path, planned)


def test_addresses_of_this_machine_leave_the_loopback_out() -> None:
    assert "lo" not in cabling_nics.read_addresses()
