# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between the module engram_rows and the rest: from options to a view of this node, and from there to work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..host import HostError
from ..plan import Plan
from . import row_apply, row_plan, row_survey
from .frontend import read_sources, trust, watched
from .layout import Layout
from .manifest import File, Manifest, ManifestError
from .manifest import parse as parse_manifest
from .mover import Transfer
from .options import range_problems
from .piece import Limits
from .progress import Meter
from .rate import Bucket
from .row_decide import RowStaging, budget_of, bytes_needed, decide, environment, plan_of, room_check, summary
from .row_layout import rows_string
from .row_place import RowPlace, place_of
from .row_plan import RowPlan
from .row_survey import RowSurvey
from .runtime import Crc, install_wheel, load_crc64, machine
from .source import Source
from .stage import NeedsControllerError, locked
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
        place = place_of(layout, wanted.revision, rows.placement, options["directory"] or "")
        return cls(wanted, rows, place, options, read_sources(options["sources_file"]))

    @property
    def files(self) -> dict[str, File]:
        known = self.manifest.by_path()
        return {path: known[path] for path in needed_paths(self.rows)}

    @property
    def node(self) -> str:
        return str(self.options["node"] or "")


def needed_paths(rows: RowPlan) -> list[str]:
    """The files of the checkpoint that these rows are taken from, and the index where that is copied."""
    return [*(target.path for target in rows.targets), *([rows.index_path] if rows.index_path else [])]


@dataclass(frozen=True)
class View:
    """What this node holds and what has to happen."""

    request: Request
    survey: RowSurvey
    staging: RowStaging
    crc: Crc | None

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
        found = budget_of(self.staging, self.survey, self.request.options["disk_ceiling_percent"])
        return [room_check(found, self.request.node).to_dict()]

    def refuse(self) -> None:
        """Raises HostError when the rows cannot be brought here."""
        texts = list(self.staging.problems)
        room = room_check(budget_of(self.staging, self.survey, self.request.options["disk_ceiling_percent"]), "")
        if not room.ok:
            texts.append(
                f"not enough room for the Engram rows: {room.found}, expected {room.expected}. Cure: {room.cure}"
            )
        if self.request.rows.placement == "shard" and not self.request.place.directory.is_dir():
            texts.append(
                f"{self.request.place.directory} is not there; stage the revision without these shards first "
                "(gb10.ring.checkpoint_stage with sliced)"
            )
        if texts:
            raise HostError("; ".join(texts))

    def runtime(self) -> dict[str, Any]:
        architecture, python = machine()
        needs = {"needs_runtime": self.needs_runtime, "needs_sources": self.needs_sources}
        return {**needs, "machine": architecture, "python": python}

    def result(self) -> dict[str, Any]:
        rows, place = self.request.rows, self.request.place
        model = place.layout.revision(self.request.manifest.revision)
        return {
            "revision": self.request.manifest.revision,
            "path": str(model if rows.placement == "full" else place.directory),
            "ranges": {layer: list(pair) for layer, pair in rows.layers.items()},
            "rows_text": rows_string(rows.layers),
            "environment": environment(rows, place.directory, model),
            "sliced": [target.path for target in rows.targets] if rows.placement == "shard" else [],
            "summary": summary(self.staging),
        }


def view(request: Request) -> View:
    files = request.files
    survey = row_survey.look(request.place, list(files.values()), request.options["whole_directories"])
    staging = decide(request.rows, request.manifest.revision, files, survey)
    # awscrt is megabytes of a library: nothing for a run that finds everything in place.
    crc = load_crc64(request.options["python_path"]) if staging.moves else None
    return View(request, survey, staging, crc)


def ready(seen: View, wheel: str | None) -> bool:
    """Whether checksums can be computed; unpacks the wheel when one was sent. Raises HostError when that is no help."""
    if not seen.needs_runtime:
        return True
    if not wheel:
        return False
    path = seen.request.options["python_path"]
    install_wheel(wheel, path)
    if load_crc64(path) is None:
        raise HostError(
            f"awscrt cannot be imported from {path}; put a wheel that fits into wheel_dir (checkpoint_wheel_dir)"
        )
    return True


@dataclass(frozen=True)
class Brought:
    """What was found to be done and what it took. needs: set when the controller has to help before it can be finished."""

    seen: View
    moved: Mapping[str, float]
    needs: NeedsControllerError | None = None

    def result(self) -> dict[str, Any]:
        found = {**self.seen.result(), "moved": dict(self.moved)}
        if self.needs:
            found |= {"expired": self.needs.expired, "replaced": self.needs.changed, "reason": str(self.needs)}
        return found


def bring(request: Request) -> Brought:
    """Bring the rows, one run at a time. Raises HostError."""
    with locked(request.place.layout):
        # Seen again under the lock: another run may have ended in between.
        seen = view(request)
        seen.refuse()
        if seen.crc is None and seen.staging.moves:
            raise HostError(
                "awscrt cannot be imported, which the checksums of rows need; run the task through its action plugin"
            )
        meter = Meter(seen.staging.fetch_bytes, summary(seen.staging)["fetch"]["files"])
        stop = Stop()
        try:
            with watched(request.place.lease, request.options.get("lease_s") or 0, stop):
                row_apply.apply(_job(request, seen, meter, stop))
        except NeedsControllerError as needs:
            return Brought(seen, meter.numbers(), needs)
    return Brought(seen, meter.numbers())


def _job(request: Request, seen: View, meter: Meter, stop: Stop) -> row_apply.RowJob:
    options = request.options
    return row_apply.RowJob(
        place=request.place,
        staging=seen.staging,
        survey=seen.survey,
        sources=request.sources,
        crc=seen.crc or _no_crc,
        origin=f"{request.manifest.name} revision {request.manifest.revision}",
        verify_share=options["verify_share"],
        transfer=Transfer(
            context=trust(options["ca_pem"] or ""),
            limits=Limits(
                connect=float(options["connect_timeout_s"]),
                read=float(options["read_timeout_s"]),
                stall=float(options["stall_timeout_s"]),
            ),
            workers=options["workers"],
            part_size=options["part_mib"] << 20,
            bucket=Bucket(options["rate_limit"]),
            crc=seen.crc,
            stop=stop,
        ),
        meter=meter,
    )


def _no_crc(_data: memoryview, _value: int) -> int:
    raise HostError("awscrt cannot be imported, which the checksums of rows need")


def tidy(request: Request) -> None:
    """Remove what a run that was killed at its very end left; nothing while another runs."""
    if request.place.journal.exists():
        with locked(request.place.layout):
            row_apply.tidy(request.place)
