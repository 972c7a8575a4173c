# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether NCCL works over the RDMA devices that the settings ask for, by the lines of its log; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..fabric.nccl import equal_devices_meet
from ..report.checks import Check
from .gate_claims import RESTART, Seen, Started, nccl_tells, shown, untold

USING_IB = "NET/IB : Using"
USING_SOCKET = "NET/Socket : Using"
OVERRIDING = "Subnet-aware routing: overriding dev"
# Lines that void a run over RDMA: NVIDIA/nccl, net_ib; a merged device joins the rails of two neighbours of a ring.
_BROKEN = ("NET/IB : No device found", "GID table changed", "ibv_modify_qp failed", "via NET/Socket")
_DEVICE = re.compile(r"\[\d+\](\S+?):\d+/RoCE")
# Of one device NCCL makes a "virtual" one, too, with ndevs=1.
_MERGED = re.compile(r"Made virtual device.*name=\S+\+\S+")


def can_come(text: str, env: Mapping[str, str]) -> bool:
    """Whether a line that a healthy rank has can be there at all: NCCL's are printed only when it is told to."""
    subsystem = {USING_IB: "INIT", OVERRIDING: "NET"}.get(text)
    return subsystem is None or nccl_tells(env, subsystem)


def asked_for(claims: Started) -> list[str]:
    """The devices of NCCL_IB_HCA, without their ports."""
    return [name.partition(":")[0] for name in claims.env.get("NCCL_IB_HCA", "").lstrip("=").split(",") if name]


def _rdma(claims: Started) -> bool:
    """Whether the settings ask for RDMA."""
    asked = claims.env.get("NCCL_NET") == "IB" or bool(asked_for(claims))
    return asked and claims.env.get("NCCL_IB_DISABLE") != "1"


def forbidden(claims: Started) -> list[str]:
    """Patterns of the lines that fail transport or broken whenever they come, as Python and PCRE2 read them."""
    texts = [*([USING_SOCKET] if _rdma(claims) else []), *(_BROKEN if _rdma_only(claims) else [])]
    return [*map(re.escape, texts), *([_MERGED.pattern] if _rdma_only(claims) and _split(claims) else [])]


def _rdma_only(claims: Started) -> bool:
    """Whether the settings leave NCCL nothing else."""
    return claims.env.get("NCCL_NET") == "IB"


def _split(claims: Started) -> bool:
    """Whether the settings keep NCCL from merging devices."""
    return claims.env.get("NCCL_IB_MERGE_NICS") == "0"


def devices(node: str, claims: Started, _seen: Seen) -> list[Check]:
    """Whether the rank was given every planned device: one that was down when the unit was written is left out of it for good."""
    wanted = asked_for(claims)
    if not claims.planned or not _rdma(claims) or not claims.env.get("NCCL_IB_HCA", "").startswith("="):
        return []
    # Compared by number: the unit has the devices by the names that they have on the node, which the plan may not know.
    short = len(claims.planned) - len(wanted)
    missing = [name for name in claims.planned if name not in wanted]
    return [
        Check(
            "engine.devices",
            node,
            ok=short <= 0,
            found=f"{len(wanted)} of {len(claims.planned)} planned devices in NCCL_IB_HCA"
            + (f", without {', '.join(missing)}" if len(missing) == short > 0 else ""),
            expected="NCCL_IB_HCA with every planned RDMA device of the node",
            cure="see that each leg of the node is up (fabric.carrier, fabric.gid), then run the engine role with engine_restart_allowed: true: "
            "a device that was down when the unit was written is not in it. Take NCCL_IB_HCA out of engine_overrides if it is there",
        )
    ]


def transport(node: str, claims: Started, seen: Seen) -> list[Check]:
    """RDMA as asked for, by every device that was asked for."""
    wanted = asked_for(claims)
    if not _rdma(claims):
        return []
    using, socket = seen.having(USING_IB), seen.having(USING_SOCKET)
    if not claims.tells("INIT") and not socket:
        return untold("engine.transport", node, "NCCL_NET=IB", "NCCL_DEBUG: INFO in the profile's env")
    used = _DEVICE.findall(using[-1]) if using else []
    exact = claims.env.get("NCCL_IB_HCA", "").startswith("=")
    missing = [name for name in wanted if name not in used] if exact else []
    found = shown(socket or using, "no line of NCCL that says what it uses")
    return [
        Check(
            "engine.transport",
            node,
            ok=bool(used) and not socket and not missing,
            found=f"{found} (without {', '.join(missing)})" if using and missing and not socket else found,
            expected=f"{USING_IB} {', '.join(wanted) or 'RDMA devices'}, and no {USING_SOCKET}",
            cure="look at the legs and RDMA devices of this node (fabric.gid, rdma.state) and at /dev/infiniband and memlock of the engine, "
            f"then {RESTART}: over TCP prefill is 2.7 times slower and nothing else tells",
        )
    ]


def broken(node: str, claims: Started, seen: Seen) -> list[Check]:
    """What must not be said by a rank that uses RDMA."""
    if not _rdma_only(claims):
        return []
    split = _split(claims)
    bad = [line for line in seen.lines if any(text in line for text in _BROKEN) or (split and _MERGED.search(line))]
    return [
        Check(
            "engine.rdma_errors",
            node,
            ok=not bad,
            found=shown(bad, "none") + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""),
            expected=f"no line with {', '.join(_BROKEN)}{', or of devices that were merged' if split else ''}",
            cure="look whether addresses or GIDs of this node changed under the engine (fabric.address, fabric.gid); then restart the group",
        )
    ]


def routing(node: str, claims: Started, seen: Seen) -> list[Check]:
    """Where equal device numbers do not share a cable NCCL has to say that it takes others: on a ring, and on a crossed pair."""
    straight = equal_devices_meet(claims.shape, claims.crossed)
    if claims.env.get("NCCL_IB_SUBNET_AWARE_ROUTING") != "1" or straight:
        return []
    if not claims.tells("NET"):
        needs = "NCCL_DEBUG: INFO and NCCL_DEBUG_SUBSYS: INIT,NET in the profile's env"
        return untold("engine.subnet_routing", node, "NCCL_IB_SUBNET_AWARE_ROUTING=1", needs)
    lines = seen.having(OVERRIDING)
    return [
        Check(
            "engine.subnet_routing",
            node,
            ok=bool(lines),
            found=f"{shown(lines, 'no such line')}{f' ({len(lines)} such lines)' if len(lines) > 1 else ''}",
            expected=OVERRIDING,
            cure=f"the engine's NCCL has to be 2.30.7 or newer, with NCCL_NET_PLUGIN=none (rdma.nccl); {RESTART}",
        )
    ]
