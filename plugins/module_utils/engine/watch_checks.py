# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watchdog's status comes to, as checks of the head; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..own_service import Found
from ..report.checks import Check
from .watch import GAVE_UP, RELAUNCHING, Limits
from .watch_unit import UNIT


def checks(
    node: str, found: Found, digest: str, *, status: Mapping[str, Any], limits: Limits, now: float
) -> list[Check]:
    """digest: of the wanted files. status: what the watchdog wrote, empty when absent. now: the node's monotonic seconds."""
    state = status.get("state") or {}
    problem = _not_watching(found, digest, status, limits, now) or _needs_a_person(state, status)
    rows = [
        Check(
            "engine.watchdog",
            node,
            ok=not problem,
            found=problem or _watching(state),
            expected="watching, started at boot, as installed",
            cure=_cure(state),
        )
    ]
    recent = [age for age in status.get("ages") or () if age < limits.window_s]
    if recent and not problem:
        rows.append(_relaunched(node, recent, state, status, limits))
    return rows


def _not_watching(found: Found, digest: str, status: Mapping[str, Any], limits: Limits, now: float) -> str:
    if not found.active:
        return f"{UNIT} does not run"
    if not found.enabled:
        return f"{UNIT} is not started at boot"
    silent = 30.0 + limits.probe_timeout_s + 2 * limits.health_timeout_s
    if not status or now - float(status.get("at", 0.0)) > silent:
        return f"{UNIT} has not said anything for more than {silent:g} s"
    return "" if status.get("digest") == digest else f"{UNIT} runs from other settings or another version"


def _needs_a_person(state: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    if state.get("phase") != GAVE_UP:
        return ""
    cause = f"; incident {status.get('reported')}: {status.get('cause')}" if status.get("reported") else ""
    return f"gave up, waiting for a person: {state.get('why')}{cause}"


def _watching(state: Mapping[str, Any]) -> str:
    said = f"{state.get('phase')}: {state.get('why')}"
    return f"{said}; last probe: {state['problem']}" if state.get("problem") else said


def _cure(state: Mapping[str, Any]) -> str:
    if state.get("phase") == GAVE_UP:
        return (
            "Read the incident's diagnosis.txt and logs in /var/lib/gb10-ring/incidents on the head, end the cause, then run the engine "
            "role with engine_state restarted: the watchdog arms again once the group serves"
        )
    return f"Run the engine role; if it stays, journalctl -u {UNIT}"


def _relaunched(
    node: str, ages: list[float], state: Mapping[str, Any], status: Mapping[str, Any], limits: Limits
) -> Check:
    going = f", it is {state.get('phase')}" if state.get("phase") in RELAUNCHING else ""
    why = f"; incident {status.get('reported')}: {status.get('cause')}" if status.get("reported") else ""
    return Check(
        "engine.relaunched",
        node,
        ok=False,
        found=f"{len(ages)} within {limits.window_s:g} s, the last {min(ages):.0f} s ago{going}{why}",
        expected="no relaunch by the watchdog",
        cure="Read the incident's diagnosis.txt and logs in /var/lib/gb10-ring/incidents on the head",
        severity="warning",
    )
