# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings a revision onto this node as decided: links, transfers, commit. A revision is complete or absent."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

from ..host import HostError, sync_directory, write_text
from . import row_state, units
from .answers import ChangedError, ExpiredError, MoveError, StoppedError
from .decide import SLICE, Staging, Step, Survey
from .journal import Journal
from .layout import Layout
from .manifest import PARTIAL
from .mover import Mover, Transfer
from .moving import Wanted
from .progress import Meter, Reporter
from .receipt import Entry, Receipt, render
from .source import Source
from .survey import tree
from .watch import lock_patience


class NeedsControllerError(Exception):
    """All that can be done here is done. expired: paths that need new addresses. changed: objects that were replaced.

    Its text is what to tell when the controller cannot help.
    """

    def __init__(self, text: str, expired: list[str], changed: list[str]) -> None:
        super().__init__(text)
        self.expired, self.changed = expired, changed


@dataclass(frozen=True)
class Job:
    """One staging on this node. sources: addresses by path."""

    layout: Layout
    staging: Staging
    survey: Survey
    sources: Mapping[str, tuple[Source, ...]]
    transfer: Transfer = field(default_factory=Transfer)
    meter: Meter = field(default_factory=Meter)

    @property
    def directory(self) -> Path:
        return self.layout.staging(self.staging.manifest.revision)

    @property
    def revision(self) -> Path:
        return self.layout.revision(self.staging.manifest.revision)

    def wanted(self, step: Step) -> Wanted:
        """The file of this step, with the parts of it that an earlier run fetched."""
        begun = self.survey.begun.get(step.file.path)
        known = begun if begun and step.file.path in self.resumable() else None
        return Wanted(
            step.file,
            self.sources.get(step.file.path, ()),
            self.directory / step.file.path,
            trusted=known.trusted if known else (),
            doubtful=known.doubtful if known else (),
        )

    def resumable(self) -> frozenset[str]:
        """Paths whose partial file is that of the wanted file."""
        found = []
        for step in self.staging.of("fetch"):
            begun = self.survey.begun.get(step.file.path)
            stat = self.survey.staged.get(step.file.path + PARTIAL)
            if begun and stat and stat.size >= step.file.size and begun.fits(step.file, self.transfer.check):
                found.append(step.file.path)
        return frozenset(found)


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """One staging of a checkpoint at a time on this node. Raises HostError when another one runs and does not end."""
    layout.stagings.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with layout.lock.open("w") as handle:
        while not _taken(handle):
            patience = lock_patience(layout.stagings)
            if time.monotonic() - began > patience:
                raise HostError(
                    f"another run is staging {layout.name} on this node ({layout.lock} is locked, waited {patience:.0f} s); "
                    "wait for it, or end it"
                )
            time.sleep(0.2)
        yield


def _taken(handle: TextIO) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
                _transfers(job, list(job.staging.of("fetch")), journal, finished)
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
        elif path not in finished and path not in partial:
            (job.directory / path).unlink()
    for place, _directories, _names in os.walk(job.directory, topdown=False):
        if Path(place) != job.directory and not any(Path(place).iterdir()):
            Path(place).rmdir()


def _link(job: Job, journal: Journal, finished: dict[str, Entry]) -> None:
    for step in job.staging.of("link"):
        source, target = job.layout.revisions / step.source, job.directory / step.file.path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, target)
        except OSError as error:
            raise HostError(f"cannot link {target} to {source}: {error.strerror}") from error
        entry = Entry(step.file.path, step.file.size, step.file.digest, target.stat().st_mtime_ns)
        journal.file(entry)
        finished[step.file.path] = entry


def _transfers(job: Job, steps: list[Step], journal: Journal, finished: dict[str, Entry]) -> None:
    if not steps:
        return
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
    if job.revision.is_dir():
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
    write_text(job.layout.receipt(receipt.revision), render(receipt))
    tidy(job.layout, receipt.revision)
    return receipt


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
