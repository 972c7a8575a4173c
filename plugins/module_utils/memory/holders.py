# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a machine's memory: kernel's figures and engine processes, put into words with their arithmetic; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

GIB_KIB = 1024 * 1024

# How inference engines call their processes: by setproctitle, by program, by Python module.
_TITLES = re.compile(r"(VLLM|ray|sglang)::")
_PROGRAMS = re.compile(r"vllm|llama-(server|cli)|tritonserver|trtllm-\w+")
_MODULES = re.compile(r"(vllm|sglang|exllamav3|tabbyapi)(\.|$)")
_CONTAINER = re.compile(r"(docker|libpod|crio|cri-containerd)-[0-9a-f]+\.scope|/docker")
# /kubepods/burstable/podUID/ID, /kubepods.slice/kubepods-podUID.slice/cri-containerd-ID.scope, and with the kubelet's own root before it.
_POD = re.compile(r"[/-]kubepods[./-]")
KUBERNETES = "kubernetes"  # the renderer whose ranks are pods


@dataclass(frozen=True)
class Process:
    """An engine's process. name: as the machine shows it. rss_kib: resident memory, without what the GPU driver holds for it."""

    pid: int
    name: str
    rss_kib: int
    cgroup: str = ""

    @property
    def contained(self) -> bool:
        """Whether it runs in a container, one of a pod too."""
        return bool(_CONTAINER.search(self.cgroup)) or self.in_pod

    @property
    def in_pod(self) -> bool:
        """Whether it runs in a pod of Kubernetes, whatever the driver of its control groups and its runtime."""
        return bool(_POD.search(self.cgroup))

    @property
    def pod(self) -> str:
        """Control group of its pod's container, empty outside of a pod."""
        rows = [line.split(":", 2)[-1] for line in self.cgroup.splitlines() if _POD.search(line)]
        return rows[0] if rows else ""

    def text(self) -> str:
        where = ", in a pod" if self.in_pod else ", in a container" if self.contained else ""
        return f"pid {self.pid} {self.name} ({gib(self.rss_kib)} resident{where})"


def engine_name(comm: str, cmdline: str) -> str:
    """How the process is called when it is an inference engine's, else empty. cmdline: its words with blanks between."""
    words = cmdline.split()
    title = next((name for name in (*words[:1], comm) if _TITLES.match(name)), "")
    if title:
        return title
    program, module = _program(words)
    return " ".join(words[:6])[:60] if _PROGRAMS.fullmatch(program) or _MODULES.match(module) else ""


def _program(words: Sequence[str]) -> tuple[str, str]:
    """Name of the program that the command line runs, and of the Python module; of an interpreter its script."""
    name = words[0].rpartition("/")[2] if words else ""
    if not name.startswith("python"):
        return name, ""
    rest = [word for word in words[1:] if word == "-m" or not word.startswith("-")]
    if rest[:1] == ["-m"]:
        return "", rest[1] if len(rest) > 1 else ""
    return (rest[0].rpartition("/")[2] if rest else ""), ""


def foreign(processes: Iterable[Process], unit: str, unit_active: bool, renderer: str = "") -> list[Process]:
    """Engine processes that are not the group's. renderer: what its ranks run as, empty when not known.

    With kubernetes a pod may be its own: no unit of ours runs it. With any other a container may be, while our unit is active; a pod is not.
    """

    def ours(process: Process) -> bool:
        if f"/{unit}" in process.cgroup:
            return True
        return renderer == KUBERNETES if process.in_pod else unit_active and process.contained

    return [process for process in processes if not ours(process)]


def gib(kib: float) -> str:
    return f"{kib / GIB_KIB:.1f} GiB"


def fields(meminfo: str) -> dict[str, int]:
    """Figures of /proc/meminfo in KiB."""
    return {key: int(value) for key, value in re.findall(r"^([\w()]+):\s+(\d+)", meminfo, re.MULTILINE)}


def unaccounted(memory: Mapping[str, int]) -> int:
    """KiB that are neither free nor in any of the kernel's own counts: what the GPU driver has given away, or lost."""
    counted = ("MemFree", "Buffers", "Cached", "AnonPages", "Slab", "KernelStack", "PageTables", "SwapCached", "Percpu")
    return max(0, memory.get("MemTotal", 0) - sum(memory.get(key, 0) for key in counted))


def reserved(memory: Mapping[str, int]) -> int:
    """KiB that kexec handover sets aside as CMA: it shows as more free than total."""
    return max(0, memory.get("CmaFree", 0) - memory.get("CmaTotal", 0))


def words(memory: Mapping[str, int], processes: Iterable[Process]) -> list[str]:
    """Each holder of at least 1 GiB, largest first, engines by name."""
    shmem = memory.get("Shmem", 0)
    parts = {
        "page cache": memory.get("Cached", 0) + memory.get("Buffers", 0) - shmem,
        "shared memory (Shmem)": shmem,
        "anonymous memory": memory.get("AnonPages", 0),
        "kernel slabs": memory.get("Slab", 0),
        "no process (allocated by the GPU driver)": unaccounted(memory),
        "kexec handover (CmaFree above CmaTotal)": reserved(memory),
    }
    held = [f"{gib(kib)} {name}" for name, kib in sorted(parts.items(), key=lambda part: -part[1]) if kib >= GIB_KIB]
    return [*held, *(process.text() for process in processes)]
