# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an engine's memory fits before it is started, with the arithmetic of its own start-up check; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import holders
from .holders import GIB_KIB, Process, gib


@dataclass(frozen=True)
class Need:
    """What the engine's profile says. Sizes in GiB, utilization as a part of MemTotal (0: the engine does not compare)."""

    weights_gib: float = 0.0
    activations_gib: float = 0.0
    graphs_gib: float = 0.0
    utilization: float = 0.0

    @property
    def sum_kib(self) -> float:
        return (self.weights_gib + self.activations_gib + self.graphs_gib) * GIB_KIB

    def sum_text(self) -> str:
        parts = f"{self.weights_gib:g} weights + {self.activations_gib:g} activations + {self.graphs_gib:g} graphs"
        return f"{parts} = {gib(self.sum_kib)}"

    def share_kib(self, memory: Mapping[str, int]) -> float:
        return self.utilization * memory.get("MemTotal", 0)

    def share_text(self, memory: Mapping[str, int]) -> str:
        share = self.share_kib(memory)
        return f"{self.utilization:g} x {gib(memory.get('MemTotal', 0))} = {gib(share)}"


def option_problems(need: Need) -> list[str]:
    sizes = {"weights_gib": need.weights_gib, "activations_gib": need.activations_gib, "graphs_gib": need.graphs_gib}
    bad = [f"{name} is {value:g}; 0 or more GiB are allowed" for name, value in sizes.items() if value < 0]
    if not 0 <= need.utilization < 1:
        bad.append(
            f"utilization is {need.utilization:g}; a part of 1, such as 0.78, is allowed, or 0 for no comparison"
        )
    return bad


def wanted_kib(need: Need, memory: Mapping[str, int]) -> float:
    """MemAvailable that the start asks for."""
    return max(need.sum_kib, need.share_kib(memory))


def too_small(need: Need, memory: Mapping[str, int]) -> str:
    """Why no waiting helps: the share that the engine may use does not hold what it loads. Empty when it does."""
    share = need.share_kib(memory)
    if not need.utilization or share >= need.sum_kib:
        return ""
    return (
        f"the engine may use {need.share_text(memory)}, and it needs {need.sum_text()}: it would end with a negative KV cache. "
        "Raise the utilization of the profile"
    )


def fits(need: Need, memory: Mapping[str, int]) -> bool:
    return memory.get("MemAvailable", 0) >= wanted_kib(need, memory)


def refusal(need: Need, memory: Mapping[str, int], processes: Iterable[Process], waited_s: float) -> str:
    """What is missing, and who holds it."""
    available, wanted = memory.get("MemAvailable", 0), wanted_kib(need, memory)
    why = need.share_text(memory) if need.share_kib(memory) >= need.sum_kib else need.sum_text()
    engines = list(processes)
    cure = (
        "Stop the engine named above (whole process group), then run again"
        if engines
        else "Restart the node: memory that no process holds comes back only then"
        if holders.unaccounted(memory) > 8 * GIB_KIB
        else "Stop what holds it, then run again"
    )
    held = "; ".join(holders.words(memory, engines)) or "nothing above 1 GiB"
    return (
        f"MemAvailable is {gib(available)} after {waited_s:.0f} s, and the engine asks for {gib(wanted)} ({why}): "
        f"{gib(wanted - available)} too few. Held by: {held}. {cure}"
    )
