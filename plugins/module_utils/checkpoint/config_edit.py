# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether config.json of a revision has to be edited for the number of ranks, and to what. Values in, values out.

The edit stands in for the file that was staged, which is kept under its digest. A record beside the revisions says so, and staging
takes the file for right by it; the receipt says what was staged and never changes for an edit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..plan import Change, Plan
from .receipt import Derived, Receipt, Stat
from .tp_config import ConfigError, derived_text

CONFIG = "config.json"


@dataclass(frozen=True)
class Record:
    """original: SHA-256 of the text as it was staged. edits: rule (``tp3``) of each edit of it, by the SHA-256 of the edited text.

    An edit is added before the file is replaced, and earlier ones stay, so that the file is a known one at every moment.
    """

    original: str
    edits: Mapping[str, str]


@dataclass(frozen=True)
class Found:
    """text: of config.json in the revision, None when there is none. staged: whether it is the one that was staged.

    record: of an edit. kept: text that is kept as the original that the record names.
    """

    text: str | None
    staged: bool
    record: Record | None = None
    kept: str | None = None


@dataclass(frozen=True)
class Edit:
    """text: what config.json shall hold when plan.changed. rule: ``tp3``, empty when that is the file as staged.

    original: the text to keep first. record: what to note before the file is replaced, None when the file is as staged.
    """

    plan: Plan = field(default_factory=Plan)
    text: str = ""
    rule: str = ""
    original: str = ""
    record: Record | None = None
    problem: str = ""


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def decide(found: Found, tp: int, where: str) -> Edit:
    """The edit for tp ranks; tp 0 puts the original back. where: path of the file."""
    if found.text is None:
        return Edit(problem=f"{where} is missing, so it cannot be fitted to {tp} ranks" if tp else "")
    original, problem = _original(found, where)
    if problem:
        return Edit(problem=problem)
    try:
        wanted = derived_text(original, tp) if tp else original
    except ConfigError as error:
        return Edit(problem=f"{where} cannot be fitted to {tp} ranks: {error}")
    rule = "" if wanted == original else f"tp{tp}"
    plan = Plan()
    if wanted != found.text:
        plan = Plan((Change(where, found.text, wanted, f"fitted to {tp} ranks" if rule else "as staged"),))
    return Edit(plan, wanted, rule, original, _record(found.record, original, wanted, rule) if rule else None)


def _record(before: Record | None, original: str, wanted: str, rule: str) -> Record:
    known = before.edits if before and before.original == sha256(original) else {}
    return Record(sha256(original), {**known, sha256(wanted): rule})


def _original(found: Found, where: str) -> tuple[str, str]:
    """The text as staged, or why it is not known."""
    text = found.text or ""
    if found.staged:
        return text, ""
    if found.record is None or sha256(text) not in found.record.edits:
        return "", (
            f"{where} is neither the file that was staged nor an edit of ours (SHA-256 {sha256(text)}): it was changed by "
            "somebody else. Delete it and run the playbook that stages the checkpoint, which fetches it again"
        )
    if found.kept is None or sha256(found.kept) != found.record.original:
        return "", (
            f"{where} is an edit of ours ({found.record.edits[sha256(text)]}), but its original (SHA-256 {found.record.original}) is gone. "
            "Delete it and run the playbook that stages the checkpoint, which fetches it again"
        )
    return found.kept, ""


def standing_in(receipt: Receipt, record: Record | None, text: str | None, stat: Stat | None) -> Mapping[str, Derived]:
    """What stands in for config.json of this receipt: the edit that the record tells of, if it is the one on disk."""
    source = next((entry for entry in receipt.files if entry.path == CONFIG), None)
    if source is None or record is None or text is None or stat is None or sha256(text) not in record.edits:
        return {}
    rule, digest = record.edits[sha256(text)], f"sha256:{sha256(text)}"
    return {CONFIG: Derived(rule, source.digest, digest, stat.size, stat.mtime_ns)}


def render(record: Record) -> str:
    return json.dumps(asdict(record), indent=1) + "\n"


def parse(text: str | None) -> Record | None:
    """The record in this text; one that cannot be read is none, and the file that it told of is staged again."""
    try:
        values: Any = json.loads(text or "")
        return Record(str(values["original"]), {str(digest): str(rule) for digest, rule in values["edits"].items()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
