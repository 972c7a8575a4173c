# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Owned files as they were before the collection wrote them, so that uninstalling brings them back; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .plan import Change

OURS = "Managed by gb10.ring"  # in the first line of every file that the collection owns


def remember(known: Mapping[str, str | None], changes: Iterable[Change]) -> dict[str, str | None]:
    """The text of each file before its first change; None for a file that was absent, or was ours already. What is known stays."""
    found = dict(known)
    for change in changes:
        found.setdefault(change.what, change.before if change.before and not is_ours(change.before) else None)
    return found


def is_ours(text: str) -> bool:
    return OURS in text.split("\n", 1)[0]


def absent_before(now: Mapping[str, str]) -> dict[str, str | None]:
    """Our files as they are without a record: those that are ours were absent. now: texts by path."""
    return {path: None for path, text in now.items() if is_ours(text)}


def returning(known: Mapping[str, str | None], now: Mapping[str, str]) -> tuple[list[Change], list[str]]:
    """The way back, and a note for each file that somebody else has written since. now: texts by path, empty for an absent file."""
    changes, notes = [], []
    for path, before in known.items():
        found = now.get(path, "")
        if found and not is_ours(found) and found != (before or ""):
            notes.append(f"{path} is no longer the file that gb10.ring wrote; it stays as it is")
        elif found != (before or ""):
            changes.append(Change(path, found, before or "", "as it was before gb10.ring"))
    return changes, notes


def parse(text: str | None, writer: str) -> dict[str, Any]:
    """A record's content; empty when there is none. Raises ValueError, whose text goes behind the record's path."""
    if not text or not text.strip():
        return {}
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not the JSON that {writer} writes ({error}); move it away and run again") from error
    if not isinstance(record, dict):
        raise ValueError(f"is not the JSON mapping that {writer} writes; move it away and run again")
    return record


def render(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2, sort_keys=True) + "\n"
