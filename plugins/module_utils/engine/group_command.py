# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command gb10-ring-group of a node: what the group does, and stopping or starting all of it, by hand and without a controller.

A copy runs on the nodes without Ansible, so this file imports the standard library and its siblings only.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from . import group_intent

ORDER_S = 600.0  # stopping all ranks, then starting one after another
FRESH_S = 10.0
_POLL_S = 0.25


def lines(status: Mapping[str, Any], now: float) -> list[str]:
    """The group as its supervisor knows it."""
    if not status:
        return ["the supervisor of this node does not run: systemctl status gb10-ring-group"]
    shown = [
        f"{node}  rank {rank['rank']}  {rank['state']} for {now - max(0.0, rank['since']):.0f} s"
        f"{', by ' + rank['by'] if rank['by'] else ''}{': ' + rank['why'] if rank['why'] else ''}"
        for node, rank in sorted(status["ranks"].items(), key=lambda item: item[1]["rank"])
    ]
    incident = status.get("incident")
    return [*shown, f"last incident {incident['id']}: {incident['why']}"] if incident else shown


def outcome(status: Mapping[str, Any], identity: str) -> tuple[int, str] | None:
    """Exit status and text of an order; None while it is being carried out."""
    order = status.get("order") or {}
    if order.get("id") != identity or order.get("state") == "doing":
        return None
    return (0 if order["state"] == "done" else 1), str(order["text"])


def carry_out(run_root: str, do: str, reason: str) -> tuple[int, str]:
    status = group_intent.status(run_root)
    if time.monotonic() - status.get("at", float("-inf")) > FRESH_S:
        return 1, lines({}, 0.0)[0]
    identity = group_intent.order(run_root, do, "a person", reason)
    limit = time.monotonic() + ORDER_S
    while time.monotonic() < limit:
        found = outcome(group_intent.status(run_root), identity)
        if found:
            return found
        time.sleep(_POLL_S)
    return 1, "\n".join([f"not done within {ORDER_S:g} s", *lines(group_intent.status(run_root), time.monotonic())])


def main(argv: list[str], run_root: str = "/run") -> int:
    parser = argparse.ArgumentParser(prog="gb10-ring-group", description=__doc__.splitlines()[0])
    parser.add_argument(
        "do", choices=["status", "stop", "start"], help="start stops what still runs, then starts in order"
    )
    parser.add_argument("--reason", default="by hand", help="what the journal and the other nodes are told")
    chosen = parser.parse_args(argv)
    if chosen.do == "status":
        status = group_intent.status(run_root)
        code, text = (0 if status else 1), "\n".join(lines(status, time.monotonic()))
    else:
        code, text = carry_out(run_root, chosen.do, chosen.reason)
    sys.stdout.write(text + "\n")
    return code
