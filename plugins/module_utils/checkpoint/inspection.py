# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at a staged checkpoint for its checks: by size and time as recorded, or by reading every byte again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..report.checks import Check
from . import info, standing, switch
from .decide import ELSEWHERE, Survey, decide, shared
from .hashing import file_digest
from .layout import Layout
from .manifest import Manifest, ManifestError, name_problem
from .options import range_problems
from .rate import Bucket
from .row_standing import Rows
from .runtime import Crc, load_crc64
from .survey import current_revision, look


def information(options: Mapping[str, Any]) -> tuple[list[Check], dict[str, Any]]:
    """Checks and state of the active revision, or of the expected one while none is active.

    Raises ManifestError when a name would leave the root, HostError when the disk cannot be read.
    """
    _refuse_options(options)
    layout = Layout(options["root"], options["name"])
    looked = current_revision(layout) or options["revision"] or ""
    survey = look(layout, looked or ".none")  # no revision can have that name
    full = options["verify"] == "full"
    request = info.Request(
        node=options["node"],
        name=options["name"],
        expected=options["revision"] or "",
        looked=looked,
        ceiling_percent=options["disk_ceiling_percent"],
        tp=options["tensor_parallel"],
        damaged=damaged_files(layout, survey, options["python_path"], options["rate_limit"]) if full else {},
        read_again=full,
    )
    checks = [*info.checks(request, survey), _switch(layout, survey, options["node"])]
    stands = standing.state(layout, rows=Rows.from_options(options.get("engram")))
    return checks, {**info.state(layout, survey, looked), "standing": stands}


def _switch(layout: Layout, survey: Survey, node: str) -> Check:
    """Where the node is between revisions; a replacement in place that did not end comes first."""
    if survey.replacing is None:
        return switch.check(node, standing.read_record(layout), survey.current)
    left = len(survey.replacing.receipt.files)
    return switch.check(
        node,
        standing.read_record(layout),
        survey.current,
        f"revision {survey.replacing.old} ({left} files) is being replaced in place by {survey.replacing.new}, not finished",
    )


def _refuse_options(options: Mapping[str, Any]) -> None:
    problems = [name_problem(value) for value in (options["name"], options["revision"]) if value]
    if options["rate_limit"] < 0:
        problems.append(f"option rate_limit is {options['rate_limit']}, allowed are 0 (no limit) and more")
    problems += range_problems({"tensor_parallel": options["tensor_parallel"]})
    if any(problems):
        raise ManifestError("; ".join(problem for problem in problems if problem))


def damaged_files(layout: Layout, survey: Survey, python_path: str, rate_limit: int) -> dict[str, str]:
    """Every file of the revision whose bytes are not those that were verified."""
    if survey.receipt is None:
        return {}
    crc, bucket = load_crc64(python_path), Bucket(rate_limit)
    place = layout.revision(survey.receipt.revision)
    found = {path: _wrong(place / path, entry.digest, crc, bucket) for path, entry in survey.receipt.on_disk().items()}
    return {path: text for path, text in found.items() if text}


def damaged_sources(
    layout: Layout, survey: Survey, wanted: Manifest, sliced: tuple[str, ...], *, python_path: str, rate_limit: int
) -> dict[str, str]:
    """Every file of another revision that would be linked to and whose bytes are not those that were verified, as ``../REVISION/PATH``.

    Each is read once, whatever names it has. Where another revision has the file once more, that one is read next. What is copied
    by chunks is read back when it is, so nothing is read for that here.
    """
    crc, bucket = load_crc64(python_path), Bucket(rate_limit)
    found: dict[str, str] = {}
    read: set[int] = set()
    while True:
        known = replace(survey, damaged={**survey.damaged, **found})
        names = shared(decide(wanted, known, sliced), known)
        fresh = {inode: (name, digest) for name, (digest, inode) in names.items() if inode not in read}
        if not fresh:
            return found
        read |= fresh.keys()
        texts = {name: _wrong(layout.revisions / name, digest, crc, bucket) for name, digest in fresh.values()}
        found |= {f"{ELSEWHERE}{name}": text for name, text in texts.items() if text}


def _wrong(path: Path, wanted: str, crc: Crc | None, bucket: Bucket) -> str:
    """What is wrong with the bytes of this file, or an empty text."""
    if wanted.startswith("etag:"):
        return ""  # nothing to compare with: the store had no checksum when it was staged
    try:
        digest = file_digest(path, wanted, crc, bucket)
    except (OSError, LookupError) as error:
        return f"cannot be verified: {error}"
    return "" if digest == wanted else f"digest {digest} instead of {wanted}"
