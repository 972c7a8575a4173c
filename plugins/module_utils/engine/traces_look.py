# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks for what a rank leaves on its node, and removes its shared memory that nobody maps."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from ..host import HostError, read_text, run, write_text
from ..memory import cache, holders, platform_look
from .machine import RUNTIMES
from .render_docker import LABEL
from .traces import Holder, Segment, Traces, after_stop, leftover, listening, lost_kib, memory_note

BASELINE = "gb10-ring-group/baseline.json"
_POLL_S = 1.0
_SAID = 300  # characters of what a program says


def record(etc_root: str) -> dict[str, Any]:
    """What the engine's unit was rendered from; empty when there is none."""
    try:
        found = json.loads(read_text(f"{etc_root}/gb10-ring/engine.json") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def ports_of(spec: Mapping[str, Any]) -> list[int]:
    """Ports at which the rank listens: the head alone does."""
    return sorted(int(port) for port in (spec.get("ports") or {}).values()) if spec.get("rank") == 0 else []


def look(proc: Path, run_root: str, spec: Mapping[str, Any], nvidia_smi: str) -> Traces:
    """The node as it is. Raises HostError."""
    return Traces(
        processes=platform_look.processes(proc.parent),
        containers=containers(str(spec.get("renderer", ""))),
        ports=port_holders(proc, ports_of(spec)),
        **gpu(proc, nvidia_smi),
        memory=cache.memory(proc),
        baseline_kib=baseline(proc, run_root),
    )


def _pids(proc: Path) -> Iterator[Path]:
    return proc.glob("[0-9]*")


def _links(path: Path) -> Iterator[str]:
    """Targets of a process's descriptors; those of one that has ended are none."""
    try:
        for entry in os.scandir(path / "fd"):
            yield os.readlink(entry.path)
    except OSError:
        return


def port_holders(proc: Path, ports: Collection[int]) -> dict[int, Holder]:
    """Who listens at these ports."""
    inodes: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        found = listening(read_text(proc / "net" / name) or "")
        inodes.update({inode: port for inode, port in found.items() if port in ports})
    held = {port: Holder(0, "a process of another namespace") for port in inodes.values()}
    for path in _pids(proc) if inodes else ():
        for target in _links(path):
            port = inodes.get(target[8:-1]) if target.startswith("socket:[") else None
            if port is not None:
                held[port] = _holder(path)
    return held


def _holder(path: Path) -> Holder:
    try:
        comm, group = (path / "comm").read_text().strip(), (path / "cgroup").read_text().strip()
    except OSError:
        comm = group = ""
    return Holder(int(path.name), comm, group)


def containers(renderer: str) -> tuple[str, ...]:
    """Names of containers that bear our label; none where the rank runs in no container."""
    if renderer not in RUNTIMES:
        return ()
    try:
        done = run([RUNTIMES[renderer], "ps", "--filter", f"label={LABEL}", "--format", "{{.Names}}"], check=False)
    except HostError:
        return ()
    return tuple(done.stdout.split()) if done.rc == 0 else ()


def own_containers() -> tuple[str, ...] | None:
    """Full ids of running containers that bear our label, of any runtime; None when one does not say."""
    ids: list[str] = []
    for runtime in RUNTIMES.values():
        if not os.access(runtime, os.X_OK):
            continue
        try:
            done = run([runtime, "ps", "--no-trunc", "--quiet", "--filter", f"label={LABEL}"], check=False)
        except HostError:
            return None
        if done.rc != 0:
            return None
        ids += done.stdout.split()
    return tuple(ids)


def image_problem(spec: Mapping[str, Any]) -> str:
    """Why the rank's image cannot be run; empty when it is there, or there is none."""
    renderer, image = str(spec.get("renderer", "")), str((spec.get("container") or {}).get("image", ""))
    if renderer not in RUNTIMES or not image:
        return ""
    try:
        done = run([RUNTIMES[renderer], "image", "inspect", "--format", "{{.Id}}", image], check=False)
    except HostError as error:
        return str(error)
    return "" if done.rc == 0 else done.message()


class Gpu(TypedDict):
    """The part of Traces that nvidia-smi tells."""

    gpu: tuple[Holder, ...] | None
    gpu_problem: str


def gpu(proc: Path, nvidia_smi: str) -> Gpu:
    """Processes that compute on the GPU, or why nobody can tell; nothing of it where there is no nvidia-smi."""
    if not nvidia_smi or not os.access(nvidia_smi, os.X_OK):
        return Gpu(gpu=None, gpu_problem="")
    try:
        done = run([nvidia_smi, "--query-compute-apps=pid", "--format=csv,noheader"], check=False)
    except HostError as error:
        return Gpu(gpu=None, gpu_problem=str(error))
    if done.rc != 0:
        said = " ".join(f"{done.stdout} {done.stderr}".split())[:_SAID]
        return Gpu(gpu=None, gpu_problem=f"{nvidia_smi}: exit {done.rc}: {said or 'no output'}")
    pids = [line.strip() for line in done.stdout.splitlines()]
    return Gpu(gpu=tuple(_holder(proc / pid) for pid in pids if pid.isdigit()), gpu_problem="")


def boot(proc: Path) -> str:
    return (read_text(proc / "sys/kernel/random/boot_id") or "").strip()


def baseline(proc: Path, run_root: str) -> int | None:
    """What no process held before the first start since boot."""
    try:
        found = json.loads(read_text(Path(run_root) / BASELINE) or "{}")
    except ValueError:
        return None
    value = found.get("unaccounted_kib") if found.get("boot") == boot(proc) else None
    return value if isinstance(value, int) else None


def keep_baseline(proc: Path, run_root: str) -> None:
    """Before the first start since boot. Raises HostError."""
    if baseline(proc, run_root) is None:
        held = {"boot": boot(proc), "unaccounted_kib": holders.unaccounted(cache.memory(proc))}
        write_text(Path(run_root) / BASELINE, json.dumps(held) + "\n", 0o600)


def settle(options: Mapping[str, Any], spec: Mapping[str, Any], stopped: bool) -> tuple[list[str], str]:
    """What is wrong with a stop, once there is nothing or after memory_wait_s seconds, and a note. Raises HostError.

    options: of engine_service. stopped: whether the rank ran until now.
    """
    proc, unit = Path(options["proc_root"]), options["unit"]
    limit = time.monotonic() + options["memory_wait_s"]
    while True:
        found = look(proc, options["run_root"], spec, "")
        if stopped and lost_kib(found.memory or {}, found.baseline_kib):
            found = replace(found, **gpu(proc, options["nvidia_smi"]))
        problems = after_stop(found, unit, stopped)
        if not problems or time.monotonic() >= limit:
            return problems, memory_note(found, unit) if stopped else ""
        time.sleep(_POLL_S)


def lost(proc: Path, run_root: str) -> float:
    """KiB that the driver has not given back."""
    return lost_kib(cache.memory(proc), baseline(proc, run_root))


def mapped(proc: Path, shm: Path) -> set[str]:
    """Names in /dev/shm that any process has mapped or open."""
    prefix = f"{shm}/"
    names: set[str] = set()
    for path in _pids(proc):
        names.update(target[len(prefix) :] for target in _links(path) if target.startswith(prefix))
        try:
            maps = (path / "maps").read_text(errors="replace")
        except OSError:
            continue
        names.update(line.partition(prefix)[2] for line in maps.splitlines() if prefix in line)
    return {name.removesuffix(" (deleted)") for name in names}


def remove_segments(proc: Path, shm: Path, since: float) -> list[str]:
    """Remove shared memory that the rank left since then; the names. Raises HostError."""
    segments = []
    for entry in os.scandir(shm) if shm.is_dir() else ():
        found = entry.stat(follow_symlinks=False)
        if entry.is_file(follow_symlinks=False):
            segments.append(Segment(entry.name, found.st_size, found.st_uid, found.st_mtime))
    gone = leftover(segments, mapped(proc, shm) if segments else (), os.geteuid(), since)
    for segment in gone:
        (shm / segment.name).unlink(missing_ok=True)
    return sorted(segment.name for segment in gone)


def kernels(spec: Mapping[str, Any]) -> list[str]:
    """Relative paths of compiled objects in the rank's cache."""
    root = Path(str(spec.get("cache_directory") or "/nonexistent"))
    found = [*root.rglob("*.so"), *root.rglob("*.o")] if root.is_dir() else []
    return sorted(str(path.relative_to(root)) for path in found)
