# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel, driver, memory and neighbours of an engine on one machine: checks before anything is changed; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..report.checks import Check
from . import firewall, holders, nccl_files, swap
from .holders import GIB_KIB, Process, gib

ENGINE = "gb10-ring-engine.service"
OOM_DAEMONS = ("earlyoom.service", "systemd-oomd.service")
LOST_KIB = 8 * GIB_KIB  # without process or cache; a leak of one failed container was about 33 GB (al-engr.com)

# Kernel and driver as they were published together (MASQ dsv41-deploy-public, christopherowen/spark-ds41f).
PAIRS: Mapping[str, str] = {"6.17.0-1031-nvidia": "580.173.02", "7.0.0-1019-nvidia": "580.178.04"}

_KHO_KERNEL = re.compile(r"7\.0\.0-\d+")  # MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259, NVIDIA/NV-Kernels#591


@dataclass(frozen=True)
class Platform:
    """One look. meminfo in KiB by name. units: ActiveState by name of those that exist. ruleset: nft's list, None when not known.

    time_synced: None when nobody can say. ofed, peermem: where traces of them were found. hotplug: None without such a control.
    """

    kernel: str = ""
    cmdline: str = ""
    page_size: int = 4096
    memory: Mapping[str, int] = field(default_factory=dict)
    swaps: tuple[swap.Swap, ...] = ()
    thp: str = ""
    driver: str = ""
    processes: tuple[Process, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    time_synced: bool | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    ofed: tuple[str, ...] = ()
    peermem: tuple[str, ...] = ()
    nccl_files: Mapping[str, str] = field(default_factory=dict)
    ruleset: Sequence[Mapping[str, Any]] | None = None
    hotplug: bool | None = None

    @property
    def kho_off(self) -> bool:
        return "kho=off" in self.cmdline.split()

    @property
    def engine_runs(self) -> bool:
        """Whether our unit is on its way up or down, or there."""
        return self.units.get(ENGINE, "inactive") not in ("inactive", "failed")

    @property
    def oom_daemon(self) -> str:
        active = [name.removesuffix(".service") for name in OOM_DAEMONS if self.units.get(name) == "active"]
        return " and ".join(active) or "none"

    def facts(self) -> dict[str, Any]:
        """What parity compares, and a report shows."""
        return {
            "kernel": self.kernel,
            "driver": self.driver or None,
            "page_size": self.page_size,
            "kho": "off" if self.kho_off else "not off",
            "memory": gib(self.memory.get("MemTotal", 0)) if self.memory else None,
            "swap": ", ".join(sorted(area.name for area in self.swaps)),
            "oom_daemon": self.oom_daemon,
            "thp": self.thp or None,
            "hotplug": self.hotplug,
            "rdma_core": self.packages.get("rdma-core"),
            "packages": dict(self.packages),
        }


@dataclass(frozen=True)
class Expected:
    """driver_pairs: kernel -> driver; empty leaves the check of the driver out. time_sync: whether the node has to keep its own clock right.

    channels: what the other nodes send to this one on the management plane. renderer: what the group's ranks run as, empty when not known.
    """

    node: str
    driver_pairs: Mapping[str, str] = field(default_factory=lambda: dict(PAIRS))
    page_sizes: tuple[int, ...] = (4096, 65536)
    time_sync: bool = True
    swap_off: bool = True
    legs: tuple[firewall.Leg, ...] = ()
    channels: tuple[firewall.Leg, ...] = ()
    renderer: str = ""


def checks(found: Platform, expected: Expected) -> list[Check]:
    """All of one machine; none stops another."""
    node = expected.node
    return [
        _kho(node, found),
        *_driver(node, found, expected.driver_pairs),
        _page_size(node, found, expected.page_sizes),
        *([_swap(node, found)] if expected.swap_off else ()),
        _engines(node, found, expected.renderer),
        _lost(node, found),
        *([_time(node, found)] if expected.time_sync else ()),
        *(_firewall(node, found, expected.legs)),
        *(_channels(node, found, expected.channels)),
        _nccl(node, found),
        _vendor(node, found),
    ]


def _kho(node: str, found: Platform) -> Check:
    """Kexec handover takes memory away as CMA; kernels that switch it on need kho=off even before it is seen."""
    taken = holders.reserved(found.memory)
    affected = bool(_KHO_KERNEL.match(found.kernel)) and not found.kho_off
    total, free = found.memory.get("CmaTotal", 0), found.memory.get("CmaFree", 0)
    text = f"CmaTotal {total} KiB, CmaFree {free} KiB" + (f": {gib(taken)} set aside" if taken else "")
    return Check(
        "platform.kho",
        node,
        ok=not taken and not affected,
        found=f"{text}; {found.kernel} {'with' if found.kho_off else 'without'} kho=off",
        expected="CmaFree not above CmaTotal" + (", and kho=off for this kernel" if affected else ""),
        cure="Boot with kho=off on the kernel command line (NVIDIA's package nvidia-spark-grub-kho sets it), or kernel 6.17.0-1031-nvidia "
        "with driver 580.173.02: the reservation of about 9 GiB makes ibv_reg_mr fail with 'Cannot allocate memory'",
        severity="error" if taken else "warning",
    )


def _driver(node: str, found: Platform, pairs: Mapping[str, str]) -> list[Check]:
    if not pairs:
        return []
    kernel = found.kernel.removesuffix("-64k")
    wanted = pairs.get(kernel)
    return [
        Check(
            "platform.driver",
            node,
            ok=bool(found.driver) and wanted in (None, found.driver),
            found=f"kernel {found.kernel}, NVIDIA driver {found.driver or 'not loaded'}",
            expected=f"driver {wanted} with kernel {kernel}" if wanted else "an NVIDIA driver",
            cure="Install the pair that was tried (sudo apt-get full-upgrade on DGX OS), or add yours to preflight_driver_pairs"
            if found.driver
            else "Load the NVIDIA driver (nvidia-smi tells why it is not), then run again",
            severity="warning" if found.driver else "error",
        )
    ]


def _page_size(node: str, found: Platform, allowed: Sequence[int]) -> Check:
    return Check(
        "platform.page_size",
        node,
        ok=found.page_size in allowed,
        found=f"{found.page_size} bytes",
        expected=" or ".join(map(str, allowed)) + " bytes",
        cure="Boot a kernel with that page size, or add this one to preflight_page_sizes",
    )


def _swap(node: str, found: Platform) -> Check:
    """Swap that the memory role could not switch off; any other it will."""
    refused = swap.refusal(found.swaps, found.memory.get("MemAvailable"))
    return Check(
        "platform.swap",
        node,
        ok=not refused,
        found=", ".join(area.text() for area in found.swaps) or "no swap in use",
        expected="no swap, or swap that fits into the available memory when it is switched off",
        cure=f"{refused}" if refused else "",
    )


def _engines(node: str, found: Platform, renderer: str) -> Check:
    stale = holders.foreign(found.processes, ENGINE, found.engine_runs, renderer)
    memory = f"; {gib(found.memory.get('MemAvailable', 0))} of {gib(found.memory.get('MemTotal', 0))} available"
    lost = holders.unaccounted(found.memory)
    driver = f", {gib(lost)} with the GPU driver" if lost >= GIB_KIB else ""
    return Check(
        "platform.stale_engine",
        node,
        ok=not stale,
        found="; ".join(process.text() for process in stale) + memory + driver if stale else "no other engine" + memory,
        expected="no engine outside of the group's pods"
        if renderer == holders.KUBERNETES
        else f"no engine that {ENGINE} does not run",
        cure=_stale_cure(stale),
    )


def _stale_cure(stale: Sequence[Process]) -> str:
    """A cluster starts again what is killed in a pod, so that is no cure there."""
    pids = " ".join(str(process.pid) for process in stale if not process.in_pod)
    pods = ", ".join(dict.fromkeys(process.pod for process in stale if process.in_pod))
    ways = [
        *([f"Stop it where it was started (its container or unit; else sudo kill {pids})"] if pids or not pods else ()),
        *(
            [
                f"Delete in the cluster what runs the pod of {pods} (its Deployment or InferenceService; kubectl get pods -A -o wide shows it), "
                "or set engine_renderer to kubernetes if it is this group"
            ]
            if pods
            else ()
        ),
    ]
    return f"{'. '.join(ways)}, and look that the memory comes back"


def _lost(node: str, found: Platform) -> Check:
    """Memory that the driver kept from an engine that is gone."""
    lost = holders.unaccounted(found.memory)
    serving = found.engine_runs or bool(found.processes)
    return Check(
        "platform.lost_memory",
        node,
        ok=serving or lost < LOST_KIB,
        found=f"{gib(lost)} in no process and no cache" + (", an engine runs" if serving else ""),
        expected=f"less than {gib(LOST_KIB)} while no engine runs",
        cure="Restart the node: the GPU driver keeps memory of an engine that was killed, and nothing else gives it back",
        severity="warning",
    )


def _time(node: str, found: Platform) -> Check:
    said = {True: "synchronised", False: "not synchronised", None: "unknown: timedatectl does not answer"}
    return Check(
        "platform.time_sync",
        node,
        ok=found.time_synced is True,
        found=f"clock {said[found.time_synced]}",
        expected="clock synchronised by a time service",
        cure="sudo timedatectl set-ntp true (systemd-timesyncd), or look at chronyc tracking; logs of ranks cannot be compared otherwise",
        severity="warning",
    )


def _firewall(node: str, found: Platform, legs: Sequence[firewall.Leg]) -> list[Check]:
    if found.ruleset is None or not legs:
        return []
    blocks = firewall.blocks(found.ruleset, legs)
    shut = [block for block in blocks if block.hook == "input"]
    names = sorted({netdev for block in shut for netdev in block.netdevs})
    closed = Check(
        "rdma.firewall",
        node,
        ok=not shut,
        found="; ".join(f"chain {block.chain} lets nothing new in on {', '.join(block.netdevs)}" for block in shut)
        or "nothing that comes in on the fabric is dropped",
        expected="new traffic of the fabric's legs accepted",
        cure=" and ".join(f"sudo ufw allow in on {name}" for name in names)
        + "; without ufw, accept those netdevs in the chain named above. Pings of the ladder and bootstrap over a leg need it",
    )
    forward = [block.chain for block in blocks if block.hook == "forward"]
    routed = Check(
        "rdma.forward",
        node,
        ok=not forward,
        found=f"{', '.join(forward)} does not forward between legs"
        if forward
        else "nothing keeps traffic from being forwarded",
        expected="no need: a rank reaches both neighbours directly, nothing is routed through a node",
        cure="Leave it. Containers need host networking (--network host), as Docker's policy DROP of the FORWARD chain also stops bridges",
        severity="info",
    )
    return [closed, routed]


def _channels(node: str, found: Platform, channels: Sequence[firewall.Leg]) -> list[Check]:
    """A warning: a rule of iptables that nft cannot show may let in what seems to be dropped."""
    if found.ruleset is None or not channels:
        return []
    shut: dict[str, set[int]] = {}
    for port in sorted({leg.udp for leg in channels}):
        legs = [leg for leg in channels if leg.udp == port]
        for block in firewall.blocks(found.ruleset, legs):
            if block.hook == "input":
                shut.setdefault(block.chain, set()).add(port)
    netdev, ports = channels[0].netdev, sorted({port for found_ports in shut.values() for port in found_ports})
    return [
        Check(
            "platform.channels",
            node,
            ok=not shut,
            found="; ".join(
                f"chain {chain} seems to drop UDP to {', '.join(map(str, sorted(dropped)))} on {netdev}"
                for chain, dropped in shut.items()
            )
            or f"nothing that other nodes send by UDP on {netdev} is dropped",
            expected=f"UDP from the other nodes to {', '.join(map(str, sorted({leg.udp for leg in channels})))} accepted on {netdev}",
            cure=" and ".join(f"sudo ufw allow in on {netdev} to any port {port} proto udp" for port in ports)
            + "; without ufw, accept them in the chain named above. The supervisors of the group and the memory guards talk there",
            severity="warning",
        )
    ]


def _nccl(node: str, found: Platform) -> Check:
    given = nccl_files.assignments(found.nccl_files)
    harmful = [one for one in given if one.harmful]
    return Check(
        "rdma.nccl_conf",
        node,
        ok=not given,
        found="; ".join(one.text() for one in given) or "no NCCL configuration file sets anything",
        expected="no settings beside those of the engine's unit",
        cure="Take these lines out"
        + (
            f": {', '.join(sorted({one.name for one in harmful}))} must stay unset on this fabric"
            if harmful
            else "; the engine's environment has precedence, other programs follow the file"
        ),
        severity="error" if harmful else "warning",
    )


def _vendor(node: str, found: Platform) -> Check:
    """Vendor drivers that GB10 neither needs nor supports."""
    traces = [*found.ofed, *found.peermem]
    return Check(
        "rdma.vendor_driver",
        node,
        ok=not traces,
        found=", ".join(traces) or "the kernel's own mlx5 driver, no nvidia-peermem",
        expected="the kernel's own mlx5 driver, no nvidia-peermem",
        cure="Remove the vendor's OFED packages and every attempt to load nvidia-peermem (modules-load.d, modprobe.d): GPUDirect RDMA is not "
        "supported on GB10, and the kernel's driver is the one that was tried",
        severity="warning",
    )
