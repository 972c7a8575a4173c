# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between the modules and the rest: from options to a view of this node, and from there to work."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..host import HostError, read_text, sync_directory
from ..plan import Plan
from . import manifest, row_place, row_survey
from .activate import Activation, Link, activation
from .budget import Budget, budget, budget_check
from .decide import Staging, Survey, decide, plan_of, state_checks, summary
from .layout import Layout
from .mover import Transfer
from .options import range_problems
from .piece import Limits
from .progress import Meter
from .rate import Bucket
from .receipt import Receipt, ReceiptError
from .runtime import AWSCRT, Crc, install_wheel, load_crc64, machine
from .source import Source, SourceError, forget_unread
from .source import parse as parse_sources
from .stage import Job, NeedsControllerError, adopt, apply, locked
from .stage import tidy as remove_staging
from .survey import look, read_receipt, tree
from .watch import Lease, Sign, Stop, Watch, unread


@dataclass(frozen=True)
class Request:
    """The options of a staging. sources: addresses by path, read once from the file that the controller sent."""

    manifest: manifest.Manifest
    layout: Layout
    phase: str
    node: str
    ceiling_percent: int
    workers: int
    python_path: str
    limits: Limits
    part_size: int
    rate_limit: int = 0
    ca_pem: str = ""
    supersedes: str = ""
    sliced: tuple[str, ...] = ()
    also_needed: int = 0
    lease_s: int = 0
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
            workers=options["workers"],
            python_path=options["python_path"],
            limits=Limits(
                connect=float(options["connect_timeout_s"]),
                read=float(options["read_timeout_s"]),
                stall=float(options["stall_timeout_s"]),
            ),
            part_size=options["part_mib"] << 20,
            rate_limit=options["rate_limit"],
            ca_pem=options["ca_pem"] or "",
            supersedes=options["supersedes"] or "",
            sliced=sliced,
            also_needed=options.get("also_needed") or 0,
            lease_s=options.get("lease_s") or 0,
            sources=read_sources(options["sources_file"]),
        )


def read_sources(path: str | None) -> dict[str, tuple[Source, ...]]:
    """The addresses in this file. It is deleted when it has been read: signed addresses outlive no task."""
    if not path:
        return {}
    text = read_text(Path(path))
    Path(path).unlink(missing_ok=True)
    forget_unread(Path(path).parent, time.time())
    try:
        return parse_sources(text or "")
    except SourceError as error:
        raise HostError(str(error)) from error


@dataclass(frozen=True)
class View:
    """What this node holds and what has to happen."""

    request: Request
    survey: Survey
    staging: Staging
    crc: Crc | None

    @property
    def needs_runtime(self) -> bool:
        return self.crc is None and any(step.file.algorithm in AWSCRT for step in self.staging.of("fetch"))

    @property
    def needs_sources(self) -> bool:
        """Whether files have to be fetched and nobody has said from where."""
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

    def refuse(self) -> None:
        """Raises HostError when this revision cannot be staged here."""
        texts = list(self.staging.problems)
        room = budget_check(self.budget(), self.request.node)
        if not room.ok:
            texts.append(f"not enough room: {room.found}, expected {room.expected}. Cure: {room.cure}")
        if texts:
            raise HostError("; ".join(texts))

    def runtime(self) -> dict[str, Any]:
        architecture, python = machine()
        needs = {"needs_runtime": self.needs_runtime, "needs_sources": self.needs_sources}
        return {**needs, "machine": architecture, "python": python}

    def result(self) -> dict[str, Any]:
        revision = self.request.manifest.revision
        path = str(self.request.layout.revision(revision))
        return {"revision": revision, "path": path, "summary": summary(self.staging)}


def view(request: Request) -> View:
    survey = look(request.layout, request.manifest.revision)
    staging = decide(request.manifest, survey, request.sliced)
    # awscrt is megabytes of a library: nothing for a run that finds everything in place.
    crc = load_crc64(request.python_path) if staging.of("fetch") else None
    return View(request, survey, staging, crc)


def ready(seen: View, wheel: str | None) -> bool:
    """Whether every digest can be computed; unpacks the wheel when one was sent. Raises HostError when that is no help."""
    if not seen.needs_runtime:
        return True
    if not wheel:
        return False
    install_wheel(wheel, seen.request.python_path)
    if load_crc64(seen.request.python_path) is None:
        raise HostError(
            f"awscrt from {Path(wheel).name} cannot be imported from {seen.request.python_path} by Python {machine()[1]} "
            f"on {machine()[0]}; put a wheel that fits into wheel_dir (checkpoint_wheel_dir) and run again"
        )
    return True


@dataclass(frozen=True)
class Staged:
    """What was found to be done and what it took. needs: set when the controller has to help before it can be finished."""

    seen: View
    moved: Mapping[str, float]
    needs: NeedsControllerError | None = None

    def result(self) -> dict[str, Any]:
        found = {**self.seen.result(), "moved": dict(self.moved)}
        if self.needs:
            found |= {"expired": self.needs.expired, "replaced": self.needs.changed, "reason": str(self.needs)}
        return found


def stage(request: Request) -> Staged:
    """Stage, one run at a time. Raises HostError."""
    with locked(request.layout):
        adopt(request.layout, request.supersedes or request.manifest.revision, request.manifest.revision)
        # Seen again under the lock: another run may have ended in between.
        seen = view(request)
        seen.refuse()
        stop = Stop()
        meter = Meter(seen.staging.size_of("fetch"), len(seen.staging.of("fetch")))
        job = Job(
            layout=request.layout,
            staging=seen.staging,
            survey=seen.survey,
            sources=request.sources,
            transfer=Transfer(
                context=trust(request.ca_pem),
                limits=request.limits,
                workers=request.workers,
                part_size=request.part_size,
                bucket=Bucket(request.rate_limit),
                crc=seen.crc,
                stop=stop,
            ),
            meter=meter,
        )
        try:
            with watched(request.layout.lease(request.manifest.revision), request.lease_s, stop):
                apply(job)
        except NeedsControllerError as needs:
            return Staged(seen, meter.numbers(), needs)
    return Staged(seen, meter.numbers())


@contextlib.contextmanager
def watched(path: Path, lease_s: int, stop: Stop) -> Iterator[None]:
    """Stop what is done in this block when the controller is gone. path: of the lease, where there is one."""
    signs: list[Sign] = [unread]
    try:
        if lease_s:
            signs.append(Lease(path, lease_s))
        with Watch(stop, signs):
            yield
    finally:
        path.unlink(missing_ok=True)


def tidy(request: Request) -> None:
    """Remove what a run that was killed at its very end left beside a complete revision; nothing while another runs."""
    left = [request.layout.journal(request.manifest.revision), request.layout.staging(request.manifest.revision)]
    if any(path.exists() for path in left):
        with locked(request.layout):
            remove_staging(request.layout, request.manifest.revision)


def trust(pem: str) -> ssl.SSLContext:
    """What the system trusts, and the given authority beside it."""
    context = ssl.create_default_context()
    if pem:
        try:
            context.load_verify_locations(cadata=pem)
        except ssl.SSLError as error:
            raise HostError(f"ca_bundle (checkpoint_ca_bundle) holds no certificate in PEM form: {error}") from error
    return context


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
