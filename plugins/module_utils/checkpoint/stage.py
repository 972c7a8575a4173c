# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings a revision onto this node as decided: links, transfers, commit. A revision is complete or absent."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from ..host import HostError, read_text, sync_directory, write_text
from . import replace, row_state, units
from .answers import ChangedError, ExpiredError, MoveError, StoppedError
from .chunks import outside
from .config_edit import CONFIG
from .decide import SLICE, Staging, Step, Survey
from .inplace import InPlace
from .journal import Journal
from .layout import Layout
from .manifest import PARTIAL, Manifest
from .mend import mend_others
from .mover import Mover, Transfer
from .moving import Wanted
from .progress import Meter, Reporter
from .receipt import Entry, Receipt, render
from .seed import seed
from .source import Source
from .survey import exact_text, tree


class NeedsControllerError(Exception):
    """All that can be done here is done. expired: paths that need new addresses. changed: objects that were replaced.

    Its text is what to tell when the controller cannot help.
    """

    def __init__(self, text: str, expired: list[str], changed: list[str]) -> None:
        super().__init__(text)
        self.expired, self.changed = expired, changed


@dataclass(frozen=True)
class Job:
    """One staging on this node. sources: addresses by path. in_place: how the old revision makes room, None when it stays."""

    layout: Layout
    staging: Staging
    survey: Survey
    sources: Mapping[str, tuple[Source, ...]]
    transfer: Transfer = field(default_factory=Transfer)
    meter: Meter = field(default_factory=Meter)
    in_place: InPlace | None = None

    @property
    def directory(self) -> Path:
        return self.layout.staging(self.staging.manifest.revision)

    @property
    def revision(self) -> Path:
        return self.layout.revision(self.staging.manifest.revision)

    def wanted(self, step: Step) -> Wanted:
        """The file of this step, with the parts of it that an earlier run fetched, and those of an older state of it."""
        begun = self.survey.begun.get(step.file.path)
        known = begun if begun and step.file.path in self.resumable() else None
        trusted, doubtful = (known.trusted, known.doubtful) if known else ((), ())
        if self.transfer.check == "crc64nvme":
            doubtful = (*doubtful, *outside(step.base.parts, (*trusted, *doubtful)))
        sources = self.sources.get(step.file.path, ())
        return Wanted(step.file, sources, self.directory / step.file.path, trusted, doubtful)

    def resumable(self) -> frozenset[str]:
        """Paths whose partial file is that of the wanted file."""
        found = []
        for step in self.staging.of("fetch"):
            begun = self.survey.begun.get(step.file.path)
            stat = self.survey.staged.get(step.file.path + PARTIAL)
            if begun and stat and stat.size >= step.file.size and begun.fits(step.file, self.transfer.check):
                found.append(step.file.path)
        return frozenset(found)


def adopt(layout: Layout, old: str, new: str) -> None:
    """Go on with the staging of a revision that a replaced object made another one: all its other files are the same."""
    if old == new or not layout.staging(old).is_dir() or layout.staging(new).exists():
        return
    if layout.journal(old).exists():
        layout.journal(old).replace(layout.journal(new))
    layout.staging(old).rename(layout.staging(new))


def apply(job: Job) -> Receipt:
    """Do everything that the staging says and write the receipt.

    Raises HostError and NeedsControllerError; what has come stays, and is in the journal.
    """
    try:
        _prepare(job)
        finished = {step.file.path: job.survey.journal[step.file.path] for step in job.staging.of("staged")}
        with contextlib.closing(Journal(job.layout.journal(job.staging.manifest.revision))) as journal:
            _link(job, journal, finished)
            with Reporter(job.meter, job.layout.progress(job.staging.manifest.revision), journal.sync):
                for batch in _batches(job):
                    _transfers(job, batch, journal, finished)
    except OSError as error:
        raise HostError(
            f"cannot stage into {job.directory}: {error.strerror or error}; what has come is kept, run again after the cure"
        ) from error
    return _commit(job, finished)


def _prepare(job: Job) -> None:
    """A staging directory that holds what an earlier run fetched of these files and nothing else."""
    if job.survey.receipt is None and job.revision.is_dir():
        job.revision.rename(job.directory)
    job.directory.mkdir(parents=True, exist_ok=True)
    finished = {step.file.path for step in job.staging.of("staged")}
    partial = {path + PARTIAL for path in job.resumable()}
    for path in tree(job.directory):
        name = path.removesuffix(PARTIAL)
        if path != name and name in finished and not (job.directory / name).exists():
            (job.directory / path).replace(job.directory / name)
        elif path not in finished and path not in partial and not job.staging.spares(path):
            (job.directory / path).unlink()
    for place, _directories, _names in os.walk(job.directory, topdown=False):
        if Path(place) != job.directory and not any(Path(place).iterdir()):
            Path(place).rmdir()


def _link(job: Job, journal: Journal, finished: dict[str, Entry]) -> None:
    for step in job.staging.of("link"):
        source, target = job.layout.revisions / step.source, job.directory / step.file.path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if step.file.path == CONFIG:
                # People edit it by hand, and an edit must not reach another revision.
                write_text(target, _as_staged(source) if step.text is None else step.text)
            else:
                os.link(source, target)
        except OSError as error:
            raise HostError(f"cannot link {target} to {source}: {error.strerror}") from error
        entry = Entry(step.file.path, step.file.size, step.file.digest, target.stat().st_mtime_ns)
        journal.file(entry)
        finished[step.file.path] = entry


def _as_staged(path: Path) -> str:
    text = exact_text(path)
    if text is None:
        raise HostError(f"{path} is gone or no UTF-8; run again")
    return text


def _batches(job: Job) -> Iterator[list[Step]]:
    """All files at once; one by one while each has to wait for the room that its old state takes."""
    steps = job.staging.of("fetch")
    if job.in_place is None:
        yield list(steps)
        return
    replace.begin(job.layout, job.in_place, job.staging.manifest.revision)
    wanted = {step.file.path: step for step in steps}
    for replacement in job.in_place.steps:
        replace.release(job.layout, job.in_place.old, replacement, job.directory / replacement.path)
        if replacement.path in wanted:
            yield [wanted[replacement.path]]


def _seed(job: Job, step: Step, wanted: Wanted, journal: Journal) -> None:
    """Copy what an older state of the file has. The mover trusts none of it before it has read it back."""
    fresh = outside(
        step.base.parts, (*wanted.trusted, *(done for done in wanted.doubtful if done not in step.base.parts))
    )
    if not fresh or job.transfer.check != "crc64nvme":
        return
    if step.file.path not in job.resumable():
        journal.begin(step.file, job.transfer.check)
    source = job.layout.revisions / step.base.source
    if source.exists():  # otherwise it has become the partial file
        seed(source, wanted.partial, step.file.size, [done.part for done in fresh])


def _transfers(job: Job, steps: list[Step], journal: Journal, finished: dict[str, Entry]) -> None:
    if not steps:
        return
    for step in steps:
        _seed(job, step, job.wanted(step), journal)
    outcome = Mover(job.transfer, journal, job.meter).run(job.wanted(step) for step in steps)
    finished.update(outcome.entries)
    failures = outcome.failures
    if not failures:
        return
    text = _failure_text(job, failures, len(finished))
    expired = sorted(path for path, error in failures.items() if isinstance(error, ExpiredError))
    changed = sorted(path for path, error in failures.items() if isinstance(error, ChangedError))
    if len(expired) + len(changed) == len(failures):
        raise NeedsControllerError(text, expired, changed)
    raise HostError(text)


def _failure_text(job: Job, failures: Mapping[str, MoveError], kept: int) -> str:
    manifest = job.staging.manifest
    named = {path: error for path, error in failures.items() if not isinstance(error, StoppedError)}
    lines = [f"{path}: {error}" for path, error in sorted(named.items())]
    stopped = [error for error in failures.values() if isinstance(error, StoppedError)]
    if stopped:
        lines.append(f"and {len(stopped)} more: {stopped[0]}" if named else str(stopped[0]))
    return (
        f"{len(failures)} of {units.files(len(manifest.files))} of {manifest.name} revision {manifest.revision} "
        f"did not arrive; {units.files(kept)} fetched so far are kept for the next run, and parts of others.\n"
        + "\n".join(lines)
    )


# --- commit -------------------------------------------------------------------------------------------------------


def _commit(job: Job, journal: Mapping[str, Entry]) -> Receipt:
    """Make durable, rename, receipt last."""
    old = job.survey.receipt
    entries = {**_recorded(old), **journal}
    whole = job.revision.is_dir()
    if whole:
        entries.update(_swap_in(job))
    else:
        _sync_tree(job.directory)
        job.revision.parent.mkdir(parents=True, exist_ok=True)
        job.directory.rename(job.revision)
        sync_directory(job.revision.parent)
    receipt = Receipt(
        name=job.staging.manifest.name,
        revision=job.staging.manifest.revision,
        created=old.created if old else datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        files=tuple(entries[file.path] for file in job.staging.manifest.files),
        sliced=job.staging.sliced,
    )
    keep_manifest(job.layout, job.staging.planned)
    write_text(job.layout.receipt(receipt.revision), render(receipt))
    if whole:
        swapped = (step.file.path for step in job.staging.steps if step.action != "keep")
        mend_others(job.layout, job.survey, receipt, swapped)
    replace.finish(job.layout, receipt.revision)
    tidy(job.layout, receipt.revision)
    return receipt


def keep_manifest(layout: Layout, manifest: Manifest) -> None:
    """Remember what the revision was planned from: its chunk checksums say later what a newer state has in common with it."""
    text = json.dumps(manifest.to_dict()) + "\n"
    if read_text(layout.manifest(manifest.revision)) != text:
        write_text(layout.manifest(manifest.revision), text)


def tidy(layout: Layout, revision: str) -> None:
    """Remove what staging a revision needs and a revision with a receipt does not; a run killed at its very end leaves it."""
    shutil.rmtree(layout.staging(revision), ignore_errors=True)
    for left in (layout.journal(revision), layout.progress(revision), layout.lease(revision)):
        left.unlink(missing_ok=True)


def _recorded(receipt: Receipt | None) -> dict[str, Entry]:
    return {entry.path: entry for entry in receipt.files} if receipt else {}


def _swap_in(job: Job) -> dict[str, Entry]:
    """Replace the files of an existing revision that had gone wrong, one rename each."""
    recorded = _recorded(job.survey.receipt)
    if any(step.was == SLICE and step.action != "keep" for step in job.staging.steps):
        # A whole file takes the place of a slice: what was said of slices is not true any more.
        (job.revision / row_state.NAME).unlink(missing_ok=True)
    swapped = {}
    for step in job.staging.steps:
        path = step.file.path
        if step.action == "keep":
            continue
        staged, target = job.directory / path, job.revision / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path in recorded and step.action != "link":
            # With the recorded time the old receipt holds for the new file: a crash before the new one costs nothing.
            os.utime(staged, ns=(recorded[path].mtime_ns, recorded[path].mtime_ns))
        stat = staged.stat()
        staged.replace(target)
        sync_directory(target.parent)
        swapped[path] = Entry(path, step.file.size, step.file.digest, stat.st_mtime_ns)
    return swapped


def _sync_tree(directory: Path) -> None:
    for place, _directories, _names in os.walk(directory, topdown=False):
        sync_directory(place)
