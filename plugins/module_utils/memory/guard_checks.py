# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the memory guard's status comes to, as checks of the node; pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from ..report.checks import Check
from .guard_unit import UNIT, Found

FRESH_S = 30.0  # as its watchdog; it writes every 5 s
ANSWERED_S = 180.0  # three times the guards' own round of pings


def checks(
    node: str,
    found: Found,
    digest: str,
    *,
    status: Mapping[str, Any],
    last: Mapping[str, Any],
    peers: Iterable[str],
    now: float,
) -> list[Check]:
    """digest: of the wanted files. status, last: what the guard wrote, empty when absent. now: the node's monotonic seconds."""
    problem = _not_armed(found, digest, status, now)
    rows = [
        Check(
            "memory.guard",
            node,
            ok=not problem,
            found=problem or _armed(status),
            expected="armed, started at boot, as installed",
            cure=f"Run the memory role; if it stays, journalctl -u {UNIT}",
        )
    ]
    if not problem:
        rows.append(_peers(node, status, list(peers), now))
    stopped = _stopped(status, last)
    if stopped:
        rows.append(_stop(node, stopped))
    return rows


def _not_armed(found: Found, digest: str, status: Mapping[str, Any], now: float) -> str:
    if not found.active:
        return f"{UNIT} does not run"
    if not found.enabled:
        return f"{UNIT} is not started at boot"
    if not status or now - status.get("at", 0.0) > FRESH_S:
        return f"{UNIT} has not said anything for more than {FRESH_S:g} s"
    if status.get("problem"):
        return str(status["problem"])
    return "" if status.get("digest") == digest else f"{UNIT} runs from other settings or another version"


def _armed(status: Mapping[str, Any]) -> str:
    memory = status.get("memory", {})
    return (
        f"armed since {_when(status.get('armed_since', 0))}, engine {status.get('phase')}, MemFree {memory.get('free')} MiB, "
        f"MemAvailable {memory.get('available')} MiB"
    )


def _peers(node: str, status: Mapping[str, Any], peers: list[str], now: float) -> Check:
    answered = status.get("answered") or {}
    silent = [name for name in peers if answered.get(name) is None or now - answered[name] > ANSWERED_S]
    return Check(
        "memory.guard_peers",
        node,
        ok=not silent,
        found=f"no answer from the guard of {', '.join(silent)}" if silent else f"{len(peers)} of {len(peers)} answer",
        expected="the guard of every other node answers, with the same token",
        cure=(
            "Run the memory role on all nodes together; if it stays, see whether a firewall drops UDP on memory_guard_port. Until "
            "then a stop on one node leaves the others' engines running"
        ),
        severity="warning",
    )


def _stopped(status: Mapping[str, Any], last: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last stop, unless the engine has been started since."""
    run = status.get("run")
    return {} if not last or (run and run != last.get("run")) else last


def _stop(node: str, last: Mapping[str, Any]) -> Check:
    return Check(
        "memory.guard_stop",
        node,
        ok=False,
        found=f"the group was stopped at {_when(last.get('at', 0))}: {last.get('why')}; {last.get('figures')}",
        expected="no stop since the engine was started last",
        cure=(
            "Give the engine less memory (fewer sequences, a smaller KV cache) or find what else takes it, then run the engine role, "
            "which starts the group again"
        ),
        severity="warning",
    )


def _when(at: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(at or 0)))
