# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks on a staged checkpoint, from what was seen. Values in, values out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..report.checks import Check
from . import row_state, units
from .budget import freed, listed, reclaimable
from .config_edit import CONFIG
from .decide import Survey
from .layout import TRASH, Layout, left_in_staging
from .receipt import Receipt, Stat, wrong_files
from .tp_config import ConfigError, counts, padded_counts, real_counts


@dataclass(frozen=True)
class Request:
    """expected: the revision that should be current, empty for "any". looked: the one whose files were looked at.

    tp: ranks that config.json should be fitted to, 0 for the file as staged, None for "any".
    """

    node: str
    name: str
    expected: str = ""
    looked: str = ""
    ceiling_percent: int = 85
    tp: int | None = None
    #: Files whose bytes were read again and have another digest (or could not be read), with what was found.
    damaged: Mapping[str, str] = field(default_factory=dict)
    read_again: bool = False


def checks(request: Request, survey: Survey) -> list[Check]:
    """All checks that this survey allows."""
    found = [_current(request, survey)]
    receipt = survey.receipt
    if receipt is not None:
        found += [_files(request, survey, receipt), _extra(request, survey, receipt), _config(request, survey, receipt)]
    return [*found, *_unfinished(request, survey), _disk(request, survey)]


def _current(request: Request, survey: Survey) -> Check:
    current = survey.current
    if survey.problem:
        found = survey.problem
    elif not current:
        found = "no revision is active"
    else:
        found = f"revision {current}" + ("" if survey.receipt else " without a receipt")
    right = bool(current) and (not request.expected or current == request.expected)
    return Check(
        id="checkpoint.current",
        node=request.node,
        ok=right and survey.receipt is not None and not survey.problem,
        found=found,
        expected=f"revision {request.expected} of {request.name}" if request.expected else "an active, staged revision",
        cure="run the playbook that stages the checkpoint (site.yml or restage.yml)",
    )


def _files(request: Request, survey: Survey, receipt: Receipt) -> Check:
    wrong = {**request.damaged, **wrong_files(receipt, survey.present)}
    listed = "; ".join(f"{path}: {what}" for path, what in sorted(wrong.items()))
    how = _how(receipt) if request.read_again else "sizes and times as verified"
    return Check(
        id="checkpoint.files",
        node=request.node,
        ok=not wrong,
        found=f"{units.files(len(wrong))} wrong ({listed})"
        if wrong
        else f"{units.files(len(receipt.files))}, {units.human(receipt.bytes)}, {how}",
        expected=f"{units.files(len(receipt.files))} as in receipts/{receipt.revision}.json",
        cure="run the playbook that stages the checkpoint: only wrong files are fetched again. A file whose digest is "
        "wrong while size and time are right is repaired by restage.yml with checkpoint_verify: full",
    )


def _how(receipt: Receipt) -> str:
    unknown = sum(entry.digest.startswith("etag:") for entry in receipt.files)
    return "digests read again" + (f" ({units.files(unknown)} without a checksum left out)" if unknown else "")


def _extra(request: Request, survey: Survey, receipt: Receipt) -> Check:
    slices = {*receipt.sliced, row_state.NAME} if receipt.sliced else set()
    extra = sorted(set(survey.present) - set(receipt.on_disk()) - slices)
    return Check(
        id="checkpoint.extra",
        node=request.node,
        ok=not extra,
        found=", ".join(extra[:5]) + (f" and {len(extra) - 5} more" if len(extra) > 5 else "") if extra else "none",
        expected="no files beside those of the revision",
        cure=f"delete them from revisions/{receipt.revision}, or keep them elsewhere",
        severity="warning",
    )


def _config(request: Request, survey: Survey, receipt: Receipt) -> Check:
    """config.json as the engine reads it: heads and groups, and whether a derived one is ours."""
    derived = receipt.derived.get(CONFIG)
    expected = _expected_config(request.tp, derived.rule if derived else "")
    cure = f"run the playbook that stages the checkpoint; where that does not help, delete {CONFIG} of that revision before"
    if all(entry.path != CONFIG for entry in receipt.files):
        return Check("checkpoint.config", request.node, True, f"no {CONFIG} in this checkpoint", "none")
    try:
        config = json.loads(survey.config_text or "")
        (heads, groups), (real_heads, real_groups) = counts(config), real_counts(config)
    except (ValueError, AttributeError, RecursionError) as error:
        # Where nothing is padded nobody needs heads and groups: other models have other configurations.
        readable = not derived and not request.tp and isinstance(error, ConfigError)
        return Check("checkpoint.config", request.node, readable, str(error), expected, cure)
    found = f"{heads} heads / {groups} groups"
    if derived:
        found += f" for {real_heads} / {real_groups} real ones"
    digest = f"sha256:{hashlib.sha256((survey.config_text or '').encode()).hexdigest()}"
    ok = (not derived or derived.digest == digest) and _fits(request.tp, (heads, groups), (real_heads, real_groups))
    return Check("checkpoint.config", request.node, ok, found, expected, cure)


def _unfinished(request: Request, survey: Survey) -> list[Check]:
    """Partial files of other revisions, which nobody may want any more; nothing is said where there are none."""
    return [
        Check(
            id="checkpoint.unfinished",
            node=request.node,
            ok=False,
            found=f"{left_in_staging(name)}: {units.human(size)}",
            expected="no partial files beside those of the revision that is staged now",
            cure="run prune.yml, which deletes what is left of it, as the next restage.yml does"
            if name.startswith(TRASH)
            else f"stage {name} to its end (checkpoint_revision), or delete staging/{name}",
            severity="warning",
        )
        for name, size in sorted(survey.leftovers.items())
    ]


def _expected_config(tp: int | None, rule: str) -> str:
    if tp is None:
        return f"as edited ({rule})" if rule else "as staged"
    return f"fitted to {tp} ranks" if tp else "as staged"


def _fits(tp: int | None, shown: tuple[int, int], real: tuple[int, int]) -> bool:
    """Whether heads and groups are those that so many ranks want."""
    return tp is None or shown == (padded_counts(*real, tp) if tp else real)


def _disk(request: Request, survey: Survey) -> Check:
    disk = survey.disk
    limit = disk.size * request.ceiling_percent // 100
    old = reclaimable(request.looked, survey)
    return Check(
        id="checkpoint.disk",
        node=request.node,
        ok=disk.used <= limit,
        found=f"{units.human(disk.used)} of {units.human(disk.size)} used",
        expected=f"at most {request.ceiling_percent} % = {units.human(limit)}",
        cure=f"delete {listed(old)}" if old.total else "free space outside of the checkpoints",
        severity="warning",
    )


def same_revision(current: Mapping[str, str]) -> Check | None:
    """Whether all nodes have one revision active. current: it, by node, of those that could be looked at; the first of them carries the check.

    A node without one is told by checkpoint.current; where no node has one, there is no check.
    """
    held: dict[str, list[str]] = {}
    for node, revision in current.items():
        if revision:
            held.setdefault(revision, []).append(node)
    if not held:
        return None
    return Check(
        id="checkpoint.same_revision",
        node=next(iter(current)),
        ok=len(held) == 1,
        found="; ".join(f"revision {revision} on {', '.join(nodes)}" for revision, nodes in held.items()),
        expected="the same revision on all nodes",
        cure="run restage.yml without --limit, which brings all nodes to the state of the bucket, or rollback.yml with "
        "checkpoint_rollback_revision, the name of a revision that all of them hold",
    )


def state(layout: Layout, survey: Survey, looked: str) -> dict[str, Any]:
    """What there is, for whoever wants to choose among revisions. All sizes in bytes."""
    known = [(other.receipt, other.found) for other in survey.others]
    if survey.receipt is not None:
        known.append((survey.receipt, survey.present))
    known.sort(key=lambda pair: (pair[0].created, pair[0].revision))
    return {
        "path": str(layout.base),
        "current": survey.current,
        "looked_at": looked,
        "revisions": [_revision(layout, survey, receipt, found) for receipt, found in known],
        "unfinished": dict(survey.leftovers),
        "disk": {
            "size": survey.disk.size,
            "used": survey.disk.used,
            "available": survey.disk.available,
            "reserved": survey.disk.reserved,
        },
    }


def _revision(layout: Layout, survey: Survey, receipt: Receipt, found: Mapping[str, Stat]) -> dict[str, Any]:
    """allocated: what its files take. frees: what deleting it would give back, less as files of others are links to its."""
    wrong = wrong_files(receipt, found)
    return {
        "revision": receipt.revision,
        "active": receipt.revision == survey.current,
        "created": receipt.created,
        "receipt": str(layout.receipt(receipt.revision)),
        "files": len(receipt.files),
        "bytes": receipt.bytes,
        "allocated": sum(stat.allocated for stat in found.values()),
        "frees": freed([found], survey.disk),
        "complete": not wrong,
        "wrong": wrong,
        "derived": receipt.derived[CONFIG].rule if CONFIG in receipt.derived else "",
    }
