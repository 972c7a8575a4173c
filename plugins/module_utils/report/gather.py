# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a whole run from what the roles registered, and a check for each node that gave none; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .checks import Check

# What the verify tasks of each role register. A role may register some of them only by option.
RESULTS: Mapping[str, tuple[str, ...]] = {
    "preflight": ("preflight_checks",),
    "fabric": ("fabric_checks", "fabric_allreduce_checks"),
    "rdma": ("rdma_checks",),
    "memory": ("memory_checks", "memory_services_checks", "memory_guard_checks"),
    "checkpoint": ("checkpoint_checks",),
    "engine": (
        *("engine_checks", "engine_group_checks", "engine_watch_checks"),
        *("engine_gate_checks", "engine_acceptance_checks"),
    ),
}
FAILED = "verify_failed"  # role -> the result of the task that ended its checks on the host

_CURE = (
    "cure this first and run verify.yml again: nothing is known of this part of the node. "
    "The output of the run has the task that failed; with -vvv, all of what it said"
)


class RoleError(ValueError):
    """Not one of the roles that have checks; the text is the message for the user."""


def site_checks(hostvars: Mapping[str, Any], hosts: Iterable[str], roles: Sequence[str]) -> list[dict[str, Any]]:
    """All checks of these roles on all hosts, in their order. A role without a result on a host that others have is a failed check.

    Raises RoleError.
    """
    unknown = [role for role in roles if role not in RESULTS]
    if unknown:
        raise RoleError(f"no checks are known of {', '.join(unknown)}; expected some of {', '.join(RESULTS)}")
    names = list(hosts)
    asked = [role for role in roles if any(_looked(hostvars[host], role) for host in names)]
    found: list[dict[str, Any]] = []
    for host in names:
        for role in roles:
            found += [dict(check) for name in RESULTS[role] for check in _checks(hostvars[host], name)]
        if not unreachable(hostvars[host]):
            found += [check.to_dict() for check in _missing(host, hostvars[host], asked)]
    return found


def _checks(variables: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    result = variables.get(name) or {}
    return result.get("checks") or ()


def _looked(variables: Mapping[str, Any], role: str) -> bool:
    """Whether the role's tasks were run on the host, with or without success."""
    return role in (variables.get(FAILED) or {}) or bool(_checks(variables, RESULTS[role][0]))


def unreachable(variables: Mapping[str, Any]) -> bool:
    """Whether preflight has told already why nothing can be known of the host."""
    return bool(_checks(variables, "preflight_checks")) and not variables["preflight_checks"].get("facts")


def _missing(host: str, variables: Mapping[str, Any], asked: Sequence[str]) -> list[Check]:
    failed: Mapping[str, Any] = variables.get(FAILED) or {}
    return [
        Check(
            id="verify.looked",
            node=host,
            ok=False,
            found=f"the checks of role {role} ended: {reason(failed.get(role))}",
            expected=f"a result of the checks of role {role}",
            cure=_CURE,
        )
        for role in asked
        if role in failed or not (_checks(variables, RESULTS[role][0]) or _skipped(variables, role))
    ]


def reason(result: Mapping[str, Any] | None) -> str:
    """Why a task failed: its message, and of a module that gave no result also the last line that it said."""
    if not result:
        return "the node gave no answer"
    said = [str(result.get(key) or "").strip() for key in ("module_stderr", "module_stdout", "stderr")]
    last = next((text.splitlines()[-1] for text in said if text), "")
    return ": ".join(filter(None, [str(result.get("msg") or "").strip(), last])) or "the task says nothing"


def _skipped(variables: Mapping[str, Any], role: str) -> bool:
    """Whether the role had nothing to look at on this host, by its own condition."""
    return bool((variables.get(RESULTS[role][0]) or {}).get("skipped"))
