# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what the settings of a rank claim took effect: each claim with the log line or metric that proves it; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..report.checks import Check, Severity

USING_IB = "NET/IB : Using"
USING_SOCKET = "NET/Socket : Using"
OVERRIDING = "Subnet-aware routing: overriding dev"
# Lines that void a run over RDMA: NVIDIA/nccl, net_ib; a merged device joins the rails of two neighbours of a ring.
_BROKEN = ("NET/IB : No device found", "GID table changed", "ibv_modify_qp failed", "via NET/Socket")
_DEVICE = re.compile(r"\[\d+\](\S+?):\d+/RoCE")
_LOCAL_ROWS = re.compile(r"Engram layer (\d+) rows \[\d+, \d+\) read from node-local (\S+)")
_DISK_ROWS = re.compile(r"Engram DISK mode: layer (\d+) rows")
_FALLBACK = re.compile(r"DSV41_ENGRAM_DIR=\S+ unusable for layer|holds layer \d+ rows .* this rank needs")
_GRAPHS = re.compile(r"Graph capturing finished in .*")  # vLLM, gpu_model_runner
_ENOUGH_DRAFTS = 50  # draft tokens before a rate of 0 says anything
_RESTART = "restart the group (the engine role with engine_restart_allowed: true) after correcting it"

KIB = 1024
GIB = 1 << 30


@dataclass(frozen=True)
class Started:
    """What the rank was started with, from its record. log_lines: {text, want, means} of this rank."""

    rank: int = 0
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    log_lines: tuple[Mapping[str, str], ...] = ()

    def option(self, flag: str) -> str | None:
        """Value of the last ``--flag value`` or ``--flag=value``."""
        found = None
        for at, word in enumerate(self.argv):
            if word == flag and at + 1 < len(self.argv):
                found = self.argv[at + 1]
            elif word.startswith(f"{flag}="):
                found = word.partition("=")[2]
        return found

    def mapping(self, flag: str) -> Mapping[str, Any]:
        """The option as a JSON object, empty when it is absent or something else."""
        try:
            held = json.loads(self.option(flag) or "{}")
        except ValueError:
            return {}
        return held if isinstance(held, dict) else {}

    def tells(self, subsystem: str) -> bool:
        """Whether NCCL prints what it does in this subsystem."""
        listed = self.env.get("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV").upper().split(",")
        return self.env.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE") and bool({subsystem, "ALL"} & set(listed))


@dataclass(frozen=True)
class Seen:
    """lines: of the running process, the oldest first. metrics: text of the head's /metrics; None: not asked, empty: no answer."""

    lines: tuple[str, ...] = ()
    metrics: str | None = None


def started(record: Mapping[str, Any]) -> Started:
    """From the rank's record (engine.json)."""
    expected = record.get("expected") or {}
    return Started(
        rank=int(record.get("rank", 0)),
        argv=tuple(map(str, record.get("argv") or ())),
        env={str(name): str(value) for name, value in (record.get("env") or {}).items()},
        log_lines=tuple(expected.get("log_lines") or ()),
    )


def checks(node: str, claims: Started, seen: Seen) -> list[Check]:
    """A check for each setting that claims an effect, and for each line that the profile wants or does not want."""
    judges: tuple[Callable[[str, Started, Seen], list[Check]], ...] = (
        _transport,
        _broken,
        _routing,
        _engram,
        _graphs,
        _speculation,
    )
    found = [check for judge in judges for check in judge(node, claims, seen)]
    judged = {check.id for check in found}
    owned = {USING_IB: "engine.transport", USING_SOCKET: "engine.transport", OVERRIDING: "engine.subnet_routing"}
    for line in claims.log_lines:
        if owned.get(line["text"]) not in judged:
            found.append(_line(node, line, seen))
    return found


def _having(seen: Seen, text: str) -> list[str]:
    return [line for line in seen.lines if text in line]


def _shown(lines: Sequence[str], otherwise: str) -> str:
    return lines[-1].strip()[:300] if lines else otherwise


def _untold(id: str, node: str, setting: str, needs: str) -> list[Check]:
    """A claim that these settings do not let anybody prove: something to know, no failure."""
    cure = f"set {needs} in the profile's env once, restart the group, and look again"
    return [Check(id, node, False, f"not proven: {setting} is set, and nothing tells of it", needs, cure, "info")]


def _transport(node: str, claims: Started, seen: Seen) -> list[Check]:
    """RDMA as asked for, by every device that was asked for."""
    wanted = [name.partition(":")[0] for name in claims.env.get("NCCL_IB_HCA", "").lstrip("=").split(",") if name]
    if claims.env.get("NCCL_NET") != "IB" and not wanted:
        return []
    if not claims.tells("INIT"):
        return _untold("engine.transport", node, "NCCL_NET=IB", "NCCL_DEBUG: INFO")
    using, socket = _having(seen, USING_IB), _having(seen, USING_SOCKET)
    devices = _DEVICE.findall(using[-1]) if using else []
    missing = (
        [name for name in wanted if name not in devices] if claims.env.get("NCCL_IB_HCA", "").startswith("=") else []
    )
    found = _shown(socket or using, "no line of NCCL that says what it uses")
    return [
        Check(
            "engine.transport",
            node,
            ok=bool(devices) and not socket and not missing,
            found=f"{found} (without {', '.join(missing)})" if using and missing and not socket else found,
            expected=f"{USING_IB} {', '.join(wanted) or 'RDMA devices'}, and no {USING_SOCKET}",
            cure="look at the legs and RDMA devices of this node (fabric.gid, rdma.state) and at /dev/infiniband and memlock of the engine, "
            f"then {_RESTART}: over TCP prefill is 2.7 times slower and nothing else tells",
        )
    ]


def _broken(node: str, claims: Started, seen: Seen) -> list[Check]:
    """What must not be said by a rank that uses RDMA."""
    if claims.env.get("NCCL_NET") != "IB":
        return []
    texts = [*_BROKEN, *(["Made virtual device"] if claims.env.get("NCCL_IB_MERGE_NICS") == "0" else [])]
    bad = [line for line in seen.lines if any(text in line for text in texts)]
    return [
        Check(
            "engine.rdma_errors",
            node,
            ok=not bad,
            found=_shown(bad, "none") + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""),
            expected=f"no line with {', '.join(texts)}",
            cure="look whether addresses or GIDs of this node changed under the engine (fabric.address, fabric.gid); then restart the group",
        )
    ]


def _routing(node: str, claims: Started, seen: Seen) -> list[Check]:
    if claims.env.get("NCCL_IB_SUBNET_AWARE_ROUTING") != "1":
        return []
    if not claims.tells("NET"):
        return _untold(
            "engine.subnet_routing",
            node,
            "NCCL_IB_SUBNET_AWARE_ROUTING=1",
            "NCCL_DEBUG: INFO and NCCL_DEBUG_SUBSYS: INIT,NET",
        )
    lines = _having(seen, OVERRIDING)
    return [
        Check(
            "engine.subnet_routing",
            node,
            ok=bool(lines),
            found=f"{_shown(lines, 'no such line')}{f' ({len(lines)} such lines)' if len(lines) > 1 else ''}",
            expected=OVERRIDING,
            cure=f"the engine's NCCL has to be 2.30.7 or newer, with NCCL_NET_PLUGIN=none (rdma.nccl); {_RESTART}",
        )
    ]


def _engram(node: str, claims: Started, seen: Seen) -> list[Check]:
    """Rows from the disk, and from the node's own slices when those are asked for; the engine falls back without a failure."""
    if claims.env.get("DSV41_ENGRAM_DISK") != "1":
        return []
    local = claims.env.get("DSV41_ENGRAM_DIR", "")
    lines = [line for line in seen.lines if (_LOCAL_ROWS if local else _DISK_ROWS).search(line)]
    fallen = [line for line in seen.lines if _FALLBACK.search(line)]
    layers = {match[1] for line in lines for match in [(_LOCAL_ROWS if local else _DISK_ROWS).search(line)] if match}
    good = f"layers {', '.join(sorted(layers, key=int))} from {local or 'the shards on disk'}"
    return [
        Check(
            "engine.engram_rows",
            node,
            ok=bool(lines) and not fallen,
            found=_shown(fallen, good if lines else "no line that says where Engram rows are read"),
            expected=f"Engram rows read from node-local {local}"
            if local
            else "Engram rows read from the shards on disk",
            cure="compare the rows of this node with its rank (checkpoint.engram), stage them again if they differ, then restart the group",
        )
    ]


def _graphs(node: str, claims: Started, seen: Seen) -> list[Check]:
    mode = str(claims.mapping("--compilation-config").get("cudagraph_mode", "NONE"))
    if mode == "NONE" or "--enforce-eager" in claims.argv:
        return []
    lines = [line for line in seen.lines if _GRAPHS.search(line)]
    return [
        Check(
            "engine.cuda_graphs",
            node,
            ok=bool(lines),
            found=_shown(lines, "no graph was captured"),
            expected=f"Graph capturing finished (cudagraph_mode {mode})",
            cure=f"look in the journal why nothing was captured; {_RESTART}. Decoding without graphs is slower, not wrong",
            severity="warning",
        )
    ]


def _speculation(node: str, claims: Started, seen: Seen) -> list[Check]:
    """Accepted draft tokens, from the head's metrics."""
    method = claims.mapping("--speculative-config").get("method")
    if not method or seen.metrics is None:
        return []
    drafted, accepted = (
        metric(seen.metrics, f"vllm:spec_decode_num_{what}_tokens_total") for what in ("draft", "accepted")
    )
    severity: Severity = "error"
    if drafted is None:
        found, ok = "no count of draft tokens in /metrics", False
    elif drafted < _ENOUGH_DRAFTS:
        found, ok, severity = (
            f"{drafted:.0f} draft tokens so far, too few to judge",
            not drafted or bool(accepted),
            "info",
        )
    else:
        found, ok = (
            f"{accepted or 0:.0f} of {drafted:.0f} draft tokens accepted ({100 * (accepted or 0) / drafted:.0f} %)",
            bool(accepted),
        )
    return [
        Check(
            "engine.speculation",
            node,
            ok=ok,
            found=found,
            expected=f"draft tokens of {method} accepted",
            cure=f"look in the journal whether the drafter was loaded; {_RESTART}. Without it decoding is slower, not wrong",
            severity=severity,
        )
    ]


def metric(text: str, name: str) -> float | None:
    """The sum of a counter over its labels, None when it is not there."""
    rows = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)", text, re.MULTILINE)
    try:
        return sum(map(float, rows)) if rows else None
    except ValueError:
        return None


def _line(node: str, line: Mapping[str, str], seen: Seen) -> Check:
    """A line that the profile wants or does not want."""
    there, absent = _having(seen, line["text"]), line.get("want") == "absent"
    return Check(
        "engine.log_line",
        node,
        ok=bool(there) != absent,
        found=_shown(there, f"no line with {line['text']}"),
        expected=f"{'no ' if absent else 'a '}line with {line['text']} ({line['means']})",
        cure="read what the engine says before it (journalctl -u gb10-ring-engine); the profile says what the line means",
    )


# --- memory -----------------------------------------------------------------------------------------------------------

_WEIGHTS = re.compile(r"Model loading took ([\d.]+) GiB")
_KV = re.compile(r"Available KV cache memory: ([\d.]+) GiB")


def memory(meminfo: str, lines: Sequence[str]) -> dict[str, int | None]:
    """Bytes: all, available, and what the engine said of weights and KV cache; None: not told."""
    fields = {name: KIB * int(kib) for name, kib in re.findall(r"^(\w+):\s+(\d+) kB$", meminfo, re.MULTILINE)}
    said = {
        part: [match[1] for line in lines for match in [pattern.search(line)] if match]
        for part, pattern in (("weights", _WEIGHTS), ("kv", _KV))
    }
    return {
        "total": fields.get("MemTotal", 0),
        "available": fields.get("MemAvailable"),
        **{part: int(float(values[-1]) * GIB) if values else None for part, values in said.items()},
    }
