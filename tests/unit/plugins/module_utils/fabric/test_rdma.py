from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.rdma import (
    Device,
    Gid,
    Port,
    checks,
    gid_index,
    memlock_check,
    ports_from,
    rate_gbps,
)

LINK_LOCAL = "fe80:0000:0000:0000:4ebb:47ff:fe00:4230"
LEG = "0000:0000:0000:0000:0000:ffff:0a64:0001"  # 10.100.0.1
OTHER = "0000:0000:0000:0000:0000:ffff:c0a8:0001"  # 192.168.0.1
V1, V2 = "IB/RoCE v1", "RoCE v2"

PORT = Port(0, 0, "enp1s0f0np0", "rocep1s0f0", "10.100.0.1")
GIDS = tuple(
    Gid(index, value, kind, PORT.netdev)
    for index, (value, kind) in enumerate([(LINK_LOCAL, V1), (LINK_LOCAL, V2), (LEG, V1), (LEG, V2)])
)
DEVICE = Device(
    "rocep1s0f0", ("enp1s0f0np0",), "4: ACTIVE", "200 Gb/sec (4X HDR)", "Ethernet", "28.45.4028", "4cbb:4700", GIDS
)


def table(*entries, netdev=PORT.netdev, first=0):
    return [Gid(first + index, value, kind, netdev) for index, (value, kind) in enumerate(entries)]


@pytest.mark.parametrize(
    ("gids", "index"),
    [
        (GIDS, 3),
        ([], None),
        (table((LINK_LOCAL, V1), (LINK_LOCAL, V2)), None),
        # an address that came before ours moves it to 5
        (table((LINK_LOCAL, V1), (LINK_LOCAL, V2), (OTHER, V1), (OTHER, V2), (LEG, V1), (LEG, V2)), 5),
        # no link-local address (link-local: [] in netplan) moves it to 1
        (table((LEG, V1), (LEG, V2)), 1),
        (table((LEG, V1)), None),
        (table((OTHER, V2)), None),
        # numeric order, not 1, 10, 2
        ([Gid(10, LEG, V2, PORT.netdev), Gid(2, LEG, V2, PORT.netdev)], 2),
        # an entry of another netdev (a VLAN, say) is not ours
        (table((LEG, V2), netdev="enp1s0f0np0.7"), None),
        (table((LEG, V2), netdev=""), 0),
        (table(("nonsense", V2), (LEG, V2)), 1),
        (table(("::ffff:10.100.0.1", V2)), 0),
    ],
)
def test_gid_index(gids, index):
    assert gid_index(gids, PORT.address, PORT.netdev) == index


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("200 Gb/sec (4X HDR)", 200),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("40 Gb/sec (4X QDR)", 40),
        ("", None),
        ("fast", None),
    ],
)
def test_rate(text, rate):
    assert rate_gbps(text) == rate


def test_ports_from_the_inventory():
    given = {"port": 0, "rail": 0, "netdev": "enp1s0f0np0", "rdma_device": "rocep1s0f0", "address": "10.100.0.1"}
    assert ports_from([{**given, "peer": "spark2", "prefix": 24}]) == (PORT,)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"port": 0, "rail": 0, "address": "10.100.0.1"}, r"ports\[0\]: netdev, rdma_device missing"),
        (
            {"port": 0, "rail": 0, "netdev": "a", "rdma_device": "b", "address": "10.100.0.1/24"},
            r"ports\[0\]\.address: .*without prefix",
        ),
    ],
)
def test_ports_that_cannot_be_used(entry, said):
    with pytest.raises(ValueError, match=said):
        ports_from([entry])


@pytest.mark.parametrize(
    ("devices", "bad"),
    [
        ([DEVICE], {}),
        ([], {"rdma.device": "absent"}),
        ([replace(DEVICE, name="mlx5_0")], {"rdma.device": "enp1s0f0np0 belongs to mlx5_0"}),
        ([replace(DEVICE, netdevs=("eth1",))], {"rdma.device": "rocep1s0f0 on eth1"}),
        ([replace(DEVICE, netdevs=())], {"rdma.device": "rocep1s0f0 on no netdev"}),
        ([replace(DEVICE, state="1: DOWN")], {"rdma.state": "rocep1s0f0 (port 0, rail 0) 1: DOWN"}),
        ([replace(DEVICE, state="2: INIT")], {"rdma.state": "rocep1s0f0 (port 0, rail 0) 2: INIT"}),
        ([replace(DEVICE, state="")], {"rdma.state": "rocep1s0f0 (port 0, rail 0) without state"}),
        (
            [replace(DEVICE, rate="100 Gb/sec (4X EDR)")],
            {"rdma.rate": "rocep1s0f0 (port 0, rail 0) 100 Gb/sec (4X EDR)"},
        ),
        ([replace(DEVICE, gids=())], {}),  # the GID is a rung of the fabric's ladder
        (
            # an unplugged port of geerlingguy/sbc-reviews#92
            [replace(DEVICE, state="1: DOWN", rate="40 Gb/sec (4X QDR)", gids=())],
            {"rdma.state": "rocep1s0f0 (port 0, rail 0) 1: DOWN"},
        ),
    ],
)
def test_checks(devices, bad):
    found = checks("spark1", [PORT], {device.name: device for device in devices}, 200)
    assert {check.id: check.found for check in found if not check.ok} == bad
    assert all(check.node == "spark1" and check.cure and check.expected for check in found)


def test_any_rate():
    found = checks("spark1", [PORT], {DEVICE.name: replace(DEVICE, rate="10 Gb/sec (4X SDR)")}, 0)
    assert [check.id for check in found] == ["rdma.device", "rdma.state"]


def test_an_absent_device_speaks_of_the_cable():
    (check,) = checks("spark1", [PORT], {}, 200)
    assert "cable" in check.cure
    assert "dgx-spark-mlnx-hotplug" in check.cure


LIMITS = "# x\n* soft memlock unlimited\n* hard memlock unlimited\nroot soft memlock unlimited\nroot hard memlock unlimited\n"


@pytest.mark.parametrize(
    ("text", "wanted", "ok", "found"),
    [
        (LIMITS, "unlimited", True, "with memlock unlimited"),
        (LIMITS, "8192", False, "with memlock unlimited"),
        ("", "unlimited", False, "absent"),
        (LIMITS.replace("root", "#root"), "unlimited", False, "with memlock unlimited, unset"),
        (LIMITS.replace("root hard memlock unlimited", "root hard memlock 64"), "unlimited", False, "64, unlimited"),
        (LIMITS.replace("memlock", "nofile"), "unlimited", False, "with memlock unset"),
    ],
)
def test_memlock(text, wanted, ok, found):
    check = memlock_check("spark1", "/etc/security/limits.d/90-gb10-ring.conf", text, wanted)
    assert check.ok is ok
    assert found in check.found
