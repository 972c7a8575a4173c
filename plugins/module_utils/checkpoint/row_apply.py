# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings a rank's Engram rows onto this node as decided. engram-local.json goes first and comes back last.

Between these two, files are partial files: rows that are verified already stay in place, others are fetched, everything else becomes a
hole. Whatever ends a run, the next one goes on from its journal, and what the journal says is read back before it counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from ..host import HostError, sync_directory, write_text
from . import row_measure, row_second
from .answers import ChangedError, ExpiredError, MoveError
from .crc64 import combine_all
from .disk import address
from .journal import Journal
from .mover import Mover, Transfer
from .moving import Wanted
from .parts import Done, Part
from .piece import BUFFER, DamagedError
from .progress import Meter, Reporter
from .row_decide import CHECK, RowStaging, RowStep, dropped
from .row_place import RowPlace
from .row_plan import Target
from .row_state import Held, RowState, allocation_problem, held, render
from .row_survey import RowSurvey, stat_of
from .runtime import Crc
from .sink import Sink
from .source import Source
from .stage import NeedsControllerError


class Unwritten(Journal):
    """A journal of what is only read."""

    def __init__(self) -> None:
        """There is no file."""

    def close(self) -> None:
        """Nothing is open."""

    def sync(self) -> None:
        """Nothing was written."""

    def _append(self, row: Mapping[str, object], start: bytes = b"") -> None:
        """Nothing is kept."""


@dataclass(frozen=True)
class RowJob:
    """sources: addresses by path. verify_share: of rows without published checksums, how much is read a second time, 0 to 1.

    origin: what engram-local.json names as the source.
    """

    place: RowPlace
    staging: RowStaging
    survey: RowSurvey
    sources: Mapping[str, tuple[Source, ...]]
    crc: Crc
    origin: str
    verify_share: float = 0.01
    transfer: Transfer = field(default_factory=Transfer)
    meter: Meter = field(default_factory=Meter)
    chance: Callable[[], float] = random.SystemRandom().random

    def moving(self) -> list[RowStep]:
        return [step for step in self.staging.steps if step.way not in ("keep", "link")]

    def wanted(self, step: RowStep, done: Iterable[Done] = (), doubtful: Iterable[Done] = ()) -> Wanted:
        """The slice as the transfer takes it: from whole shards of this node first, where there are any."""
        path = step.target.path
        here = (Source(address(whole), "disk") for whole in self.survey.wholes.get(path, ()))
        sources = (*here, *self.sources.get(path, ()))
        return Wanted(
            step.file, sources, self.place.target(path), tuple(done), tuple(doubtful), keep=extents(step.target)
        )


def extents(target: Target) -> tuple[Part, ...]:
    return tuple(Part(extent.target_offset, extent.length) for extent in target.extents)


def apply(job: RowJob) -> RowState:
    """Do everything that the staging says. Raises HostError and NeedsControllerError; what has come is kept."""
    try:
        job.place.directory.mkdir(parents=True, exist_ok=True)
        digests: dict[str, str] = {}
        with contextlib.closing(Journal(job.place.journal)) as journal:
            with Reporter(job.meter, job.place.progress, journal.sync):
                if job.staging.moves:
                    digests = _bring(job, journal)
            state = _record(job, digests)
    except OSError as error:
        raise HostError(
            f"cannot write Engram rows into {job.place.directory}: {error.strerror or error}; what has come is kept, run again "
            "after the cure"
        ) from error
    tidy(job.place)
    return state


def tidy(place: RowPlace) -> None:
    """Remove what a run needs and a finished one does not."""
    for left in (place.journal, place.progress):
        left.unlink(missing_ok=True)


def _bring(job: RowJob, journal: Journal) -> dict[str, str]:
    """All files in place; the digests of their extents."""
    kept = {step.target.path: _kept(job, step, journal) for step in job.moving()}
    journal.sync()
    job.place.record.unlink(missing_ok=True)
    sync_directory(job.place.directory)
    for step in job.staging.steps:
        _rename_aside(job, step)
    stored = _fetch(job, journal, kept)
    stored = _read_back(job, journal, stored)
    _read_again(job, journal)
    digests: dict[str, str] = {}
    for step in job.moving():
        _check_allocation(job, step)
        digests |= _digests(step.target, stored[step.target.path])
        job.place.partial(step.target.path).replace(job.place.target(step.target.path))
    for step in job.staging.steps:
        if step.way == "link":
            _link(job, step)
    sync_directory(job.place.directory)
    return digests


# --- what is there ----------------------------------------------------------------------------------------------------


def _kept(job: RowJob, step: RowStep, journal: Journal) -> tuple[tuple[Done, ...], tuple[Done, ...]]:
    """Parts that are in the partial file, or will be when the file is renamed: those of this boot, and those of before.

    The journal has them before engram-local.json goes, so that a run that is killed then loses nothing.
    """
    begun = job.survey.begun.get(step.target.path)
    if step.way == "resume" and begun:
        return begun.trusted, begun.doubtful
    journal.begin(step.file, CHECK)  # what it said of a partial file before is over
    partial = job.place.partial(step.target.path)
    partial.unlink(missing_ok=True)
    found: list[Done] = []
    if step.before and step.before.state:
        runs = row_measure.runs(step.target, step.before.state.digests)
        old = step.before.directory / step.target.path
        if step.way == "copy":
            with contextlib.closing(Sink(partial, step.target.size, job.transfer.direct, extents(step.target))) as sink:
                found = row_measure.kept(old, runs, extents(step.target), job.crc, sink)
                sink.finish()
        else:
            found = row_measure.kept(old, runs, extents(step.target), job.crc)
    for done in found:
        journal.part(step.target.path, done)
    return tuple(found), ()


def _rename_aside(job: RowJob, step: RowStep) -> None:
    """A file that gets other rows is not to be found under its name meanwhile; one that is of no use makes room."""
    target, partial = job.place.target(step.target.path), job.place.partial(step.target.path)
    if step.way == "move" or (step.way == "resume" and not partial.exists()):
        target.replace(partial)
    elif dropped(step, job.survey):
        target.unlink()


def _link(job: RowJob, step: RowStep) -> None:
    if step.before is None:
        return
    fresh = job.place.partial(step.target.path)
    fresh.unlink(missing_ok=True)
    os.link(step.before.directory / step.target.path, fresh)
    fresh.replace(job.place.target(step.target.path))


# --- bytes ------------------------------------------------------------------------------------------------------------


def _fetch(
    job: RowJob, journal: Journal, kept: Mapping[str, tuple[tuple[Done, ...], tuple[Done, ...]]]
) -> dict[str, tuple[Done, ...]]:
    wanted = [job.wanted(step, *kept[step.target.path]) for step in job.moving()]
    index = job.staging.index
    if index:
        here = [job.place.layout.revision(job.staging.revision) / index.path]
        sources = [Source(address(path), "disk") for path in here if path.is_file()]
        wanted.append(Wanted(index, (*sources, *job.sources.get(index.path, ())), job.place.target(index.path)))
    return _moved(job, wanted, journal, job.meter)


def _read_back(job: RowJob, journal: Journal, stored: Mapping[str, tuple[Done, ...]]) -> dict[str, tuple[Done, ...]]:
    """Every byte from the disk, compared with what came; what the disk changed is fetched once more."""
    meter = Meter()
    wanted = [job.wanted(step, doubtful=stored[step.target.path]) for step in job.moving()]
    found = _moved(job, wanted, journal, meter)
    _count(job, meter)
    return found


def _read_again(job: RowJob, journal: Journal) -> None:
    """A share of the rows once more from the store, of objects whose chunks nobody published checksums of."""
    meter, wanted = Meter(), []
    for step in job.moving():
        if step.file.chunks or not job.verify_share:
            continue
        partial, size = job.place.partial(step.target.path), step.target.size
        wanted.append(
            replace(
                job.wanted(step),
                sources=tuple(source for source in job.sources.get(step.target.path, ()) if source.kind == "s3"),
                keep=row_second.sample(step.target, job.verify_share, job.chance),
                # mypy does not infer the type of a lambda with defaults
                opener=lambda _direct, partial=partial, size=size: row_second.Comparer(partial, size),  # type: ignore[misc]
            )
        )
    # In parts of another size, so that what changes a byte at some place of an answer does not hit the same byte again.
    transfer = replace(job.transfer, part_size=max(BUFFER, job.transfer.part_size // 3 // BUFFER * BUFFER))
    failures = Mover(transfer, Unwritten(), meter).run(wanted).failures
    _count(job, meter)
    for step in job.moving():
        error = failures.get(step.target.path)
        if error and isinstance(error.__cause__, DamagedError):
            # Which of the two readings is right nobody knows: nothing of it is kept.
            journal.begin(step.file, CHECK)
            job.place.partial(step.target.path).unlink(missing_ok=True)
    _refuse(job, failures)


def _count(job: RowJob, meter: Meter) -> None:
    numbers = meter.numbers()
    job.meter.moved("s3", int(numbers["s3_bytes"]))
    job.meter.moved("peer", int(numbers["peer_bytes"]))
    job.meter.moved("disk", int(numbers["disk_bytes"]))


def _moved(job: RowJob, wanted: list[Wanted], journal: Journal, meter: Meter) -> dict[str, tuple[Done, ...]]:
    """What is in the files afterwards. Raises as _refuse does."""
    if not wanted:
        return {}
    outcome = Mover(job.transfer, journal, meter).run(wanted)
    _refuse(job, outcome.failures)
    return outcome.stored


def _refuse(job: RowJob, failures: Mapping[str, MoveError]) -> None:
    """Raises NeedsControllerError when the controller can help with all that failed, otherwise HostError."""
    if not failures:
        return
    text = _failure_text(job, failures)
    expired = sorted(path for path, error in failures.items() if isinstance(error, ExpiredError))
    changed = sorted(path for path, error in failures.items() if isinstance(error, ChangedError))
    if len(expired) + len(changed) == len(failures):
        raise NeedsControllerError(text, expired, changed)
    raise HostError(text)


def _failure_text(job: RowJob, failures: Mapping[str, MoveError]) -> str:
    lines = "\n".join(f"{path}: {error}" for path, error in sorted(failures.items()))
    return (
        f"the Engram rows of rank {job.staging.plan.rank} did not arrive in {job.place.directory}; what came is kept for the next "
        f"run, and {job.place.record.name} says nothing of it.\n{lines}"
    )


# --- what is said of it -----------------------------------------------------------------------------------------------


def _check_allocation(job: RowJob, step: RowStep) -> None:
    stat = stat_of(job.place.partial(step.target.path))
    problem = allocation_problem(step.target, stat.allocated if stat else 0, job.survey.block)
    if problem:
        raise HostError(
            f"{job.place.directory}: {problem}. The file system does not keep holes as they are written (it may compress, or not know "
            "holes); name a directory on ext4 or XFS (checkpoint_engram_directory, checkpoint_root)"
        )


def _digests(target: Target, stored: Iterable[Done]) -> dict[str, str]:
    """Of each extent, from the checksums of its parts, which were read back from the disk."""
    parts = sorted(stored, key=lambda done: done.part.offset)
    found = {}
    for extent in target.extents:
        low, high = extent.span
        inside = [done for done in parts if low <= done.part.offset and done.part.end <= high]
        if sum(done.part.length for done in inside) != extent.length:
            raise HostError(f"{target.path}: {extent.key} is not whole; run again")
        found[extent.key] = f"{CHECK}:{combine_all((done.check, done.part.length) for done in inside):016x}"
    return found


def _record(job: RowJob, digests: Mapping[str, str]) -> RowState:
    """Write engram-local.json, in one rename, when all files are in place and durable."""
    plan, before = job.staging.plan, job.survey.here.state
    for path in job.staging.stale:
        job.place.target(path).unlink(missing_ok=True)
    known: dict[str, str] = dict(before.digests) if before else {}
    for step in job.staging.steps:
        if step.way == "link" and step.before and step.before.state:
            known |= step.before.state.digests
    wanted = [extent.key for target in plan.targets for extent in target.extents]
    found = {key: digests.get(key, known.get(key, "")) for key in wanted}
    if job.staging.index or plan.index_path in known:
        found[plan.index_path] = job.staging.index.digest if job.staging.index else known[plan.index_path]
    state = RowState(
        source=job.origin,
        layers=plan.layers,
        rank=plan.rank,
        tp_size=plan.tp,
        rule=plan.rule,
        revision=job.staging.revision,
        placement=plan.placement,
        created=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        files=tuple(_held(job, step) for step in job.staging.steps),
        digests=found,
    )
    write_text(job.place.record, render(state))
    return state


def _held(job: RowJob, step: RowStep) -> Held:
    path = job.place.target(step.target.path)
    with path.open("rb") as handle:
        header = hashlib.sha256(handle.read(step.target.header_size)).hexdigest()
    return held(step.target, step.file.digest, header, path.stat().st_mtime_ns)
