# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment that makes NCCL use every leg of this node's fabric, for each shape of cabling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SHAPES = ("ring", "pair", "switch")


class NcclError(ValueError):
    """The fabric as described cannot carry NCCL; the text is the message for the user."""


def environment(
    shape: str,
    size: int,
    fabric_ports: Sequence[Mapping[str, Any]],
    management_interface: str,
    found: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, str]:
    """Variables for one node. fabric_ports: the list of that name that the inventory gives each node.

    found: ports of a fabric_info result of this node. With it only devices that are there and ACTIVE are named, as they are called on
    this node; without it those that the plan names.

    NCCL_IB_GID_INDEX is never set: the index of the RoCE v2 IPv4 entry differs between nodes and moves after a link flap, and
    NCCL finds it by version and address family. NCCL_CROSS_NIC and NCCL_IB_ADDR_RANGE stay unset on a ring, where neither has
    a right value.
    """
    if shape not in SHAPES:
        raise NcclError(f"ring_shape is {shape!r}, allowed: {', '.join(SHAPES)}")
    devices = _planned(fabric_ports) if found is None else _active(fabric_ports, found)
    result = {
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": f"={','.join(devices)}",  # without the = each name is a prefix
        "NCCL_IB_ROCE_VERSION_NUM": "2",
        "NCCL_IB_ADDR_FAMILY": "AF_INET",
        "NCCL_IGNORE_CPU_AFFINITY": "1",
        # Bootstrap and gloo need an address that every node reaches; on a ring only the management plane has one.
        "NCCL_SOCKET_IFNAME": f"={management_interface}",
        "GLOO_SOCKET_IFNAME": management_interface,
        "TP_SOCKET_IFNAME": management_interface,
    }
    if shape == "ring":
        result.update(_ring(size))
    elif not equal_devices_meet(shape, crossed(fabric_ports)):
        result.update(_SUBNET_AWARE)
    return dict(sorted(result.items()))


# NCCL pairs devices by index, which on a ring joins two ports that share no cable; this makes it compare subnets (NCCL 2.30.7).
_SUBNET_AWARE = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_NET_PLUGIN": "none"}


def _ring(size: int) -> dict[str, str]:
    result = {
        **_SUBNET_AWARE,
        "NCCL_IB_MERGE_NICS": "0",  # a merged device would join the rails of two different neighbours
        "NCCL_IB_TC": "106",  # TC, TIMEOUT and MAX_NCHANNELS as published for the three-Spark ring (LLMKube PR #1816)
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_MAX_NCHANNELS": "4",
    }
    if size >= 4:
        result["NCCL_ALGO"] = "Ring"  # a tree would need links between nodes that share no cable
    return result


def crossed(fabric_ports: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether a cable goes from one port to the other one of the peer, so that equal indexes do not meet; None without ports: not known."""
    return any(port["netdev"] != port["peer_netdev"] for port in fabric_ports) if fabric_ports else None


def equal_devices_meet(shape: str, cables_crossed: bool | None) -> bool:
    """Whether devices of equal index share a cable or a switch: then NCCL has no device to take in place of another, and says nothing."""
    return shape == "switch" or (shape == "pair" and cables_crossed is False)


def _planned(fabric_ports: Sequence[Mapping[str, Any]]) -> list[str]:
    names = [str(port.get("rdma_device") or "") for port in _ordered(fabric_ports)]
    if not names or "" in names:
        raise NcclError(
            f"fabric_ports names the RDMA devices {names}, expected one rdma_device for each of at least one port"
        )
    return names


def usable(fabric_ports: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The RDMA devices of the planned ports that are there and ACTIVE, in NCCL's order; empty when there is none."""
    return _looked_at(fabric_ports, found)[0]


def _active(fabric_ports: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> list[str]:
    names, states = _looked_at(fabric_ports, found)
    if not names:
        seen = ", ".join(f"{netdev}: {state}" for netdev, state in states.items()) or "no planned port"
        raise NcclError(f"no RDMA device of the fabric is ACTIVE ({seen}); run verify.yml and see to the cables first")
    return names


def _looked_at(
    fabric_ports: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> tuple[list[str], dict[str, str]]:
    """Usable devices, and what each planned netdev has. By netdev: that is what the plan gave an address to.

    NCCL waits without end for a device whose port is down.
    """
    by_netdev = {function["netdev"]: function for function in found if function["present"]}
    states = {}
    names = []
    for port in _ordered(fabric_ports):
        function = by_netdev.get(port["netdev"], {})
        device, state = function.get("rdma_device", ""), function.get("rdma_state", "")
        states[port["netdev"]] = f"{device} {state}" if device else "no RDMA device" if function else "absent"
        if device and state.endswith(" ACTIVE"):
            names.append(str(device))
    return names, states


def _ordered(fabric_ports: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rail 0 of both ports first: the order in which NCCL lists the devices."""
    return sorted(fabric_ports, key=lambda port: (port["rail"], port["port"]))
