# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report shows beside the checks: legs, versions, disks, memory, Engram rows, from what the roles registered; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..topology.view import View, ViewError, fabric_view
from .gather import RESULTS

KIB = 1024
GIB = 1 << 30

# Texts of our own checks: fabric/checks.py, fabric/bandwidth.py, checkpoint/info.py. The tests make them with those.
_MTU = re.compile(r"(\d+) bytes on (\S+) \(port")
_RATE = re.compile(r"([\d.]+) Gb/s from (\S+) \(port")
_CEILING = re.compile(r"at most (\d+) %")


def site(hostvars: Mapping[str, Any], hosts: Iterable[str]) -> dict[str, Any]:
    """The shape of ``site`` in docs/report.schema.json."""
    names = list(hosts)
    try:
        view = fabric_view(hostvars, names)
    except ViewError:  # one part of the ring alone was looked at
        view = View("", 0, (), ())
    ranks = {node.name: node.rank for node in view.nodes}
    ordered = sorted(names, key=lambda name: (ranks.get(name, 0), name))
    return {
        "shape": view.shape,
        "mtu": view.mtu,
        "legs": legs(view, hostvars),
        "nodes": [node(name, hostvars[name], ranks.get(name, 0)) for name in ordered],
        "versions": versions({name: _versions(hostvars[name]) for name in ordered}),
    }


# --- legs -------------------------------------------------------------------------------------------------------------


def legs(view: View, hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each leg with what its two ends found."""
    return [
        {
            "cable": leg.cable,
            "rail": leg.rail,
            "subnet": leg.subnet,
            "ends": [
                {
                    "node": end.node,
                    "port": end.port,
                    "netdev": end.netdev,
                    "address": end.address,
                    **_end(end.netdev, _checks(hostvars[end.node], "fabric") + _checks(hostvars[end.node], "rdma")),
                }
                for end in leg.ends
            ],
        }
        for leg in view.legs
    ]


def _end(netdev: str, checks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """State and measures of one end, from the checks that are about its netdev. Texts name others too: the far end's is called alike."""
    own = [check for check in checks if netdev in check.get("netdevs", ())]
    bad = {str(check["id"]): str(check["severity"]) for check in own if not check["ok"] and check["severity"] != "info"}
    state = "failed" if "error" in bad.values() else "warning" if bad else "ok" if own else "unknown"
    return {
        "state": state,
        "problems": sorted(bad),
        "mtu": _measured(_MTU, own, netdev),
        "gbps": _measured(_RATE, own, netdev),
    }


def _measured(pattern: re.Pattern[str], checks: Sequence[Mapping[str, Any]], netdev: str) -> float | None:
    matches = [pattern.match(str(check["found"])) for check in checks]
    return next((float(match[1]) for match in matches if match and match[2] == netdev), None)


# --- nodes ------------------------------------------------------------------------------------------------------------


def node(name: str, variables: Mapping[str, Any], rank: int) -> dict[str, Any]:
    checkpoint = (variables.get("checkpoint_checks") or {}).get("checkpoint") or {}
    return {
        "name": name,
        "rank": rank,
        "management_address": str(variables.get("management_address", "")),
        "disk": disk(checkpoint, _checks(variables, "checkpoint")) if checkpoint else None,
        "memory": memory(variables),
        "engram": engram(variables),
    }


def disk(checkpoint: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The file system of the checkpoints, in bytes. Of each revision, what deleting it would give back: links count once."""
    figures = checkpoint["disk"]
    ceilings = [_CEILING.match(str(check["expected"])) for check in checks if check["id"] == "checkpoint.disk"]
    percent = next((int(match[1]) for match in ceilings if match), 100)
    return {
        "size": int(figures["size"]),
        "used": int(figures["used"]),
        "ceiling": int(figures["size"]) * percent // 100,
        "revisions": [
            {
                "revision": str(one["revision"]),
                "active": bool(one["active"]),
                "files": int(one["files"]),
                "bytes": int(one["bytes"]),
                "allocated": int(one["allocated"]),
                "complete": bool(one["complete"]),
            }
            for one in checkpoint.get("revisions", ())
        ],
        "unfinished": sum(map(int, (checkpoint.get("unfinished") or {}).values())),
    }


def memory(variables: Mapping[str, Any]) -> dict[str, int | None] | None:
    """Bytes: all, available, and what the engine said that it uses for weights and KV cache; None: not known."""
    seen = (variables.get("engine_gate_checks") or {}).get("memory") or {}
    facts = (variables.get("preflight_checks") or {}).get("facts") or {}
    total = seen.get("total") or KIB * int(facts.get("memtotal_kib") or 0)
    if not total:
        return None
    return {"total": total, **{part: seen.get(part) for part in ("available", "weights", "kv")}}


def engram(variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """The rows of each Engram table that the node holds: by layer, the table's rows and the first and after the last one."""
    held = (variables.get("checkpoint_engram_info") or {}).get("engram")
    if not held or not held.get("tables"):
        return None
    return {
        "rule": str(held["rule"]),
        "placement": str(held["placement"]),
        "tables": {str(layer): int(rows) for layer, rows in held["tables"].items()},
        "ranges": {str(layer): [int(rows[0]), int(rows[1])] for layer, rows in held["ranges"].items()},
        "verified": bool(held.get("verified_rows")),
    }


def _checks(variables: Mapping[str, Any], role: str) -> list[Mapping[str, Any]]:
    return [check for name in RESULTS[role] for check in (variables.get(name) or {}).get("checks") or ()]


# --- versions ---------------------------------------------------------------------------------------------------------

_FACTS = {"os": "system", "architecture": "architecture", "python": "Python"}
_PLATFORM = {
    "driver": "NVIDIA driver",
    "rdma_core": "rdma-core",
    "kho": "kexec handover",
    "page_size": "page size",
    "oom_daemon": "OOM daemon",
}
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]+")  # as much of it as container engines show


def _versions(variables: Mapping[str, Any]) -> dict[str, str]:
    facts = (variables.get("preflight_checks") or {}).get("facts") or {}
    platform = facts.get("platform") or {}
    running = (variables.get("engine_gate_checks") or {}).get("versions") or {}
    found = {
        **{title: facts.get(key) for key, title in _FACTS.items()},
        "kernel": platform.get("kernel") or facts.get("kernel"),
        **{title: platform.get(key) for key, title in _PLATFORM.items()},
        "engine image": _DIGEST.sub(r"\1", _found(variables, "engine", "engine.image")),
        "engine": running.get("engine"),
        "NCCL in use": running.get("nccl"),
        "NCCL library": _found(variables, "rdma", "rdma.nccl_library"),
        "ConnectX firmware": _found(variables, "fabric", "fabric.firmware"),
        "checkpoint revision": ((variables.get("checkpoint_checks") or {}).get("checkpoint") or {}).get("current"),
    }
    return {title: str(value) for title, value in found.items() if value not in (None, "")}


def _found(variables: Mapping[str, Any], role: str, check_id: str) -> str:
    return next((str(check["found"]) for check in _checks(variables, role) if check["id"] == check_id), "")


def versions(held: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """A row a property; odd: the nodes whose value most others do not have, all of them when there is no majority."""
    titles = dict.fromkeys(title for values in held.values() for title in values)
    return [
        {"name": title, "values": values, "odd": odd(values)}
        for title in titles
        for values in [{name: own[title] for name, own in held.items() if title in own}]
    ]


def odd(values: Mapping[str, str]) -> list[str]:
    """Names with another value than the most common one; every name when the most common one is not more common than the next."""
    ranked = Counter(values.values()).most_common(2)
    if len(ranked) < 2:
        return []
    tied = ranked[0][1] == ranked[1][1]
    return [name for name, value in values.items() if tied or value != ranked[0][0]]
