# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rank leaves on its node, before a start and after a stop: processes, containers, ports, shared memory, the GPU; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..memory import holders
from ..memory.holders import GIB_KIB, Process, gib

# Shared memory of NCCL, of Python's and torch's multiprocessing, of the engines themselves.
_SEGMENT = re.compile(r"(nccl-|psm_|torch_|sem\.mp-|vllm|sglang|cuda\.shm\.)")
_LISTEN = "0A"
LOST_KIB = 8 * GIB_KIB  # what no process holds and a healthy node shows as well: driver, firmware


@dataclass(frozen=True)
class Holder:
    """A process that listens at a port, or has the GPU. unit: the systemd unit or container that it belongs to, by its control group."""

    pid: int
    name: str
    cgroup: str = ""

    def text(self) -> str:
        return f"pid {self.pid} {self.name}".strip()


@dataclass(frozen=True)
class Segment:
    """A file of /dev/shm. changed: Unix seconds."""

    name: str
    size: int
    uid: int
    changed: float


@dataclass(frozen=True)
class Traces:
    """A node as it is. ports: who listens at those of the rank. containers: ids of ours. gpu: None where there is none to ask, or
    nobody can tell, and then gpu_problem says why.

    memory: figures of /proc/meminfo in KiB. baseline_kib: what no process held before the first start, None when not known.
    own_containers: full ids of running containers with our label; None when nobody can tell, and then every container may be ours.
    """

    processes: tuple[Process, ...] = ()
    containers: tuple[str, ...] = ()
    ports: Mapping[int, Holder] | None = None
    gpu: tuple[Holder, ...] | None = None
    gpu_problem: str = ""
    memory: Mapping[str, int] | None = None
    baseline_kib: int | None = None
    own_containers: tuple[str, ...] | None = None


def listening(table: str) -> dict[str, int]:
    """Port by socket inode from /proc/net/tcp or tcp6, of sockets that listen."""
    rows = (line.split() for line in table.splitlines()[1:])
    return {row[9]: int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 9 and row[3] == _LISTEN}


def leftover(segments: Iterable[Segment], mapped: Collection[str], uid: int, since: float) -> list[Segment]:
    """Shared memory that an engine of this user left since then, and that no process has mapped or open."""
    return [
        segment
        for segment in segments
        if _SEGMENT.match(segment.name)
        and segment.uid == uid
        and segment.name not in mapped
        and since
        and segment.changed >= since
    ]


def lost_kib(memory: Mapping[str, int], baseline_kib: int | None) -> float:
    """Memory that the driver has not given back: above what no process held before the first start."""
    held = holders.unaccounted(memory)
    return max(0, held - (baseline_kib if baseline_kib is not None else 0) - LOST_KIB)


def after_stop(found: Traces, unit: str, stopped: bool = True) -> list[str]:
    """What is wrong with a stop: texts with their cure. Empty when nothing is left of the rank.

    stopped: something ran until now. Otherwise ports and memory may long be somebody else's, to whom the node was left.
    """
    own = [process.text() for process in found.processes if f"/{unit}" in process.cgroup]
    problems = (
        [f"{', '.join(own)} of {unit} is still there. Cure: kill it; if it does not go, reboot the node"] if own else []
    )
    if found.containers:
        problems.append(f"container {', '.join(found.containers)} is still there. Cure: docker or podman rm --force")
    for port, holder in sorted((found.ports or {}).items()) if stopped else ():
        problems.append(f"port {port} is held by {holder.text()}. Cure: end it, or choose another port")
    lost = lost_kib(found.memory or {}, found.baseline_kib)
    if lost and stopped and not beside(found, unit):
        problems.append(
            f"{gib(lost)} of memory have not come back, and no process holds them: the driver keeps them. Cure: reboot the node"
        )
    return problems


def beside(found: Traces, unit: str) -> list[str]:
    """Who computes on the GPU and is not the unit's: memory that no process holds may be theirs."""
    return [holder.text() for holder in found.gpu or () if f"/{unit}" not in holder.cgroup]


def memory_note(found: Traces, unit: str) -> str:
    """What a person is told when memory cannot be told from that of others; empty otherwise."""
    lost, users = lost_kib(found.memory or {}, found.baseline_kib), beside(found, unit)
    if not lost or not users:
        return ""
    return f"{gib(lost)} of memory are held by no process, and {', '.join(users)} computes on the GPU: whether all of the rank's came back is not known"


def stale(found: Traces, unit: str, active: bool) -> list[str]:
    """Engines that are not the unit's: they hold memory, ports or a rendezvous of an earlier group."""
    foreign = holders.foreign(found.processes, unit, False)
    texts = [process.text() for process in foreign if not (active and _ours(process.cgroup, found, unit))]
    return [*texts, *(f"container {name}" for name in found.containers if not active)]


def taken(found: Traces, unit: str, active: bool) -> list[str]:
    """Ports of the rank at which somebody else listens. A container's process is not in the unit's control group."""
    ports = (found.ports or {}).items()
    return [
        f"{port} by {holder.text()}"
        for port, holder in sorted(ports)
        if not (active and _ours(holder.cgroup, found, unit))
    ]


def _ours(cgroup: str, found: Traces, unit: str) -> bool:
    """Whether a process of this control group is the unit's, or its container's. A pod is a cluster's."""
    process = Process(0, "", 0, cgroup)
    if f"/{unit}" in cgroup:
        return True
    if found.own_containers is None:
        return process.contained and not process.in_pod
    return not process.in_pod and any(one in cgroup for one in found.own_containers)


def gpu_users(found: Traces, unit: str, active: bool) -> list[str]:
    """Processes that compute on the GPU and are not the unit's."""
    return [holder.text() for holder in found.gpu or () if not (active and _ours(holder.cgroup, found, unit))]


def caches(kernels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Compiled kernels that a node lacks and another has, by node. kernels: relative paths of shared objects by node."""
    every = sorted({path for paths in kernels.values() for path in paths})
    return {
        node: lacking for node, paths in kernels.items() if (lacking := [path for path in every if path not in paths])
    }


def half_built(paths: Iterable[str]) -> list[str]:
    """Directories with object files and no shared object: a build that was cut short, which the engine takes up at its start."""
    objects = {path.rpartition("/")[0] for path in paths if path.endswith((".o", ".cuda.o"))}
    built = {path.rpartition("/")[0] for path in paths if path.endswith(".so")}
    return sorted(objects - built)
