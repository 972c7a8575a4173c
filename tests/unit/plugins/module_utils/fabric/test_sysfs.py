# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading sysfs trees."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.rdma import gid_index
from ansible_collections.gb10.ring.plugins.module_utils.fabric.sysfs import devices, snapshot
from ansible_collections.gb10.ring.tests.unit.fixtures import sysfs


def rdma(tmp_path, *addresses, **options):
    return sysfs.device(tmp_path / "class/infiniband/rocep1s0f0", "enp1s0f0np0", sysfs.gid_table(*addresses), **options)


@pytest.mark.parametrize(("tree", "hotplug"), [("dgx-spark", True), ("one-cable-out", False), ("vm", None)])
def test_hot_plug(tmp_path, tree, hotplug):
    sysfs.machine(tmp_path, tree)
    assert snapshot(tmp_path).hotplug is hotplug


def test_a_machine_without_anything(tmp_path):
    seen = snapshot(tmp_path, ["enp1s0f0np0"])
    assert (seen.netdevs, seen.devices, seen.hotplug) == ({}, {}, None)


def test_a_netdev_without_device_is_read_when_it_is_planned(tmp_path):
    sysfs.function(tmp_path, "enp1s0f0np0")
    assert snapshot(tmp_path).netdevs == {}
    netdev = snapshot(tmp_path, ["enp1s0f0np0"]).netdevs["enp1s0f0np0"]
    assert (netdev.driver, netdev.pci_address, netdev.mtu, netdev.pcie_width) == ("", "", 9000, None)


def test_virtual_functions_are_left_out(tmp_path):
    path = sysfs.function(tmp_path, "enp1s0f0v0", "0000:01:00.4")
    (path / "device/physfn").mkdir()
    assert snapshot(tmp_path).netdevs == {}


@pytest.mark.parametrize("name", ["carrier", "speed", "carrier_changes", "mtu"])
def test_files_that_do_not_answer(tmp_path, name):
    path = sysfs.function(tmp_path, "enp1s0f0np0", "0000:01:00.0")
    (path / name).unlink()
    (path / name).mkdir()  # reading it fails, as carrier does while the netdev is set down
    assert not getattr(snapshot(tmp_path).netdevs["enp1s0f0np0"], name)


def test_an_rdma_device_knows_the_netdev_of_its_function(tmp_path):
    sysfs.machine(tmp_path, "dgx-spark")
    found = snapshot(tmp_path)
    device = found.device_of("enP2p1s0f1np1")
    assert device is not None
    assert (device.name, device.netdevs, device.state) == ("roceP2p1s0f1", ("enP2p1s0f1np1",), "4: ACTIVE")
    assert (device.link_layer, device.fw_ver, device.sys_image_guid) == ("Ethernet", "28.45.4028", sysfs.SYS_IMAGE_GUID)
    assert found.device_of("enP7s7") is None


def test_entries_that_are_not_in_use_are_left_out(tmp_path):
    rdma(tmp_path, "192.168.0.1", "10.100.0.1")
    gids = devices(tmp_path)["rocep1s0f0"].gids
    assert [gid.index for gid in gids] == [0, 1, 2, 3, 4, 5]
    assert gid_index(gids, "10.100.0.1", "enp1s0f0np0") == 5


def test_gids_come_in_numeric_order(tmp_path):
    rdma(tmp_path, *(f"10.100.{number}.1" for number in range(6)))
    gids = devices(tmp_path)["rocep1s0f0"].gids
    assert [gid.index for gid in gids] == list(range(14))
    assert gid_index(gids, "10.100.5.1", "enp1s0f0np0") == 13


@pytest.mark.parametrize(
    ("parent", "addresses"), [("", ("10.100.0.1",)), ("enp1s0f0np0", ())], ids=["by its GIDs", "by its parent"]
)
def test_a_soft_device_has_no_pci_function(tmp_path, parent, addresses):
    path = sysfs.device(tmp_path / "class/infiniband/rxe0", "enp1s0f0np0", sysfs.gid_table(*addresses, link_local=""))
    if parent:
        sysfs.write(path / "parent", parent)
    assert devices(tmp_path)["rxe0"].netdevs == ("enp1s0f0np0",)


def test_a_device_without_files(tmp_path):
    (tmp_path / "class/infiniband/rocep1s0f0").mkdir(parents=True)
    device = devices(tmp_path)["rocep1s0f0"]
    assert (device.netdevs, device.state, device.gids) == ((), "", ())
