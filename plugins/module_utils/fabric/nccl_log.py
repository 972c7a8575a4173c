# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NCCL's log of a run must say and must not say, for each shape of cabling; pure.

The lines are those of NCCL 2.27 to 2.30 with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..report.checks import Check
from .nccl import equal_devices_meet

_USING = re.compile(r"NET/IB : Using (.*?)(?: \[RO\])?; OOB ([^:\s]+)")
_DEVICE = re.compile(r"\[\d+\](\w+):\d+/RoCE")
_CHANNEL = re.compile(r"Channel .* via (NET/\w+)")
_NETWORK = re.compile(r"Using network IB")
_RINGS, _TREES = re.compile(r"Connected all rings"), re.compile(r"Connected all trees")
_OVERRIDE = re.compile(r"Subnet-aware routing: overriding dev")
_SHOWN = 160


@dataclass(frozen=True)
class Forbidden:
    """A line that must not be there, what it means, and what to do."""

    pattern: re.Pattern[str]
    means: str
    cure: str


FORBIDDEN = (
    Forbidden(
        re.compile(r"NET/Socket : Using|via NET/Socket|Using network Socket"),
        "NCCL works over sockets",
        "see that /dev/infiniband is in the container and that NCCL_NET, NCCL_IB_DISABLE and NCCL_IB_HCA reach it",
    ),
    Forbidden(
        re.compile(r"NET/IB : No device found"),
        "NCCL found no RDMA device",
        "see that /dev/infiniband is in the container and that NCCL_IB_HCA names the devices of this node (rdma.devices)",
    ),
    Forbidden(
        re.compile(r"GID table changed"),
        "addresses changed during the run, which voids it",
        "find what configures the network at the same time (NVIDIA Sync, NetworkManager), then run again",
    ),
    Forbidden(
        re.compile(r"ibv_modify_qp failed|ibv_modify_qp_wrap.*failed"),
        "two devices that share no cable were paired",
        "on a ring NCCL 2.30.7 or newer and NCCL_IB_SUBNET_AWARE_ROUTING=1 are needed; look at fabric.cabling",
    ),
    Forbidden(
        re.compile(r"ibv_reg_mr\w* .*Cannot allocate memory"),
        "memory cannot be registered",
        "look at preflight's check of kexec handover (kho=off) and at the memlock limit",
    ),
)
# Rails of one port belong together, devices of both ports do not: on a ring they face two neighbours.
_MERGED = re.compile(r"Made virtual device.*name=(\S+\+\S+)")


def devices(log: str) -> list[str]:
    """The RDMA devices that NCCL says it uses, in its order."""
    found = _USING.search(log)
    return _DEVICE.findall(found[1]) if found else []


@dataclass(frozen=True)
class Cabling:
    """shape: ring, pair or switch. crossed: whether a cable joins different ports of its two nodes; None: not known."""

    shape: str
    crossed: bool | None = None


def checks(node: str, cabling: Cabling, log: str, wanted: Sequence[str], env: Mapping[str, str]) -> list[Check]:
    """Transport, routing where the environment asks for it and the cabling needs it, and lines that must not be there.

    wanted: the devices that must be used. env: of the process, with the interface over which the ranks meet.
    """
    shape = cabling.shape
    found = [_transport(node, shape, log, wanted, env["NCCL_SOCKET_IFNAME"].lstrip("="))]
    if env.get("NCCL_IB_SUBNET_AWARE_ROUTING") == "1" and not equal_devices_meet(shape, cabling.crossed):
        found.append(_routing(node, log))
    return [*found, _forbidden(node, shape, log)]


def _transport(node: str, shape: str, log: str, wanted: Sequence[str], interface: str) -> Check:
    used = devices(log)
    missing = sorted(set(wanted) - set(used))
    ways = sorted(set(_CHANNEL.findall(log)))
    over = f"; channels over {', '.join(ways)}" if ways else "; no channel over the network"
    lacking = _lacking(shape, log, interface)
    return Check(
        id="fabric.allreduce_transport",
        node=node,
        ok=bool(used) and not missing and "NET/IB" in ways and not lacking,
        found="".join(
            [f"NET/IB with {', '.join(used)}" if used else "no NET/IB line", over, *(f"; {one}" for one in lacking)]
        ),
        expected=f"NET/IB with {', '.join(wanted)} and channels over it, all rings connected, bootstrap over {interface}",
        cure=f"see that {', '.join(missing) or 'every device'} is ACTIVE on {node} (fabric.gid) and named by NCCL_IB_HCA, that "
        f"/dev/infiniband is in the container, and that NCCL_SOCKET_IFNAME={interface} reaches it",
    )


def _lacking(shape: str, log: str, interface: str) -> list[str]:
    """Lines that every good run has. A pair or a switch may be connected as a tree alone; a ring has cables for rings."""
    using = _USING.search(log)
    connected = _RINGS.search(log) or (shape != "ring" and _TREES.search(log))
    return [
        *([] if _NETWORK.search(log) else ["no line «Using network IB»"]),
        *([] if connected else ["no line «Connected all rings»"]),
        *([f"bootstrap over {using[2]}"] if using and using[2] != interface else []),
    ]


def _routing(node: str, log: str) -> Check:
    count = len(_OVERRIDE.findall(log))
    return Check(
        id="fabric.allreduce_routing",
        node=node,
        ok=count > 0,
        found=f"{count} lines «Subnet-aware routing: overriding dev»",
        expected="at least one: equal device numbers do not share a cable on a ring, nor on a pair whose cable joins different ports",
        cure="use NCCL 2.30.7 or newer and see that NCCL_IB_SUBNET_AWARE_ROUTING=1 and NCCL_NET_PLUGIN=none reach the process",
    )


def _forbidden(node: str, shape: str, log: str) -> Check:
    lines = log.splitlines()
    found = [(rule, line) for rule in FORBIDDEN for line in lines if rule.pattern.search(line)]
    merged = sorted(set(_MERGED.findall(log))) if shape == "ring" else []
    texts = list(dict.fromkeys(rule.means for rule, _line in found))
    cures = list(dict.fromkeys(rule.cure for rule, _line in found))
    if merged:
        texts.append(f"devices of two neighbours are merged ({', '.join(merged)})")
        cures.append("set NCCL_IB_MERGE_NICS=0")
    first = f": {found[0][1].strip()[:_SHOWN]}" if found else ""
    return Check(
        id="fabric.allreduce_log",
        node=node,
        ok=not texts,
        found=("; ".join(texts) + first) if texts else "none of the lines that mean a fallback or a fault",
        expected="no line of NCCL's log that means a fallback or a fault",
        cure="; ".join(cures),
    )
