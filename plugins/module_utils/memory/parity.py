# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be equal on all nodes of a group, compared: the odd one out is named; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..report.checks import Check, Severity

# Property -> what a difference means, and what a person does about it.
PROPERTIES: Mapping[str, tuple[Severity, str]] = {
    "kernel": (
        "error",
        "Boot the same kernel on every node (grub-reboot, then pin it); a rank with another one skews or ends the group",
    ),
    "driver": ("error", "Install the same NVIDIA driver on every node"),
    "page_size": ("error", "Boot the same kernel flavour (4 KiB or 64 KiB pages) on every node"),
    "kho": ("error", "Give every node the same kernel command line: kho=off, by the package nvidia-spark-grub-kho"),
    "memory": ("warning", "Look at the firmware's carve-outs: nodes of a group should have the same memory"),
    "swap": ("warning", "Run the memory role on every node; one node with swap moves the group's figures"),
    "oom_daemon": ("warning", "Set memory_oom_daemon, so that every node has the same one or none"),
    "thp": ("warning", "Run the memory role on every node (memory_thp)"),
    "hotplug": ("warning", "Give every node the same setting of the ConnectX hot-plug power control"),
    "rdma_core": ("warning", "Install the same rdma-core on every node"),
}


def compare(facts: Mapping[str, Mapping[str, Any]], names: Sequence[str] = tuple(PROPERTIES)) -> list[Check]:
    """facts: node -> property -> value; None or an absent one is not compared. One check a property, or one for each odd node."""
    unknown = sorted(set(names) - set(PROPERTIES))
    if unknown:
        raise ValueError(f"unknown property {', '.join(unknown)}; known are {', '.join(PROPERTIES)}")
    found = []
    for name in names:
        held = {node: str(values[name]) for node, values in facts.items() if values.get(name) is not None}
        if len(held) > 1:
            found += _compared(name, held)
    return found


def _compared(name: str, held: Mapping[str, str]) -> list[Check]:
    severity, cure = PROPERTIES[name]
    groups: dict[str, list[str]] = {}
    for node, value in held.items():
        groups.setdefault(value, []).append(node)
    ranked = sorted(groups.values(), key=len, reverse=True)
    most = ranked[0]
    if len(ranked) == 1:
        text = f"{held[most[0]] or 'none'} on all nodes"
        return [Check(f"parity.{name}", most[0], True, text, "the same on all nodes", cure, severity)]
    tie = len(ranked[1]) == len(most)
    odd = [node for node in held if tie or node not in most]
    return [
        Check(
            f"parity.{name}",
            node,
            False,
            held[node] or "none",
            f"the same on all nodes: {_others(held, node)}",
            cure,
            severity,
        )
        for node in odd
    ]


def _others(held: Mapping[str, str], node: str) -> str:
    """What the other nodes have, nodes of one value together."""
    by_value: dict[str, list[str]] = {}
    for other, value in held.items():
        if other != node:
            by_value.setdefault(value, []).append(other)
    return "; ".join(
        f"{', '.join(nodes)} {'have' if len(nodes) > 1 else 'has'} {value or 'none'}"
        for value, nodes in by_value.items()
    )


def facts_of(hostvars: Mapping[str, Any], hosts: Sequence[str], variable: str) -> dict[str, Mapping[str, Any]]:
    """The compared properties of each host from the registered variable's facts.platform; of a host that gave none, nothing."""
    found = {}
    for host in hosts:
        platform = hostvars[host].get(variable, {}).get("facts", {}).get("platform") if host in hostvars else None
        if platform:
            found[host] = platform
    return found
