# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proves rows whose chunks nobody published checksums of, before engram-local.json says anything of them.

Where a whole shard is on the node, its rest is read, and the rows have to complete it to the checksum that the store has of the whole
object: that costs no byte from the store. Otherwise the rows are read from the store a second time and compared.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..host import HostError
from . import row_second
from .answers import MoveError
from .crc64 import combine_all
from .disk import address
from .journal import Journal
from .mover import Mover
from .moving import Wanted
from .parts import Done, Part
from .piece import BUFFER, DamagedError
from .progress import Meter, SecondMeter
from .rate import Bucket
from .row_decide import CHECK, RowStep
from .row_job import RowJob, extents, refuse
from .sink import Sink
from .source import Source
from .stretches import shared, total, without


@dataclass(frozen=True)
class Kept:
    """Parts that are in a partial file already: of this boot, and of before. proved: bytes of them that need no proof any more."""

    trusted: tuple[Done, ...] = ()
    doubtful: tuple[Done, ...] = ()
    proved: tuple[Part, ...] = ()


class Proofs(Journal):
    """Keeps in a journal which bytes a second reading found right, so that a run that is killed has not read them for nothing."""

    def __init__(self, journal: Journal | None = None) -> None:
        """There is no file of its own. journal: none for what is only read."""
        self._journal = journal

    def close(self) -> None:
        """Nothing is open."""

    def sync(self) -> None:
        """The journal's owner does."""

    def part(self, path: str, done: Done) -> None:
        if self._journal:
            self._journal.proved(path, done.part)

    def _append(self, row: Mapping[str, object], start: bytes = b"") -> None:
        """Nothing else is kept."""


class Nowhere(Sink):
    """Takes bytes of which only the checksum is wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self.path, self.size, self.direct, self.keep = wanted.target, wanted.file.size, False, wanted.keep
        self._buffered = self._direct = -1

    def write(self, view: memoryview, count: int, offset: int) -> None:
        """Nothing is written."""

    def release(self, offset: int, length: int) -> None:
        """The reader of the disk lets go of its pages."""

    def finish(self) -> None:
        """Nothing was written."""

    def mtime_ns(self) -> int:
        return 0


def prove(job: RowJob, journal: Journal, kept: Mapping[str, Kept], stored: Mapping[str, tuple[Done, ...]]) -> None:
    """Raises HostError when rows are wrong, which are then thrown away, and NeedsControllerError."""
    left = {}
    for step in job.moving():
        path = step.target.path
        parts = unproved(extents(step.target), kept[path], stored[path], bool(step.file.chunks))
        if parts and job.verify_share:
            left[path] = parts
    if left:
        _read_again(job, journal, _without_whole(job, left, stored))


def unproved(wanted: Iterable[Part], kept: Kept, stored: Iterable[Done], published: bool) -> tuple[Part, ...]:
    """Of the bytes that are wanted those that came since the last proof. stored: what is in the file now.

    published: whether there are checksums of chunks, to which everything that came in this run was held.
    """
    known = {*kept.trusted, *kept.doubtful}
    fresh = [done.part for done in stored if done not in known]
    proved = [*kept.proved, *fresh] if published else without(kept.proved, fresh)
    return without(wanted, proved)


# --- by the whole object's checksum -----------------------------------------------------------------------------------


def _without_whole(
    job: RowJob, left: Mapping[str, tuple[Part, ...]], stored: Mapping[str, tuple[Done, ...]]
) -> dict[str, tuple[Part, ...]]:
    """What is still to be proved when the files that complete a whole shard of this node are. What cannot be read proves nothing."""
    steps = [step for step in job.moving() if step.target.path in left and step.file.algorithm == CHECK]
    wanted = [each for step in steps for each in [_rest(job, step)] if each.sources or not each.keep]
    if not wanted:
        return dict(left)
    # Reading the disk takes nothing of what rate_limit is for, the network.
    found = Mover(replace(job.transfer, bucket=Bucket()), Proofs(), Meter()).run(wanted)
    proved = {
        each.file.path
        for each in wanted
        if each.file.path not in found.failures
        and completes(each.file.digest, stored[each.file.path], found.stored.get(each.file.path, ()))
    }
    return {path: parts for path, parts in left.items() if path not in proved}


def _rest(job: RowJob, step: RowStep) -> Wanted:
    path = step.target.path
    found = Wanted(
        file=step.file,
        sources=tuple(Source(address(whole), "disk") for whole in job.survey.wholes.get(path, ())),
        target=job.place.target(path),
        keep=without([Part(0, step.target.size)], extents(step.target)),
    )
    return replace(found, opener=lambda _direct: Nowhere(found))


def completes(digest: str, rows: Iterable[Done], rest: Iterable[Done]) -> bool:
    """Whether these parts together are the object of this digest."""
    parts = sorted((*rows, *rest), key=lambda done: done.part.offset)
    return digest == f"{CHECK}:{combine_all((done.check, done.part.length) for done in parts):016x}"


# --- by a second reading ----------------------------------------------------------------------------------------------


def _read_again(job: RowJob, journal: Journal, left: Mapping[str, tuple[Part, ...]]) -> None:
    """These bytes once more from the store, or as much of them as the share says."""
    wanted = [_second(job, step, left[step.target.path]) for step in job.moving() if step.target.path in left]
    job.meter.expect(sum(total(each.keep or ()) for each in wanted))
    # In parts of another size, so that what changes a byte at some place of an answer does not hit the same byte again.
    transfer = replace(job.transfer, part_size=max(BUFFER, job.transfer.part_size // 3 // BUFFER * BUFFER))
    failures = Mover(transfer, Proofs(journal), SecondMeter(job.meter)).run(wanted).failures
    differ = [path for path, error in failures.items() if isinstance(error.__cause__, DamagedError)]
    for step in job.moving():
        if step.target.path in differ:
            # Which of the two readings is right nobody knows: nothing of it is kept.
            journal.begin(step.file, CHECK)
            job.place.partial(step.target.path).unlink(missing_ok=True)
    _refuse_whole(job, {path: failures[path] for path in differ})
    refuse(job, failures)


def _second(job: RowJob, step: RowStep, parts: tuple[Part, ...]) -> Wanted:
    path = step.target.path
    sample = row_second.sample(step.target, job.verify_share, job.chance)
    return replace(
        job.wanted(step),
        sources=tuple(source for source in job.sources.get(path, ()) if source.kind == "s3"),
        keep=shared(sample, parts),
        opener=functools.partial(row_second.Comparer, job.place.partial(path), step.target.size),
    )


def _refuse_whole(job: RowJob, failures: Mapping[str, MoveError]) -> None:
    """Raises HostError when the rows that differ may be from a file of this node, which the next run would take them from again."""
    texts = [
        f"{path}: {error}. They came from {', '.join(map(str, job.survey.wholes[path]))}. Run again; if it stays so, that file is not "
        "the object in the store: delete it, or leave its directory out of checkpoint_engram_whole_directories"
        for path, error in sorted(failures.items())
        if job.survey.wholes.get(path)
    ]
    if texts:
        raise HostError("\n".join(texts))
