# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings a rank's Engram rows onto this node as decided. engram-local.json goes first and comes back last.

Between these two, files are partial files: rows that are verified already stay in place, others are fetched, everything else becomes a
hole. Whatever ends a run, the next one goes on from its journal, and what the journal says is read back before it counts.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from ..host import HostError, read_text, sync_directory, write_text
from . import row_measure, row_proof, row_serving, stretches
from .crc64 import combine_all
from .disk import address
from .hashing import file_digest
from .journal import Journal
from .manifest import File
from .mover import Mover, Outcome
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
from .runtime import Crc
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
    _take_record(job)
    for step in job.staging.steps:
        _rename_aside(job, step)
    stored = _fetch(job, journal, kept)
    _check_index(job, stored)
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


def _take_record(job: RowJob) -> None:
    """Remove engram-local.json. From here on no unit starts beside these rows; one that did while rows were read keeps them as they are."""
    said = read_text(job.place.record)
    job.place.record.unlink(missing_ok=True)
    sync_directory(job.place.directory)
    staging, moving = job.staging, [step.target.path for step in job.moving()]
    now = row_serving.in_use(job.place, staging.plan.placement, staging.revision, moving)
    used = sorted(now - job.survey.busy)
    if used:
        if said is not None:
            write_text(job.place.record, said)
        raise HostError(
            f"{', '.join(used)} in {job.place.directory} came into use while rows were read (a process opened them, or the engine was "
            "started); nothing was changed, run again"
        )


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
        here = job.place.layout.revision(job.staging.revision) / index.path
        sources = [Source(address(here), "disk")] if _is(here, index, job.crc) else []
        wanted.append(Wanted(index, (*sources, *job.sources.get(index.path, ())), job.place.target(index.path)))
    return _outcome(job, wanted, journal, job.meter).stored


def _is(path: Path, file: File, crc: Crc) -> bool:
    """Whether this is a whole copy of the file, by a digest that says so."""
    try:
        return file.algorithm != "etag" and file_digest(path, file.digest, crc) == file.digest
    except (OSError, LookupError):
        return False


def _check_index(job: RowJob, stored: Mapping[str, tuple[Done, ...]]) -> None:
    """The index from the disk, compared with what came: what is recorded of it is what lies there. Raises HostError."""
    index = job.staging.index
    if index is None:
        return
    path = job.place.target(index.path)
    came = f"{CHECK}:{combine_all((done.check, done.part.length) for done in stored[index.path]):016x}"
    found = file_digest(path, f"{CHECK}:", job.crc)
    if found != came:
        path.unlink()
        raise HostError(f"{path}: {found} was read back, {came} was written. {_CHANGES}")


def _read_back(job: RowJob, journal: Journal, stored: Mapping[str, tuple[Done, ...]]) -> dict[str, tuple[Done, ...]]:
    """Every byte from the disk, compared with what came; what the disk changed is fetched once more and read again. Raises HostError."""
    meter = Meter()
    wanted = [job.wanted(step, doubtful=stored[step.target.path]) for step in job.moving()]
    found = _outcome(job, wanted, journal, meter)
    again = [
        job.wanted(step, *_apart(found.stored[path], found.changed[path]))
        for step in job.moving()
        for path in [step.target.path]
        if path in found.changed
    ]
    second = _outcome(job, again, journal, meter)
    _count(job, meter)
    places = [f"{path} at byte {parts[0].offset}" for path, parts in sorted(second.changed.items())]
    if places:
        raise HostError(
            f"{job.place.directory}: {', '.join(places)}: other bytes were read back than were written, twice. {_CHANGES}"
        )
    return {**found.stored, **second.stored}


_CHANGES = (
    "The disk or the memory of this node changes what is written: check both (journalctl -k, smartctl), then run again"
)


def _apart(stored: Iterable[Done], changed: Sequence[Part]) -> tuple[list[Done], list[Done]]:
    """Parts that were read back, and those that were fetched again and were not."""
    places = sorted((part.offset, part.end) for part in changed)
    there: list[Done] = []
    fresh: list[Done] = []
    for done in stored:
        before = bisect.bisect_right(places, (done.part.offset, sys.maxsize)) - 1
        inside = before >= 0 and done.part.offset < places[before][1]
        (fresh if inside else there).append(done)
    return there, fresh


def _count(job: RowJob, meter: Meter) -> None:
    numbers = meter.numbers()
    job.meter.moved("s3", int(numbers["s3_bytes"]))
    job.meter.moved("peer", int(numbers["peer_bytes"]))
    job.meter.moved("disk", int(numbers["disk_bytes"]))


def _outcome(job: RowJob, wanted: list[Wanted], journal: Journal, meter: Meter) -> Outcome:
    """Raises as refuse does."""
    if not wanted:
        return Outcome({}, {})
    outcome = Mover(job.transfer, journal, meter).run(wanted)
    refuse(job, outcome.failures)
    return outcome


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
            known |= part_of(step.before.state, step.target.path).digests
    wanted = [extent.key for target in plan.targets for extent in target.extents]
    found = {key: digests.get(key) or known.get(key, "") for key in wanted}
    lacking = [key for key, digest in found.items() if not digest]
    if lacking:
        raise HostError(f"{job.place.directory}: nothing is known of {', '.join(lacking)}; run again")
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
