# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what gates.py judges: the rank's record, its revision's config.json, the log of the running process, the head's metrics, memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..host import HostError, read_text, run
from .gate_claims import Seen
from .machine import ask

# A start over RDMA with NCCL_DEBUG_SUBSYS=INIT,NET prints 22,147 lines (LLMKube, three-Spark ring); what is printed later is served requests.
OLDEST, NEWEST = 50_000, 5_000


def record(path: str) -> Mapping[str, Any] | None:
    """The rank's record, None when there is none. Raises HostError when it is not what the engine role writes."""
    text = read_text(path)
    if text is None:
        return None
    try:
        held = json.loads(text)
    except ValueError as error:
        raise HostError(f"{path} is not JSON ({error}). Cure: run the engine role") from error
    if not isinstance(held, dict):
        raise HostError(f"{path} holds no record of an engine. Cure: run the engine role")
    return held


def config(held: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The config.json of the revision that the rank was started with; None when it cannot be read, which the checkpoint's checks tell."""
    path = (held.get("model") or {}).get("path")
    try:
        parsed = json.loads((path and read_text(f"{path}/config.json")) or "null")
    except (HostError, ValueError):
        return None
    return parsed if isinstance(parsed, dict) else None


def look(unit: str, url: str, head: bool) -> Seen | None:
    """None when the unit does not run: there is nothing to prove then."""
    shown = dict(
        line.split("=", 1)
        for line in run(["systemctl", "show", "-p", "ActiveState,InvocationID", "--", unit]).stdout.split()
    )
    invocation = shown.get("InvocationID")
    if shown.get("ActiveState") != "active" or not invocation:
        return None
    if not head:
        return Seen(lines(invocation))
    metrics, version = (
        reply.body if reply.status == 200 else "" for reply in (ask(url, path) for path in ("/metrics", "/version"))
    )
    return Seen(lines(invocation), metrics, version)


def lines(invocation: str) -> tuple[str, ...]:
    """Of one run of the unit, the oldest lines, which tell of its start, and the newest, without those in both."""
    first = _journal(invocation, f"+{OLDEST}")
    return first if len(first) < OLDEST else (*first, *_journal(invocation, str(NEWEST)))


def _journal(invocation: str, count: str) -> tuple[str, ...]:
    argv = ["journalctl", "-q", "--no-pager", "-o", "cat", "-n", count, f"_SYSTEMD_INVOCATION_ID={invocation}"]
    return tuple(run(argv).stdout.splitlines())


def meminfo(proc: Path) -> str:
    return read_text(proc / "meminfo") or ""
