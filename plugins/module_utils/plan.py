# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one plan behind check mode, diff and apply: what is, what will be, why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One thing that differs.

    what: a file path, a sysctl name, a unit: what a person would look for.
    before, after: its text now and as wanted; empty text stands for "absent".
    why: one clause, shown to the user.
    """

    what: str
    before: str
    after: str
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """All changes of one module call, in the order in which they are applied."""

    changes: tuple[Change, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.changes)

    def diff(self) -> list[dict[str, str]]:
        """The changes in the shape of Ansible's ``diff`` result."""
        return [
            {
                "before_header": change.what,
                "after_header": f"{change.what} ({change.why})" if change.why else change.what,
                "before": _ended(change.before),
                "after": _ended(change.after),
            }
            for change in self.changes
        ]

    def reasons(self) -> list[str]:
        return [f"{change.what}: {change.why}" if change.why else change.what for change in self.changes]


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
