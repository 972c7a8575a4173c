# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what the settings of a rank claim took effect: each claim with the log line or metric that proves it; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..report.checks import Check
from . import gate_engram, gate_nccl, gate_speed
from .gate_claims import Seen, Started, shown

_Judge = Callable[[str, Started, Seen], list[Check]]
_JUDGES: tuple[_Judge, ...] = (
    gate_nccl.devices,
    gate_nccl.transport,
    gate_nccl.broken,
    gate_nccl.routing,
    gate_engram.rows,
    gate_speed.graphs,
    gate_speed.speculation,
)
# Lines of a profile that a claim judges already, which says more than the line alone.
_OWNED = {
    gate_nccl.USING_IB: "engine.transport",
    gate_nccl.USING_SOCKET: "engine.transport",
    gate_nccl.OVERRIDING: "engine.subnet_routing",
    gate_engram.OWNS: "engine.engram_rows",
}


def checks(node: str, claims: Started, seen: Seen) -> list[Check]:
    """A check for each setting that claims an effect, and for each line that the profile wants or does not want."""
    found = [check for judge in _JUDGES for check in judge(node, claims, seen)]
    judged = {check.id for check in found}
    lines = [_line(node, line, seen) for line in claims.log_lines if _OWNED.get(line["text"]) not in judged]
    return [*found, *lines, *(_unsearched(node, seen.unsearched) if seen.unsearched else ())]


def forbidden(claims: Started) -> tuple[str, ...]:
    """Patterns, as Python and PCRE2 read them, of the lines of which one anywhere in the log fails a check."""
    absent = [re.escape(line["text"]) for line in claims.log_lines if line.get("want") == "absent"]
    return tuple(dict.fromkeys((*gate_nccl.forbidden(claims), *gate_engram.forbidden(claims), *absent)))


def _line(node: str, line: Mapping[str, str], seen: Seen) -> Check:
    """A line that the profile wants or does not want."""
    there, absent = seen.having(line["text"]), line.get("want") == "absent"
    return Check(
        "engine.log_line",
        node,
        ok=bool(there) != absent,
        found=shown(there, f"no line with {line['text']}"),
        expected=f"{'no ' if absent else 'a '}line with {line['text']} ({line['means']})",
        cure="read what the engine says before it (journalctl -u gb10-ring-engine); the profile says what the line means",
    )


def _unsearched(node: str, why: str) -> list[Check]:
    """Nobody should call it good that no such line was found in a log of which the middle was not looked at."""
    return [
        Check(
            "engine.log_search",
            node,
            ok=False,
            found=f"of a long log only the oldest and the newest lines were read: {why}",
            expected="the whole log of this run searched for lines that must not be there",
            cure="see that `journalctl --grep` works on the node (it needs libpcre2-8-0); until then read journalctl -u gb10-ring-engine there",
            severity="warning",
        )
    ]
