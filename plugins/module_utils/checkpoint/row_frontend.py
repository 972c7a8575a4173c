# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between the module engram_rows and the rest: from options to a view of this node, and from there to work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..host import HostError
from ..plan import Plan
from ..report.checks import Check
from . import row_again, row_apply, row_plan, row_serving, row_survey
from .bringing import Brought, How, Look, Work, attended, read_sources
from .budget import Reclaimable
from .layout import Layout
from .lock import locked
from .manifest import File, Manifest, ManifestError
from .manifest import parse as parse_manifest
from .options import range_problems
from .progress import Meter
from .row_decide import (
    RowStaging,
    budget_of,
    bytes_needed,
    decide,
    environment,
    linked_paths,
    plan_of,
    room_check,
    staying_files,
    summary,
)
from .row_job import RowJob
from .row_place import RowPlace, directory_problem, place_of
from .row_plan import RowPlan
from .row_probe import rows_string
from .row_survey import RowSurvey
from .runtime import load_crc64
from .source import Source
from .survey import disk_of
from .watch import Stop


@dataclass(frozen=True)
class Request:
    """The options of engram_rows as a node gets them."""

    manifest: Manifest
    rows: RowPlan
    place: RowPlace
    options: Mapping[str, Any] = field(repr=False)
    sources: Mapping[str, tuple[Source, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Request:
        """Raises ManifestError, RowPlanError, HostError."""
        problems = range_problems(dict(options))
        if not options["rows"]:
            problems.append("option rows is missing: run the task through its action plugin, not the bare module")
        if problems:
            raise ManifestError("; ".join(problems))
        wanted, rows = parse_manifest(options["plan"]), row_plan.from_dict(options["rows"])
        known = wanted.by_path()
        absent = [path for path in needed_paths(rows) if path not in known]
        if absent:
            raise ManifestError(
                f"the plan of the checkpoint does not have {', '.join(absent)}, which the Engram rows are in; name it in files "
                "(checkpoint_files)"
            )
        layout = Layout(options["root"], wanted.name)
        misplaced = directory_problem(layout, options["directory"] or "") if rows.placement == "directory" else ""
        if misplaced:
            raise ManifestError(misplaced)
        place = place_of(layout, wanted.revision, rows.placement, options["directory"] or "")
        return cls(wanted, rows, place, options, read_sources(options["sources_file"]))

    @property
    def files(self) -> dict[str, File]:
        known = self.manifest.by_path()
        return {path: known[path] for path in needed_paths(self.rows)}

    @property
    def how(self) -> How:
        return How.from_options(self.options)

    @property
    def node(self) -> str:
        return str(self.options["node"] or "")


def needed_paths(rows: RowPlan) -> list[str]:
    """The files of the checkpoint that these rows are taken from, and the index where that is copied."""
    return [*(target.path for target in rows.targets), *([rows.index_path] if rows.index_path else [])]


class View(Look[Request, RowSurvey, RowStaging]):
    """What this node holds and what has to happen."""

    @property
    def needs_runtime(self) -> bool:
        return self.crc is None and self.staging.moves

    @property
    def needs_sources(self) -> bool:
        return self.staging.moves and not self.request.sources

    def plan(self) -> Plan:
        return plan_of(self.staging, self.survey)

    def diff(self) -> list[dict[str, str]]:
        return self.plan().diff()

    def needed(self) -> int:
        """Bytes that the file system of the checkpoints has to give: another one is no concern of a checkpoint's budget."""
        base = disk_of(self.request.place.layout.base)
        same = not base.device or base.device == self.survey.disk.device
        return bytes_needed(self.staging, self.survey) if same else 0

    def checks(self) -> list[dict[str, Any]]:
        """Everything that stands against it, so that nothing is staged or stopped first."""
        found = [self.room()]
        found += [_problem_check(problem, self.request.node) for problem in self.staging.problems]
        served = self.served()
        return [check.to_dict() for check in [*found, *([served] if served else [])]]

    def room(self) -> Check:
        """What could be freed is looked at only where that is wanted: it reads the directories of all revisions."""
        request, percent = self.request, self.request.options["disk_ceiling_percent"]
        found = room_check(budget_of(self.staging, self.survey, percent, Reclaimable()), request.node)
        if found.ok:
            return found
        linked = linked_paths(self.staging)
        beside = row_survey.reclaimable_beside(request.place, request.manifest.revision, self.survey.disk, linked)
        return room_check(budget_of(self.staging, self.survey, percent, beside), request.node)

    def served(self) -> Check | None:
        """Where a running engine reads the rows that would change."""
        place = self.request.place
        return row_serving.check(row_serving.look(place.layout), self.staging, place.directory, self.request.node)

    def told(self) -> dict[str, Any]:
        told = {"needed": self.needed(), "stages": self.staging.changed, "damaged": dict(self.survey.damaged)}
        return {"checks": self.checks(), **told}

    def refuse_in_check_mode(self) -> None:
        """Room may be made before, the group stopped, and the revision be staged that slices lie in."""
        if self.staging.problems:
            raise HostError("; ".join(self.staging.problems))

    def refuse(self) -> None:
        texts = list(self.staging.problems)
        room = self.room()
        if not room.ok:
            texts.append(
                f"not enough room for the Engram rows: {room.found}, expected {room.expected}. Cure: {room.cure}"
            )
        served = self.served()
        if served:
            texts.append(f"{served.found}. Cure: {served.cure}")
        if self.request.rows.placement == "shard" and not self.request.place.directory.is_dir():
            texts.append(
                f"{self.request.place.directory} is not there; stage the revision without these shards first "
                "(gb10.ring.checkpoint_stage with sliced)"
            )
        if texts:
            raise HostError("; ".join(texts))

    def result(self) -> dict[str, Any]:
        rows, place = self.request.rows, self.request.place
        model = place.layout.revision(self.request.manifest.revision)
        return {
            "revision": self.request.manifest.revision,
            "placement": rows.placement,
            "held": self.survey.here.state.revision if self.survey.here.state else "",
            "path": str(model if rows.placement == "full" else place.directory),
            "ranges": {layer: list(pair) for layer, pair in rows.layers.items()},
            "rows_text": rows_string(rows.layers),
            "environment": environment(rows, place.directory, model),
            "sliced": [target.path for target in rows.targets] if rows.placement == "shard" else [],
            "summary": summary(self.staging),
        }


def _problem_check(problem: str, node: str) -> Check:
    """problem: what was found, then after the last semicolon what a person does."""
    found, _semicolon, cure = problem.rpartition("; ")
    return Check(
        id="checkpoint.engram_place",
        node=node,
        ok=False,
        found=found or problem,
        expected="no slices, or those that gb10.ring brought and has a record of",
        cure=cure,
    )


def view(request: Request) -> View:
    files = request.files
    survey = row_survey.look(request.place, list(files.values()), request.options["whole_directories"])
    used = row_serving.in_use(request.place, request.rows.placement, request.manifest.revision, files)
    survey, staging = _read_again(request, dataclasses.replace(survey, busy=used))
    # awscrt is megabytes of a library: nothing for a run that finds everything in place.
    crc = load_crc64(request.options["python_path"]) if staging.moves else None
    return View(request, survey, staging, crc)


def _read_again(request: Request, survey: RowSurvey) -> tuple[RowSurvey, RowStaging]:
    """What has to happen, after all rows that would stay or get a name were read where that is asked for, and else as a budget found them.

    Rows that are moved or copied are read for that. Where one file turns out wrong another one may take its place, which is read next.
    """
    read: set[tuple[Path, str]] = set()
    options = request.options
    full = options["verify"] == "full" and options["phase"] == "budget"
    seen = dataclasses.replace(survey, damaged={} if full else options["damaged"] or {})
    while True:
        staging = decide(request.rows, request.manifest.revision, request.files, seen)
        fresh = {file: target for file, target in staying_files(staging).items() if file not in read}
        if not (full and fresh):
            return seen, staging
        read |= fresh.keys()
        found = row_again.damaged_rows(seen.holders, fresh, options["python_path"], options["verify_rate_limit"])
        seen = dataclasses.replace(seen, damaged={**seen.damaged, **found})


def bring(request: Request) -> Brought:
    """Bring the rows, one run at a time. Raises HostError."""
    with locked(request.place.layout):
        # Seen again under the lock: another run may have ended in between.
        seen = view(request)
        seen.refuse()
        if seen.needs_runtime:
            raise HostError(_NO_CRC)
        meter = Meter(seen.staging.fetch_bytes, summary(seen.staging)["fetch"]["files"])

        def work(stop: Stop) -> None:
            row_apply.apply(
                RowJob(
                    place=request.place,
                    staging=seen.staging,
                    survey=seen.survey,
                    sources=request.sources,
                    crc=seen.crc or _no_crc,
                    origin=f"{request.manifest.name} revision {request.manifest.revision}",
                    verify_share=request.options["verify_share"],
                    transfer=request.how.transfer(seen.crc, stop),
                    meter=meter,
                )
            )

        needs = attended(request.place.lease, request.how, work)
    return Brought(seen, {**meter.numbers(), "second_bytes": meter.second_bytes}, needs)


_NO_CRC = "awscrt cannot be imported, which the checksums of rows need; run the task through its action plugin"


def _no_crc(_data: memoryview, _value: int) -> int:
    raise HostError(_NO_CRC)


def tidy(request: Request) -> None:
    """Remove what a run that was killed at its very end left; nothing while another runs.

    With placement ``full`` nothing was looked at, and slices of before may be what a journal speaks of.
    """
    if request.rows.placement != "full" and request.place.journal.exists():
        with locked(request.place.layout):
            row_apply.tidy(request.place)


#: What engram_rows does of the steps in bringing.run.
WORK = Work(Request.from_options, view, bring, tidy)
