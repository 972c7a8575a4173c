# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bringing a rank's Engram rows works with, and what to tell when it cannot."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..host import HostError
from .answers import ChangedError, ExpiredError, MoveError
from .disk import address
from .mover import Transfer
from .moving import Wanted
from .parts import Done, Part
from .progress import Meter
from .row_decide import RowStaging, RowStep
from .row_place import RowPlace
from .row_plan import Target
from .row_survey import RowSurvey
from .runtime import Crc
from .source import Source
from .stage import NeedsControllerError


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
    verify_share: float = 1.0
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


def refuse(job: RowJob, failures: Mapping[str, MoveError]) -> None:
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
