# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a rank: fabric, offline, caches, then the profile's own; and what stands for a node's own values in a profile."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..fabric import nccl
from . import engram_place
from .profile import Profile

# The checkpoint is local and complete: nothing may be looked up or reported outside.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
_FIRST_RAIL = 0


class SpecError(ValueError):
    """The node's part of the group is described wrongly; the text is the message for the user."""


@dataclass(frozen=True)
class Node:
    """One member of the group, from the inventory. found: ports of fabric_info on the node, None: not looked at.

    head_fabric_ports: fabric_ports of rank 0, for a rendezvous over the fabric.
    """

    rank: int
    size: int
    shape: str
    fabric_ports: Sequence[Mapping[str, Any]]
    management_interface: str
    management_address: str
    head_address: str
    head_fabric_ports: Sequence[Mapping[str, Any]] = ()
    found: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Meeting:
    """Where the ranks find each other: this node's interface and address, and the head's address."""

    interface: str
    address: str
    head: str


def meeting(profile: Profile, node: Node) -> Meeting:
    """The plane of the rendezvous. Raises SpecError when the fabric has no address for it."""
    if profile.rendezvous == "management":
        return Meeting(node.management_interface, node.management_address, node.head_address)
    own, head = _first_rail(node.fabric_ports), _first_rail(node.head_fabric_ports)
    if node.shape == "ring" or own is None or head is None:
        raise SpecError(
            f"rendezvous is fabric, ring_shape is {node.shape}, rail 0 of this node is {_shown(own)} and of the head {_shown(head)}: "
            "expected a pair or a switch with an address on rail 0 of both. Cure: rendezvous: management"
        )
    return Meeting(str(own["netdev"]), str(own["address"]), str(head["address"]))


def _first_rail(ports: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((port for port in ports if port["rail"] == _FIRST_RAIL), None)


def _shown(port: Mapping[str, Any] | None) -> str:
    return "not planned" if port is None else f"{port['netdev']} {port['address']}"


def environment(profile: Profile, node: Node, cache: str, fields: Mapping[str, str]) -> dict[str, str]:
    """All variables of a rank. cache: where compiled kernels go, as the engine sees it. Raises SpecError.

    An empty value of the profile unsets a variable.
    """
    where = meeting(profile, node)
    fabric = _fabric(node, where.interface)
    own = _vllm(profile, cache) if profile.engine == "vllm" else {}
    address = {"VLLM_HOST_IP" if profile.engine == "vllm" else "HOST_IP": where.address}
    # Home directories are hidden from the unit; compiled kernels have to survive a restart.
    home = {"HOME": cache, "XDG_CACHE_HOME": cache} if profile.renderer == "venv" else {}
    told = {**engram_place.variables(profile), **profile.env}
    given = {name: filled(value, fields) for name, value in told.items()}
    result = {**fabric, **_OFFLINE, **home, **own, **given, **address}
    return {name: value for name, value in sorted(result.items()) if value}


def _fabric(node: Node, interface: str) -> dict[str, str]:
    try:
        return nccl.environment(node.shape, node.size, node.fabric_ports, interface, node.found)
    except nccl.NcclError as error:
        raise SpecError(str(error)) from error


def rdma_devices(node: Node) -> dict[str, str]:
    """RDMA device to fabric address, of the devices that NCCL is given, in its order. Raises SpecError."""
    names = _fabric(node, node.management_interface)["NCCL_IB_HCA"].lstrip("=").split(",")
    called = {port["netdev"]: port.get("rdma_device", "") for port in node.found or ()}
    by_device = {
        str(called.get(port["netdev"]) or port["rdma_device"]): str(port["address"]) for port in node.fabric_ports
    }
    return {name: by_device[name] for name in names}


def _vllm(profile: Profile, cache: str) -> dict[str, str]:
    return {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": f"{cache}/vllm",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(profile.ready_timeout_s),
    }


def fields(node: Node, where: Meeting, model: Mapping[str, str], devices: Sequence[str]) -> dict[str, str]:
    """What a profile may write in braces, with its value on this node. model: the fields of the checkpoint and the cache."""
    return {
        "rank": str(node.rank),
        "size": str(node.size),
        "management_interface": node.management_interface,
        "management_address": node.management_address,
        "head_address": node.head_address,
        "rendezvous_interface": where.interface,
        "rendezvous_address": where.address,
        "rdma_devices": ",".join(devices),
        **model,
    }


def filled(text: str, fields: Mapping[str, str]) -> str:
    """Known names in braces replaced; other braces stay, JSON values are full of them."""
    return re.sub("|".join(rf"\{{{name}\}}" for name in fields), lambda found: fields[found[0][1:-1]], text)


def filled_value(value: Any, fields: Mapping[str, str]) -> Any:
    """The same within mappings and lists."""
    if isinstance(value, str):
        return filled(value, fields)
    if isinstance(value, Mapping):
        return {key: filled_value(item, fields) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [filled_value(item, fields) for item in value]
    return value
