# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between the modules and the rest: from options to a view of this node, and from there to work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..host import HostError, sync_directory
from ..plan import Plan
from . import manifest, row_place, row_survey
from .activate import Activation, Link, activation
from .bringing import Brought, How, Look, Work, attended, read_sources
from .budget import Budget, budget, budget_check
from .decide import Staging, Survey, decide, plan_of, state_checks, summary
from .layout import Layout
from .options import range_problems
from .progress import Meter
from .receipt import Receipt, ReceiptError
from .runtime import AWSCRT, load_crc64
from .source import Source
from .stage import Job, adopt, apply, locked
from .stage import tidy as remove_staging
from .survey import look, read_receipt, tree
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

    def budget(self) -> Budget:
        return budget(self.staging, self.survey, self.request.ceiling_percent, self.request.also_needed)

    def checks(self) -> list[dict[str, Any]]:
        found = [*state_checks(self.staging, self.request.node), budget_check(self.budget(), self.request.node)]
        return [check.to_dict() for check in found]

    def lacking(self) -> list[str]:
        """Paths of the files that have to come from elsewhere."""
        return [step.file.path for step in self.staging.of("fetch")]

    def arithmetic(self) -> dict[str, Any]:
        return self.budget().to_dict(self.request.node)

    def told(self) -> dict[str, Any]:
        return {"checks": self.checks(), "budget": self.arithmetic(), "lacking": self.lacking()}

    def refuse(self) -> None:
        texts = list(self.staging.problems)
        room = budget_check(self.budget(), self.request.node)
        if not room.ok:
            texts.append(f"not enough room: {room.found}, expected {room.expected}. Cure: {room.cure}")
        if texts:
            raise HostError("; ".join(texts))

    def result(self) -> dict[str, Any]:
        revision = self.request.manifest.revision
        path = str(self.request.layout.revision(revision))
        return {"revision": revision, "path": path, "summary": summary(self.staging)}


def view(request: Request) -> View:
    survey = look(request.layout, request.manifest.revision)
    staging = decide(request.manifest, survey, request.sliced)
    # awscrt is megabytes of a library: nothing for a run that finds everything in place.
    crc = load_crc64(request.how.python_path) if staging.of("fetch") else None
    return View(request, survey, staging, crc)


def stage(request: Request) -> Brought:
    """Stage, one run at a time. Raises HostError."""
    with locked(request.layout):
        adopt(request.layout, request.supersedes or request.manifest.revision, request.manifest.revision)
        # Seen again under the lock: another run may have ended in between.
        seen = view(request)
        seen.refuse()
        meter = Meter(seen.staging.size_of("fetch"), len(seen.staging.of("fetch")))

        def work(stop: Stop) -> None:
            apply(
                Job(
                    layout=request.layout,
                    staging=seen.staging,
                    survey=seen.survey,
                    sources=request.sources,
                    transfer=request.how.transfer(seen.crc, stop),
                    meter=meter,
                )
            )

        needs = attended(request.layout.lease(request.manifest.revision), request.how, work)
    return Brought(seen, meter.numbers(), needs)


def tidy(request: Request) -> None:
    """Remove what a run that was killed at its very end left beside a complete revision; nothing while another runs."""
    left = [request.layout.journal(request.manifest.revision), request.layout.staging(request.manifest.revision)]
    if any(path.exists() for path in left):
        with locked(request.layout):
            remove_staging(request.layout, request.manifest.revision)


#: What checkpoint_stage does of the steps in bringing.run.
WORK = Work(Request.from_options, view, stage, tidy)


# --- activation ---------------------------------------------------------------------------------------------------


def check_names(name: str, revision: str = "") -> None:
    """Raises ManifestError when one of them would leave the root."""
    problems = [manifest.name_problem(value) for value in (name, revision) if value]
    if any(problems):
        raise manifest.ManifestError("; ".join(problem for problem in problems if problem))


def activation_of(layout: Layout, revision: str) -> Activation:
    link = Link()
    if layout.current.is_symlink():
        link = Link(str(layout.current.readlink()))
    elif layout.current.exists():
        link = Link(foreign=True)
    receipt, problem = _receipt(layout, revision)
    if receipt and receipt.sliced:
        problem = problem or slices_problem(layout, receipt)
    return activation(
        str(layout.current),
        link,
        layout.link_text(revision),
        receipt=receipt,
        found=tree(layout.revision(revision)),
        problem=problem,
    )


def slices_problem(layout: Layout, receipt: Receipt) -> str:
    """Why the slices of a revision are not there, or an empty text."""
    place = row_place.place_of(layout, receipt.revision, "shard")
    state, problem = row_survey.read_state(place)
    if problem:
        return problem
    held = {file.path: (file.size, file.mtime_ns) for file in state.files} if state else {}
    stats = {path: row_survey.stat_of(place.target(path)) for path in receipt.sliced}
    wrong = [path for path, stat in stats.items() if stat is None or held.get(path) != (stat.size, stat.mtime_ns)]
    if not wrong:
        return ""
    return (
        f"revisions/{receipt.revision} is to have slices of {', '.join(wrong)}, and nothing says that their rows are there; bring "
        "them (gb10.ring.engram_rows with placement shard, or the playbook that stages the checkpoint)"
    )


def _receipt(layout: Layout, revision: str) -> tuple[Receipt | None, str]:
    try:
        return read_receipt(layout, revision), ""
    except ReceiptError as error:
        return None, str(error)


def point(layout: Layout, revision: str) -> None:
    """Move the link in one rename. Raises HostError."""
    fresh = layout.base / ".current.new"
    try:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(layout.link_text(revision))
        fresh.replace(layout.current)
        sync_directory(layout.base)
    except OSError as error:
        raise HostError(f"cannot point {layout.current} to {revision}: {error.strerror}") from error
