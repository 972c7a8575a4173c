# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what gates.py judges: the rank's record, its revision's config.json, the log of the running process, the head's metrics, memory."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..host import HostError, read_text, run
from .gate_claims import Seen
from .machine import ask

# A start over RDMA with NCCL_DEBUG_SUBSYS=INIT,NET prints 22,147 lines (LLMKube, three-Spark ring); what is printed later is served requests.
OLDEST, NEWEST = 50_000, 5_000
# Of a longer log, what journalctl finds in all of it: lines at once, and seconds, in which it gets through millions of lines.
MOST, SEARCH_S = 200, 15


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


def look(unit: str, url: str, head: bool, forbidden: Sequence[str] = ()) -> Seen | None:
    """None when the unit does not run: there is nothing to prove then. forbidden: patterns of lines to find wherever in the log they stand."""
    shown = dict(
        line.split("=", 1)
        for line in run(["systemctl", "show", "-p", "ActiveState,InvocationID", "--", unit]).stdout.split()
    )
    invocation = shown.get("InvocationID")
    if shown.get("ActiveState") != "active" or not invocation:
        return None
    said, unsearched = lines(invocation, forbidden)
    if not head:
        return Seen(said, unsearched=unsearched)
    metrics, version = (
        reply.body if reply.status == 200 else "" for reply in (ask(url, path) for path in ("/metrics", "/version"))
    )
    return Seen(said, metrics, version, unsearched)


def lines(invocation: str, forbidden: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Of one run of the unit, the oldest lines, which tell of its start, those that match a pattern of forbidden, and the newest.

    With them why a log that is longer than that was not searched for the patterns; empty when it was, or was read whole.
    """
    first = _journal(invocation, "-n", f"+{OLDEST}")
    if len(first) < OLDEST:
        return first, ""
    newest = _journal(invocation, "-n", str(NEWEST))
    found, unsearched = _search(invocation, forbidden)
    between = Counter(found) - Counter((*first, *newest))
    return (*first, *between.elements(), *newest), unsearched


def _search(invocation: str, forbidden: Sequence[str]) -> tuple[list[str], str]:
    """The newest lines of the whole run that match a pattern, and why not all were found. Many lines of one pattern hide none of another."""
    found: list[str] = []
    left = list(forbidden)
    while left:
        grep = ["--reverse", "-n", str(MOST), "--case-sensitive=yes", f"--grep={'|'.join(left)}"]
        try:
            done = run(_argv(invocation, *grep), timeout=SEARCH_S, check=False)
        except HostError:
            return found, f"journalctl --grep did not end within {SEARCH_S} s"
        if done.rc and done.stderr.strip():  # no match at all is a failure too, which says nothing
            return found, f"journalctl --grep: {done.stderr.strip().splitlines()[-1]}"
        said = done.stdout.splitlines()
        hit = [pattern for pattern in left if any(re.search(pattern, line) for line in said)]
        found += [line for line in reversed(said) if any(re.search(pattern, line) for pattern in hit)]
        left = [pattern for pattern in left if pattern not in hit] if hit and len(said) >= MOST else []
    return found, ""


def _journal(invocation: str, *options: str) -> tuple[str, ...]:
    return tuple(run(_argv(invocation, *options)).stdout.splitlines())


def _argv(invocation: str, *options: str) -> list[str]:
    return ["journalctl", "-q", "--no-pager", "-o", "cat", *options, f"_SYSTEMD_INVOCATION_ID={invocation}"]


def meminfo(proc: Path) -> str:
    return read_text(proc / "meminfo") or ""
