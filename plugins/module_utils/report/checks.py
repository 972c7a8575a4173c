# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One check of one node, in the shape that every report of the collection uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
_ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Check:
    """id: dotted name, subject first (``fabric.address``). node: inventory name. ok: whether it held.

    severity: what a failure means. found, expected: short texts with units. cure: what a person does about a failure.
    netdevs: the node's own fabric interfaces that it is about, by which a report draws the legs; empty: about none.
    """

    id: str
    node: str
    ok: bool
    found: str
    expected: str
    cure: str = ""
    severity: Severity = "error"
    netdevs: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: ``netdevs`` is a list, and is left out where it is empty."""
        held = asdict(self)
        netdevs = held.pop("netdevs")
        return {**held, "netdevs": list(netdevs)} if netdevs else held


def failed(checks: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The checks that did not hold, worst severity first, then by node and id."""
    return sorted(
        (check for check in checks if not check["ok"]),
        key=lambda check: (_ORDER.get(check["severity"], 0), check["node"], check["id"]),
    )


def errors(checks: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The failed checks whose severity is ``error``: the ones that end a run."""
    return [check for check in failed(checks) if check["severity"] == "error"]


def line(check: Mapping[str, Any]) -> str:
    """One check as one line for a person: node, id, what was found, what was expected, the cure."""
    state = "ok" if check["ok"] else check["severity"]
    text = f"{check['node']}: {check['id']} {state}: found {check['found']}, expected {check['expected']}"
    return text if check["ok"] or not check["cure"] else f"{text}. Cure: {check['cure']}"
