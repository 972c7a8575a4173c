# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an engine ended: known signatures looked for in the logs of all ranks, the most fundamental cause first; pure.

A copy runs on the nodes without Ansible, so this file imports the standard library and its siblings only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from .diagnosis_signs import GROUP, Signature
from .diagnosis_signs import TABLE as GROUP_TABLE
from .diagnosis_table import TABLE as NODE_TABLE

TABLE: tuple[Signature, ...] = (*NODE_TABLE, *GROUP_TABLE)
LAST_LINES = 20
TEXT_LIMIT = 300
AROUND = ("--- kernel", "--- memory")  # what an incident's log has after the engine's own lines
# systemd's own lines of a start, with the description that the engine's unit has.
_STARTS = tuple(re.compile(rf"(?:^|: ){verb} .*Inference engine .*\(gb10\.ring\)") for verb in ("Starting", "Started"))


class Finding(NamedTuple):
    """A known cause in one node's log. line: the first one that shows it. level: lower is more fundamental."""

    signature: str
    node: str
    line: str
    meaning: str
    cure: str
    level: int = GROUP

    def text(self) -> str:
        return f"{self.node}: {self.meaning} ({self.signature}): {self.line}"


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def diagnose(tails: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Every known cause in the logs of the nodes, most fundamental first, then in the order of the table and of the nodes.

    Of each log the last run counts; the runs before it only when the last one shows nothing.
    """
    found = []
    for node, lines in tails.items():
        mine = _search(node, last_run(lines)) or _search(node, lines)
        found.extend(mine)
    order = {signature.id: number for number, signature in enumerate(TABLE)}
    return sorted(found, key=lambda finding: (finding.level, order[finding.signature]))


def _search(node: str, lines: Sequence[str]) -> list[Finding]:
    found = []
    for signature in TABLE:
        line = next((line for line in lines if _pattern(signature.pattern).search(line)), None)
        if line is not None:
            said = line.strip()[:TEXT_LIMIT]
            found.append(Finding(signature.id, node, said, signature.means, signature.cure, signature.level))
    return found


def last_run(lines: Sequence[str]) -> Sequence[str]:
    """The lines since systemd started the engine last; all of them when that line is not among them."""
    for start in _STARTS:  # "Starting" is there when something runs before the engine, which belongs to the run
        found = [number for number, line in enumerate(lines) if start.search(line)]
        if found:
            return lines[found[-1] :]
    return lines


def describe(findings: Sequence[Finding], tails: Mapping[str, Sequence[str]], lines: int = LAST_LINES) -> str:
    """For a person: the first cause with its cure and what else was seen; nothing known: the last lines of every rank."""
    if findings:
        first, *others = findings
        said = f"{first.text()}. Cure: {first.cure}"
        more = [f"    also {other.text()}" for other in others]
        return "\n".join([said, *more])
    return "\n".join(["no known cause in the logs. Their last lines:", *last_lines(tails, lines)])


def last_lines(tails: Mapping[str, Sequence[str]], lines: int = LAST_LINES) -> list[str]:
    """The last lines of every rank, each under its node's name."""
    said = []
    for node, tail in tails.items():
        log = tail[: next((number for number, line in enumerate(tail) if line in AROUND), len(tail))]
        said.append(f"  {node}:")
        said.extend(f"    {line}" for line in (log[-lines:] or ["(no lines)"]))
    return said
