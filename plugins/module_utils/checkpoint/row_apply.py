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
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from ..host import HostError, sync_directory, write_text
from . import row_measure, row_proof, stretches
from .crc64 import combine_all
from .disk import address
from .journal import Journal
from .mover import Mover
from .moving import Wanted
from .parts import Done, Part
from .progress import Meter, Reporter
from .row_decide import CHECK, RowStep, dropped
from .row_job import RowJob, extents, refuse
from .row_place import RowPlace
from .row_plan import Target
from .row_proof import Kept
from .row_state import Held, RowState, allocation_problem, content_key, held, part_of, render
from .row_survey import content_of, stat_of
from .sink import Sink
from .source import Source


def staying(step: RowStep) -> tuple[Part, ...]:
    """What of the extents an earlier copy has as it is wanted."""
    kept = stretches.of_spans(step.work.keep)
    return tuple(part for extent in extents(step.target) for part in stretches.shared((extent,), kept))


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
    _stay(job, journal)
    journal.sync()
    job.place.record.unlink(missing_ok=True)
    sync_directory(job.place.directory)
    for step in job.staging.steps:
        _rename_aside(job, step)
    stored = _fetch(job, journal, kept)
    stored = _read_back(job, journal, stored)
    row_proof.prove(job, journal, kept, stored)
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


def _kept(job: RowJob, step: RowStep, journal: Journal) -> Kept:
    """Parts that are in the partial file, or will be when the file is renamed.

    The journal has them before engram-local.json goes, so that a run that is killed then loses nothing.
    """
    begun = job.survey.begun.get(step.target.path)
    if step.way == "resume" and begun:
        return Kept(begun.trusted, begun.doubtful, begun.proved)
    found = _measured(job, step) if step.way == "move" else []
    journal.begin(step.file, CHECK)  # what it said of the file before is over
    partial = job.place.partial(step.target.path)
    partial.unlink(missing_ok=True)
    if step.way == "copy":
        with contextlib.closing(Sink(partial, step.target.size, job.transfer.direct, extents(step.target))) as sink:
            found = _measured(job, step, sink)
            sink.finish()
    for done in found:
        journal.part(step.target.path, done)
        journal.proved(step.target.path, done.part)
    return Kept(trusted=tuple(found), proved=tuple(done.part for done in found))


def _measured(job: RowJob, step: RowStep, copy: Sink | None = None) -> list[Done]:
    path = step.target.path
    state = step.before.of(path) if step.before else None
    if step.before is None or state is None:
        return []
    runs = row_measure.runs(step.target, state.digests)
    return row_measure.kept(step.before.directory / path, runs, staying(step), job.crc, copy)


def _stay(job: RowJob, journal: Journal) -> None:
    """The journal takes over what engram-local.json says of files that are not moved, and other revisions' of those that links take over."""
    paths = {step.target.path: step.before for step in job.staging.steps if step.way in ("keep", "link")}
    if job.staging.plan.index_path and not job.staging.index:
        paths[job.staging.plan.index_path] = job.survey.here
    for path, slices in paths.items():
        state = slices.of(path) if slices else None
        if state:
            journal.stays(path, str(job.place.directory), render(part_of(state, path)))


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
    fresh.unlink(missing_ok=True)  # a rename onto another name of the same file does nothing


# --- bytes ------------------------------------------------------------------------------------------------------------


def _fetch(job: RowJob, journal: Journal, kept: Mapping[str, Kept]) -> dict[str, tuple[Done, ...]]:
    there = [(step, kept[step.target.path]) for step in job.moving()]
    wanted = [job.wanted(step, parts.trusted, parts.doubtful) for step, parts in there]
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
    refuse(job, outcome.failures)
    return outcome.stored


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
    plan = job.staging.plan
    for path in job.staging.stale:
        job.place.target(path).unlink(missing_ok=True)
    known = {key: digest for state in job.survey.here.states for key, digest in state.digests.items()}
    for step in job.staging.steps:
        if step.way == "link" and step.before and step.before.state:
            known |= step.before.state.digests
    wanted = [extent.key for target in plan.targets for extent in target.extents]
    found = {key: digests.get(key, known.get(key, "")) for key in wanted}
    found |= _index(job, known)
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


def _index(job: RowJob, known: Mapping[str, str]) -> dict[str, str]:
    """Of the copy of the index: what was planned, and its bytes. known: of one that stays."""
    path, content = job.staging.plan.index_path, content_key(job.staging.plan.index_path)
    if job.staging.index:
        return {path: job.staging.index.digest, content: content_of(job.place.target(path))}
    return {key: known[key] for key in (path, content) if key in known}


def _held(job: RowJob, step: RowStep) -> Held:
    path = job.place.target(step.target.path)
    with path.open("rb") as handle:
        header = hashlib.sha256(handle.read(step.target.header_size)).hexdigest()
    return held(step.target, step.file.digest, header, path.stat().st_mtime_ns)
