# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One thing that the cabling probe found wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..report.checks import Check, Severity
from .cabling_picture import End


@dataclass(frozen=True)
class Finding:
    """kind: one of the words in docs/cabling.md. ends: the cages it is about."""

    kind: str
    ends: tuple[End, ...]
    found: str
    expected: str
    cure: str
    severity: Severity = "error"

    def check(self) -> Check:
        return Check("fabric.cabling", self.ends[0].node, False, self.found, self.expected, self.cure, self.severity)

    def to_dict(self) -> dict[str, Any]:
        texts = {"found": self.found, "expected": self.expected, "cure": self.cure, "severity": self.severity}
        return {"kind": self.kind, "ends": [str(end) for end in self.ends], **texts}


def both(things: Iterable[object]) -> str:
    return " and ".join(map(str, things))
