# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import cabling_nics
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_nics import Function, Nic
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPARK = (
    Nic(0, 0, "enp1s0f0np0"),
    Nic(0, 1, "enP2p1s0f0np0"),
    Nic(1, 0, "enp1s0f1np1"),
    Nic(1, 1, "enP2p1s0f1np1"),
)
PCI = {
    "enp1s0f0np0": "0000:01:00.0",
    "enp1s0f1np1": "0000:01:00.1",
    "enP2p1s0f0np0": "0002:01:00.0",
    "enP2p1s0f1np1": "0002:01:00.1",
}


def functions(names: dict[str, str], port_names: bool = True) -> list[Function]:
    ports = {pci: f"p{pci[-1]}" if port_names else "" for pci in names.values()}
    return [Function(netdev, pci, ports[pci]) for netdev, pci in names.items()]


@pytest.mark.parametrize("port_names", [True, False])
def test_the_four_functions_of_a_dgx_spark(port_names: bool) -> None:
    assert cabling_nics.numbered(functions(PCI, port_names)) == SPARK


def test_renamed_netdevs_are_known_by_the_kernels_port_name() -> None:
    found = cabling_nics.numbered(
        functions({"left1": "0002:01:00.0", "left0": "0000:01:00.0", "right0": "0000:01:00.1"})
    )
    assert found == (Nic(0, 0, "left0"), Nic(0, 1, "left1"), Nic(1, 0, "right0"))


def test_a_function_without_a_port_is_left_out() -> None:
    assert cabling_nics.numbered([Function("eth5", "0000:05:00.0", "pf0vf1")]) == ()


def test_more_functions_than_a_port_has() -> None:
    with pytest.raises(ValueError, match="port 0 has the netdevs a, b, c, expected two"):
        cabling_nics.numbered([Function(name, f"000{name}", "p0") for name in "abc"])


def test_planned_netdevs_come_first_and_the_other_ports_are_added() -> None:
    planned = [
        {"port": 0, "rail": 0, "netdev": "mine0", "peer": "x"},
        {"port": 0, "rail": 1, "netdev": "enP2p1s0f0np0"},
    ]
    chosen = cabling_nics.chosen(planned, SPARK)
    assert chosen == (Nic(0, 0, "mine0"), SPARK[1], SPARK[2], SPARK[3])


@pytest.mark.parametrize(
    ("guids", "machine_id", "expected"),
    [
        (["4cbb:4703:0001:0000"] * 4, "abc", ("4cbb:4703:0001:0000", "sys_image_guid")),
        (["ffff:0", "1111:0"], None, ("1111:0", "sys_image_guid")),
        (["0000:0000:0000:0000", ""], "abc", ("ba7816bf8f01cfea", "machine-id")),
    ],
)
def test_machine_names(guids: list[str], machine_id: str | None, expected: tuple[str, str]) -> None:
    assert cabling_nics.machine_key(guids, machine_id) == expected


def test_a_machine_without_a_name() -> None:
    with pytest.raises(ValueError, match="systemd-machine-id-setup"):
        cabling_nics.machine_key([], "")


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """The four functions, a Realtek netdev and a virtual function."""
    root = tmp_path / "sys"
    devices = {**PCI, "enP7s7": "0007:01:00.0", "enp1s0f0v0": "0000:01:00.2", "lo": ""}
    for netdev, pci in devices.items():
        entry = root / "class/net" / netdev
        entry.mkdir(parents=True)
        if not pci:
            continue
        device = root / "devices" / pci
        driver = root / "bus/pci/drivers" / ("r8127" if netdev == "enP7s7" else "mlx5_core")
        device.mkdir(parents=True)
        driver.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(driver)
        (entry / "device").symlink_to(device)
        if netdev in PCI:
            (entry / "phys_port_name").write_text(f"p{pci[-1]}\n", encoding="ascii")
            rdma = device / "infiniband" / netdev.replace("en", "roce").split("np", maxsplit=1)[0]
            rdma.mkdir(parents=True)
            (rdma / "sys_image_guid").write_text("4cbb:4703:0001:0000\n", encoding="ascii")
    (root / "devices/0000:01:00.2/physfn").symlink_to(root / "devices/0000:01:00.0")
    return root


def test_physical_functions_of_connectx_are_read_from_sysfs(sysfs: Path) -> None:
    assert cabling_nics.read_nics(sysfs, []) == SPARK
    assert cabling_nics.read_machine(sysfs, [nic.netdev for nic in SPARK]) == ("4cbb:4703:0001:0000", "sys_image_guid")
    assert cabling_nics.read_rdma_device(sysfs, "enP2p1s0f1np1") == "roceP2p1s0f1"
    assert cabling_nics.read_rdma_device(sysfs, "enP7s7") == ""


def test_a_machine_without_fabric_netdevs(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"driver mlx5_core.*plug in a cable"):
        cabling_nics.read_nics(tmp_path, [])


def test_ports_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"ports: .*netdev"):
        cabling_nics.read_nics(tmp_path, [{"port": 0, "rail": 0}])


def test_the_machine_id_stands_in_for_a_guid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine-id").write_text("abc\n", encoding="ascii")
    monkeypatch.setattr(cabling_nics, "MACHINE_ID", tmp_path / "machine-id")
    assert cabling_nics.read_machine(tmp_path, ["eth0"]) == ("ba7816bf8f01cfea", "machine-id")
    (tmp_path / "machine-id").unlink()
    with pytest.raises(HostError, match="has no name"):
        cabling_nics.read_machine(tmp_path, ["eth0"])


def test_addresses_of_this_machine_leave_the_loopback_out() -> None:
    assert "lo" not in cabling_nics.read_addresses()
