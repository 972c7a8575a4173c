# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.nccl import NcclError, environment

DEVICES = {(0, 0): "rocep1s0f0", (1, 0): "rocep1s0f1", (0, 1): "roceP2p1s0f0", (1, 1): "roceP2p1s0f1"}
NETDEVS = {(0, 0): "enp1s0f0np0", (1, 0): "enp1s0f1np1", (0, 1): "enP2p1s0f0np0", (1, 1): "enP2p1s0f1np1"}


def port(number, rail, peer_port):
    return {
        "port": number,
        "rail": rail,
        "netdev": NETDEVS[number, rail],
        "rdma_device": DEVICES[number, rail],
        "peer_netdev": NETDEVS[peer_port, rail],
    }


RING = [port(0, 0, 1), port(0, 1, 1), port(1, 0, 0), port(1, 1, 0)]
PAIR = [port(0, 0, 0), port(0, 1, 0)]
CROSSED_PAIR = [port(0, 0, 1), port(0, 1, 1)]
SWITCH = [port(1, 0, 1), port(1, 1, 1)]

BASE = {
    "NCCL_NET": "IB",
    "NCCL_IB_DISABLE": "0",
    "NCCL_IB_ROCE_VERSION_NUM": "2",
    "NCCL_IB_ADDR_FAMILY": "AF_INET",
    "NCCL_IGNORE_CPU_AFFINITY": "1",
    "NCCL_SOCKET_IFNAME": "=enP7s7",
    "GLOO_SOCKET_IFNAME": "enP7s7",
    "TP_SOCKET_IFNAME": "enP7s7",
}
SUBNETS = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_NET_PLUGIN": "none"}
ON_A_RING = {
    **SUBNETS,
    "NCCL_IB_MERGE_NICS": "0",
    "NCCL_IB_TC": "106",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_MAX_NCHANNELS": "4",
}
ALL_FOUR = "=rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1"


@pytest.mark.parametrize(
    ("shape", "size", "ports", "expected"),
    [
        ("ring", 2, RING, {**ON_A_RING, "NCCL_IB_HCA": ALL_FOUR}),
        ("ring", 3, RING, {**ON_A_RING, "NCCL_IB_HCA": ALL_FOUR}),
        ("ring", 4, RING, {**ON_A_RING, "NCCL_IB_HCA": ALL_FOUR, "NCCL_ALGO": "Ring"}),
        ("ring", 8, list(reversed(RING)), {**ON_A_RING, "NCCL_IB_HCA": ALL_FOUR, "NCCL_ALGO": "Ring"}),
        ("pair", 2, PAIR, {"NCCL_IB_HCA": "=rocep1s0f0,roceP2p1s0f0"}),
        ("pair", 2, CROSSED_PAIR, {**SUBNETS, "NCCL_IB_HCA": "=rocep1s0f0,roceP2p1s0f0"}),
        ("switch", 4, SWITCH, {"NCCL_IB_HCA": "=rocep1s0f1,roceP2p1s0f1"}),
    ],
)
def test_environment(shape, size, ports, expected):
    assert environment(shape, size, ports, "enP7s7") == {**BASE, **expected}


@pytest.mark.parametrize("shape", ["ring", "pair", "switch"])
def test_what_has_no_right_value_is_never_set(shape):
    found = environment(shape, 3, RING, "enP7s7")
    assert not {"NCCL_IB_GID_INDEX", "NCCL_CROSS_NIC", "NCCL_IB_ADDR_RANGE"} & found.keys()


@pytest.mark.parametrize(
    ("shape", "ports", "says"),
    [
        ("star", RING, "ring_shape is 'star', allowed: ring, pair, switch"),
        ("ring", [], "at least one port"),
        ("ring", [{**RING[0], "rdma_device": ""}], "one rdma_device for each"),
    ],
)
def test_refusals(shape, ports, says):
    with pytest.raises(NcclError) as error:
        environment(shape, 3, ports, "enP7s7")
    assert says in str(error.value)


def found(**changes):
    """fabric_info's ports of a healthy ring node; changes by netdev."""
    ports = [
        {"netdev": netdev, "present": True, "rdma_device": DEVICES[place], "rdma_state": "4: ACTIVE"}
        for place, netdev in NETDEVS.items()
    ]
    return [{**port, **changes.get(port["netdev"], {})} for port in ports]


ABSENT = {"present": False, "rdma_device": "", "rdma_state": ""}


@pytest.mark.parametrize(
    ("ports", "facts", "devices"),
    [
        (RING, found(), ALL_FOUR),
        (list(reversed(RING)), list(reversed(found())), ALL_FOUR),
        (RING, found(enP2p1s0f1np1=ABSENT), "=rocep1s0f0,rocep1s0f1,roceP2p1s0f0"),
        (RING, found(enp1s0f0np0={"rdma_state": "1: DOWN"}), "=rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1"),
        (RING, found(enp1s0f0np0={"rdma_device": "mlx5_0"}), "=mlx5_0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1"),
        (RING, found(enp1s0f0np0={"rdma_device": "", "rdma_state": ""}), "=rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1"),
        (PAIR, found(), "=rocep1s0f0,roceP2p1s0f0"),  # the other port is there, but has no address
        (SWITCH, found(), "=rocep1s0f1,roceP2p1s0f1"),
    ],
)
def test_only_devices_that_are_there_and_active(ports, facts, devices):
    shape = {2: "pair", 4: "ring"}[len(ports)]
    environ = environment(shape, 3, ports, "enP7s7", facts)
    assert environ["NCCL_IB_HCA"] == devices
    assert environ["NCCL_SOCKET_IFNAME"] == "=enP7s7"
    assert "NCCL_IB_GID_INDEX" not in environ


def test_no_active_device_is_an_error_that_names_each():
    facts = found(enp1s0f0np0={"rdma_state": "1: DOWN"}, enP2p1s0f0np0=ABSENT)
    with pytest.raises(NcclError) as error:
        environment("pair", 2, PAIR, "enP7s7", facts)
    assert "enp1s0f0np0: rocep1s0f0 1: DOWN, enP2p1s0f0np0: absent" in str(error.value)
    with pytest.raises(NcclError, match="no planned port"):
        environment("pair", 2, [], "enP7s7", facts)
