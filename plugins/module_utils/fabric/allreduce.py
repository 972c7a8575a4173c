# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All-reduce over the whole group, before a model is trusted with it: how the program is called and what its figures mean; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..report.checks import Check, Severity

MARK = "gb10-ring-allreduce: "
_HINT = re.compile(r"See '\S+ run --help'")  # what Docker ends its errors with
MARGIN = 30.0  # seconds beyond the program's own timeout, after which it is ended from outside


@dataclass(frozen=True)
class Thresholds:
    """Bus bandwidth in GB/s (10^9 bytes). usual: what a healthy group of this shape was measured at; source: by whom."""

    usual: str
    warn_below: float
    fail_below: float
    source: str


# The figures below are of all_reduce over 256 MB or more: smaller sums are slower on a healthy fabric too (docs/benchmarks.md).
JUDGED_FROM = 256 * 10**6  # bytes
# Below 10 GB/s a group works over one leg or over sockets.
SHAPES = {
    "ring": Thresholds(
        "23.2 with all four devices, 11.3 over one leg, 7.9 over sockets", 18.0, 10.0, "LLMKube lab page, three Sparks"
    ),
    "pair": Thresholds("20 to 24 over both rails, 13.5 over one", 18.0, 10.0, "NVIDIA nccl README"),
    "switch": Thresholds("20 to 24 over both rails, 13.5 over one", 18.0, 10.0, "NVIDIA nccl README"),
}


@dataclass(frozen=True)
class Settings:
    """How to run it. sizes in bytes; memory_share of the free memory, 0 to 1; timeout in seconds; thresholds of 0: by shape, for 256 MB or more."""

    backend: str
    sizes: tuple[int, ...]
    iterations: int
    memory_share: float
    timeout: int
    warn_below: float = 0.0
    fail_below: float = 0.0


@dataclass(frozen=True)
class Place:
    """Where this rank stands and where the group meets, on the management plane."""

    rank: int
    size: int
    head_address: str
    port: int


def argv(command: Sequence[str], settings: Settings, place: Place, env: Mapping[str, str]) -> list[str]:
    """The call. The program itself goes to the standard input, so that it also runs in a container without a mount."""
    complete = {
        **env,
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": place.head_address,
        "MASTER_PORT": str(place.port),
    }
    return [
        *command,
        "-",
        *("--backend", settings.backend),
        *("--sizes", ",".join(map(str, settings.sizes))),
        *("--iterations", str(settings.iterations)),
        *("--memory-share", f"{settings.memory_share:g}"),
        *("--timeout", str(settings.timeout)),
        *(word for name, value in sorted(complete.items()) for word in ("--env", f"{name}={value}")),
    ]


def environment(
    fabric: Mapping[str, str], backend: str, extra: Mapping[str, str], engine: Mapping[str, str] | None = None
) -> dict[str, str]:
    """NCCL's settings as the engine gets them, with the log that the checks read; of gloo's only those that it knows.

    engine: NCCL's variables of the engine's profile, which win over the fabric's as they do in the engine. An empty value unsets one.
    """
    if backend == "nccl":
        wanted = {name: value for name, value in {**fabric, **(engine or {})}.items() if value}
        base = {**wanted, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    else:
        base = {"GLOO_SOCKET_IFNAME": fabric["GLOO_SOCKET_IFNAME"], "OMP_NUM_THREADS": "1"}
    return {**base, **extra}


def parse(stdout: str, stderr: str, rc: int) -> dict[str, Any]:
    """What the program told on its last line; a mapping with ``error`` when it ended without."""
    found = [line for line in stdout.splitlines() if line.startswith(MARK)]
    if found:
        try:
            told = json.loads(found[-1].removeprefix(MARK))
        except ValueError:
            told = None
        if isinstance(told, dict) and ("error" in told or told.get("results")):
            return told
    lines = [line.strip() for line in (stderr.strip() or stdout.strip()).splitlines() if line.strip()]
    said = [line for line in lines if not _HINT.match(line)] or lines
    return {"error": f"exit {rc} without a result: {said[-1] if said else 'no output'}"}


def checks(node: str, shape: str, size: int, told: Mapping[str, Any], settings: Settings) -> list[Check]:
    """The run, the sum, the bandwidth, and whether memory kept a size from being tried."""
    run = _run_check(node, size, told, settings)
    if not run.ok:
        return [run]
    found = [run, _sum_check(node, told), _bandwidth_check(node, shape, told, settings)]
    if told["left_out"]:
        found.append(_memory_check(node, told))
    return found


def untried_check(node: str, left_out: Sequence[str]) -> Check:
    """That ranks would be waited for in vain. left_out: the nodes of the group that do not take part."""
    return Check(
        id="fabric.allreduce",
        node=node,
        ok=False,
        found=f"not run without {', '.join(left_out)}, outside of this run",
        expected="every node of the group in the run",
        cure="run it on all nodes, without --limit",
        severity="info",
    )


def _run_check(node: str, size: int, told: Mapping[str, Any], settings: Settings) -> Check:
    error = told.get("error")
    if error is None and told["ranks"] != size:
        error = f"{told['ranks']} ranks took part"
    return Check(
        id="fabric.allreduce",
        node=node,
        ok=error is None,
        found=str(error) if error else f"{size} ranks over {_library(told)}, {told['device']}, torch {told['torch']}",
        expected=f"all {size} ranks end an all-reduce over {settings.backend} within {settings.timeout} s",
        cure=f"see the other nodes' checks first; the command on {node} needs a Python with torch and {settings.backend} "
        "(fabric_allreduce_command), and the rendezvous port on the head has to be reachable over the management network",
    )


def _library(told: Mapping[str, Any]) -> str:
    return "gloo" if told["backend"] == "gloo" else f"NCCL {told['library']}"


def _sum_check(node: str, told: Mapping[str, Any]) -> Check:
    wrong = [
        f"{result['wrong_items']} wrong of {_size(result['bytes'])}"
        for result in told["results"]
        if result["wrong_items"]
    ]
    return Check(
        id="fabric.allreduce_sum",
        node=node,
        ok=not wrong,
        found=", ".join(wrong) or f"every item right, up to {_size(told['results'][-1]['bytes'])}",
        expected="every item of the sum as computed",
        cure="do not serve a model over this group: a wrong sum is a wrong answer that nothing reports. Look at the error counters of "
        "the RDMA devices, then at NCCL's version (2.30.7 or newer on a ring)",
    )


def _bandwidth_check(node: str, shape: str, told: Mapping[str, Any], settings: Settings) -> Check:
    result = told["results"][-1]
    thresholds = SHAPES[shape]
    measured_alike = result["bytes"] >= JUDGED_FROM
    # Below that only what the user says counts, and he says it of the largest size that he asked for.
    own = (settings.warn_below or settings.fail_below) and not told["left_out"]
    if not measured_alike and not own:
        return _unjudged(node, result, thresholds)
    warn = settings.warn_below or (thresholds.warn_below if measured_alike else 0.0)
    fail = settings.fail_below or (thresholds.fail_below if measured_alike else 0.0)
    reached = float(result["bus_gbytes_s"])
    note = " (one leg alone, or sockets)" if measured_alike and reached < fail and told["backend"] == "nccl" else ""
    severity: Severity = "error" if reached < fail else "warning"
    usual = f"; usual are {thresholds.usual} ({thresholds.source})" if measured_alike else ""
    return Check(
        id="fabric.allreduce_bandwidth",
        node=node,
        ok=reached >= max(warn, fail),
        found=f"{_reached(result)}{note}",
        expected=f"at least {max(warn, fail):g} GB/s{usual}",
        cure="look at fabric.allreduce_transport and fabric.bandwidth of every node: one leg that is slow or not used slows the whole group",
        severity=severity,
    )


def _unjudged(node: str, result: Mapping[str, Any], thresholds: Thresholds) -> Check:
    return Check(
        id="fabric.allreduce_bandwidth",
        node=node,
        ok=False,
        found=f"{_reached(result)}, not judged at this size",
        expected=f"a size of {JUDGED_FROM // 10**6} MB or more, at which usual are {thresholds.usual} ({thresholds.source})",
        cure="give the ranks room for 256 MiB (fabric_allreduce_sizes, fabric_allreduce_memory_share; stop the engine before), or make this "
        "the largest of fabric_allreduce_sizes and say with fabric_allreduce_warn_below and fabric_allreduce_fail_below what is too slow",
        severity="info",
    )


def _reached(result: Mapping[str, Any]) -> str:
    return f"{float(result['bus_gbytes_s']):.2f} GB/s bus bandwidth at {_size(result['bytes'])}"


def _memory_check(node: str, told: Mapping[str, Any]) -> Check:
    left_out = ", ".join(_size(size) for size in told["left_out"])
    return Check(
        id="fabric.allreduce_memory",
        node=node,
        ok=False,
        found=f"{left_out} left out; the rank with the least free memory allows {_size(told['limit_bytes'])} for all buffers",
        expected="room for every size",
        cure="stop the engine and drop caches before measuring, or leave these sizes out of fabric_allreduce_sizes; bandwidth is "
        "judged at 256 MB or more, or by thresholds of your own",
        severity="warning",
    )


def _size(count: int) -> str:
    return f"{count / (1 << 20):g} MiB" if count >= 1 << 20 else f"{count} B"
