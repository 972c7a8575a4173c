# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between the modules and the rest: from options to a view of this node, and from there to work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..host import HostError
from ..plan import Plan
from ..report.checks import Check
from . import manifest, pruning, standing
from . import replace as replacement
from .bringing import Brought, How, Look, Work, attended, read_sources
from .budget import Budget, budget, budget_check
from .decide import Staging, Survey, decide, plan_of, state_checks, summary
from .inplace import InPlace, begun, in_place
from .inspection import damaged_files, damaged_sources
from .layout import Layout
from .lock import locked
from .options import range_problems
from .progress import Meter
from .receipt import ReceiptError
from .row_standing import Rows
from .runtime import AWSCRT, absent_text, load_crc64
from .source import Source
from .stage import Job, adopt, apply, keep_manifest
from .stage import tidy as remove_staging
from .survey import look
from .watch import Stop


@dataclass(frozen=True)
class Request:
    """The options of a staging. sources: addresses by path, read once from the file that the controller sent."""

    manifest: manifest.Manifest
    layout: Layout
    phase: str
    node: str
    ceiling_percent: int
    how: How
    supersedes: str = ""
    sliced: tuple[str, ...] = ()
    also_needed: int = 0
    verify: str = "recorded"
    verify_rate_limit: int = 0
    damaged: Mapping[str, str] = field(default_factory=dict)
    in_place: bool = False
    keep: int = 2
    rows: Rows | None = None
    sources: Mapping[str, tuple[Source, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Request:
        problems = range_problems(dict(options))
        if problems:
            raise manifest.ManifestError("; ".join(problems))
        wanted = manifest.parse(options["plan"])
        sliced = tuple(options.get("sliced") or ())
        unknown = sorted(set(sliced) - set(wanted.by_path()))
        if unknown:
            raise manifest.ManifestError(f"option sliced names {', '.join(unknown)}, which the plan does not have")
        return cls(
            manifest=wanted,
            layout=Layout(options["root"], wanted.name),
            phase=options["phase"],
            node=options["node"] or "",
            ceiling_percent=options["disk_ceiling_percent"],
            how=How.from_options(options),
            supersedes=options["supersedes"] or "",
            sliced=sliced,
            also_needed=options.get("also_needed") or 0,
            verify=options["verify"],
            verify_rate_limit=options["verify_rate_limit"],
            damaged=options["damaged"] or {},
            in_place=options["in_place"],
            keep=options["keep"],
            rows=Rows.from_options(options.get("engram")),
            sources=read_sources(options["sources_file"]),
        )


class View(Look[Request, Survey, Staging]):
    """What this node holds and what has to happen."""

    @property
    def needs_runtime(self) -> bool:
        return self.crc is None and any(step.file.algorithm in AWSCRT for step in self.staging.of("fetch"))

    @property
    def needs_sources(self) -> bool:
        return bool(self.staging.of("fetch")) and not self.request.sources

    def plan(self) -> Plan:
        return plan_of(self.staging, str(self.request.layout.revision(self.request.manifest.revision)))

    def diff(self) -> list[dict[str, str]]:
        return self.plan().diff()

    def replacing(self) -> InPlace | None:
        """How the old revision would make room; also what an earlier run has begun to do."""
        return in_place(self.staging, self.survey, self.request.ceiling_percent, self.request.also_needed)

    def replaces(self) -> InPlace | None:
        """The same where it is to be done: the disk does not hold both, or no whole old revision is left."""
        found = self.replacing()
        wanted = found is not None and (begun(self.survey) is not None or not self.budget().ok)
        return found if wanted and self.request.in_place else None

    @property
    def abandoned(self) -> str:
        """The revision whose unfinished replacement of this one is given up: its staging makes room."""
        begun = self.survey.replacing
        return begun.new if begun and begun.old == self.request.manifest.revision else ""

    def budget(self) -> Budget:
        found = budget(self.staging, self.survey, self.request.ceiling_percent, self.request.also_needed)
        freed = self.survey.leftovers.get(self.abandoned, 0)
        return dataclasses.replace(found, needed=max(0, found.needed - freed)) if freed else found

    def room(self) -> Check:
        """Whether the bytes to come fit, and whether they do, or would, in place of the old revision."""
        check, replaced = budget_check(self.budget(), self.request.node), self.replacing()
        if self.replaces() and replaced:
            return dataclasses.replace(
                check, ok=replaced.ok, found=replaced.text(), cure="" if replaced.ok else check.cure
            )
        if check.ok or replaced is None or not replaced.ok:
            return check
        return dataclasses.replace(
            check, cure=f"{check.cure}; or restage.yml with checkpoint_in_place: true: {replaced.text()}"
        )

    def checks(self) -> list[dict[str, Any]]:
        found = [*state_checks(self.staging, self.request.node), self.room()]
        return [check.to_dict() for check in found]

    def lacking(self) -> list[str]:
        """Paths of the files that have to come from elsewhere."""
        return [step.file.path for step in self.staging.of("fetch")]

    def told(self) -> dict[str, Any]:
        """What the group decides from."""
        replaced, layout = self.replaces(), self.request.layout
        return {
            "checks": self.checks(),
            "budget": self.arithmetic(),
            "lacking": self.lacking(),
            "stages": self.staging.changed or bool(left_over(self.request)),
            "standing": standing.state(layout, rows=self.request.rows),
            "damaged": dict(self.survey.damaged),
            "in_place": replaced.to_dict() if replaced else {},
            "manifests": str(layout.manifests),
            "frees": pruning.after_switch(layout, self.request.manifest.revision, self.request.keep),
        }

    def arithmetic(self) -> dict[str, Any]:
        return self.budget().to_dict(self.request.node)

    def refuse(self) -> None:
        texts = list(self.staging.problems)
        room = self.room()
        if not room.ok:
            texts.append(f"not enough room: {room.found}, expected {room.expected}. Cure: {room.cure}")
        if texts:
            raise HostError("; ".join(texts))

    def result(self) -> dict[str, Any]:
        revision = self.request.manifest.revision
        path = str(self.request.layout.revision(revision))
        return {"revision": revision, "path": path, "summary": summary(self.staging)}


def view(request: Request) -> View:
    survey = look(request.layout, request.manifest.revision, adopts=True)
    survey = dataclasses.replace(survey, damaged=_damaged(request, survey))
    staging = decide(request.manifest, survey, request.sliced)
    # awscrt is megabytes of a library: nothing for a run that finds everything in place.
    crc = load_crc64(request.how.python_path) if staging.of("fetch") else None
    return View(request, survey, staging, crc)


def _damaged(request: Request, survey: Survey) -> dict[str, str]:
    """Files that this run's budget found to be wrong, or that turn out to be when all that the revision has or gets a name of are read."""
    if request.verify != "full" or request.phase != "budget":
        return dict(request.damaged)
    layout, path, limit = request.layout, request.how.python_path, request.verify_rate_limit
    kept = [survey.receipt, *(other.receipt for other in survey.others)]
    entries = [entry for receipt in kept if receipt for entry in receipt.files]
    if load_crc64(path) is None and any(entry.digest.partition(":")[0] in AWSCRT for entry in entries):
        raise HostError(absent_text(path))  # else all files would count as damaged, and be fetched
    own = damaged_files(layout, survey, path, limit)
    looked = dataclasses.replace(survey, damaged=own)
    return own | damaged_sources(layout, looked, request.manifest, request.sliced, python_path=path, rate_limit=limit)


def stage(request: Request) -> Brought:
    """Stage, one run at a time. Raises HostError."""
    with locked(request.layout):
        replacement.finish_ended(request.layout)
        adopt(request.layout, superseded(request), request.manifest.revision)
        # Seen again under the lock: another run may have ended in between.
        seen = view(request)
        seen.refuse()
        if seen.abandoned:
            remove_staging(request.layout, seen.abandoned)
        meter = Meter(seen.staging.size_of("fetch"), len(seen.staging.of("fetch")))

        def work(stop: Stop) -> None:
            apply(
                Job(
                    layout=request.layout,
                    staging=seen.staging,
                    survey=seen.survey,
                    sources=_alone(request.sources) if seen.replaces() else request.sources,
                    transfer=request.how.transfer(seen.crc, stop),
                    meter=meter,
                    in_place=seen.replaces(),
                )
            )

        needs = attended(request.layout.lease(request.manifest.revision), request.how, work)
    return Brought(seen, meter.numbers(), needs)


def _alone(sources: Mapping[str, tuple[Source, ...]]) -> dict[str, tuple[Source, ...]]:
    """Without other nodes: two that replace files one by one, each in its own order, could wait for each other."""
    return {path: tuple(source for source in found if source.kind == "s3") for path, found in sources.items()}


def superseded(request: Request) -> str:
    """The revision whose unfinished staging is gone on with: it has files of this one."""
    if request.supersedes:
        return request.supersedes
    old, new = _replacing(request.layout)
    return new if old and old != request.manifest.revision else request.manifest.revision


def _replacing(layout: Layout) -> tuple[str, str]:
    """The old and the new revision of a replacement in place that has not ended, empty texts when there is none."""
    try:
        begun = replacement.read(layout)
    except ReceiptError as error:
        raise HostError(str(error)) from error
    return (begun.old, begun.new) if begun else ("", "")


def tidy(request: Request) -> None:
    """Remove what a run that was killed at its very end left beside a complete revision; nothing while another runs.

    A revision that was staged from a plan with fewer chunk checksums gets those of this one.
    """
    keep_manifest(request.layout, request.manifest)
    if left_over(request):
        with locked(request.layout):
            if request.manifest.revision in _replacing(request.layout):
                replacement.finish(request.layout, request.manifest.revision)
            remove_staging(request.layout, request.manifest.revision)


def left_over(request: Request) -> list[Path]:
    """What a run that was killed at its very end left of the wanted revision."""
    layout, revision = request.layout, request.manifest.revision
    places = [path for path in (layout.journal(revision), layout.staging(revision)) if path.exists()]
    return [*places, layout.replacing] if revision in _replacing(layout) else places


#: What checkpoint_stage does of the steps in bringing.run.
WORK = Work(Request.from_options, view, stage, tidy)


def check_names(name: str, revision: str = "") -> None:
    """Raises ManifestError when one of them would leave the root."""
    problems = [manifest.name_problem(value) for value in (name, revision) if value]
    if any(problems):
        raise manifest.ManifestError("; ".join(problem for problem in problems if problem))
