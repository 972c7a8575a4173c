# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One file in transfer: which of its parts are there, what is to be done next. Changed only under the mover's lock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .answers import MoveError
from .hashing import Hasher
from .manifest import PARTIAL, File
from .parts import PART, Done, Part, missing, usable, whole_check
from .receipt import Entry
from .sink import Sink
from .source import Source
from .stretches import requests, shared, total, without
from .stretches import usable as usable_in

#: check: read a part of before a reboot back. hash: feed the next part to a digest that needs them in order.
Kind = Literal["fetch", "check", "hash", "finish"]
#: Parts that may be fetched ahead of a digest that needs them in order: their pages stay in memory until it has read them.
AHEAD = 8


@dataclass(frozen=True)
class Wanted:
    """A file to fetch. trusted, doubtful: its parts that are in the partial file, as the journal has them.

    keep: the only bytes of it that are wanted, for a slice, as parts in order of which none overlaps another. A slice stays partial
    when all of it has come, for its maker to rename.
    opener: what to write into instead of the partial file; it is told whether to write past the page cache.
    """

    file: File
    sources: tuple[Source, ...]
    target: Path
    trusted: tuple[Done, ...] = ()
    doubtful: tuple[Done, ...] = ()
    keep: tuple[Part, ...] | None = None
    opener: Callable[[bool], Sink] | None = None

    @property
    def partial(self) -> Path:
        return self.target.with_name(self.target.name + PARTIAL)

    @property
    def bytes(self) -> int:
        return self.file.size if self.keep is None else total(self.keep)

    def open(self, direct: bool) -> Sink:
        """What its bytes are written into."""
        return self.opener(direct) if self.opener else Sink(self.partial, self.file.size, direct, self.keep)

    def usable(self) -> list[Done]:
        """Its parts that are there."""
        known = (*self.trusted, *self.doubtful)
        return usable(self.file.size, known) if self.keep is None else usable_in(self.keep, known)

    def missing(self, there: Sequence[Done], part_size: int) -> list[Task]:
        """What to fetch beside the parts that are there."""
        if self.keep is None:
            return [Task("fetch", part, (part,)) for part in missing(self.file.size, there, part_size)]
        left = without(self.keep, (done.part for done in there))
        return self.fetches(left, part_size)

    def fetches(self, left: Sequence[Part], part_size: int) -> list[Task]:
        """How these bytes are fetched. Of a slice more may be asked for than is written."""
        if self.keep is None:
            return [Task("fetch", part, (part,)) for part in left]
        asked = requests(self.file.size, left, part_size, bool(self.file.chunks))
        return [Task("fetch", part, self._stored(shared(left, (part,)))) for part in asked]

    def _stored(self, stretches: Sequence[Part]) -> tuple[Part, ...]:
        """Cut where the wanted parts meet, so that each of them has a checksum of its own."""
        return tuple(piece for part in self.keep or () for piece in shared((part,), stretches))


@dataclass(frozen=True)
class Task:
    """stored: the bytes of the part that are written, for a fetch."""

    kind: Kind
    part: Part = field(default_factory=lambda: Part(0, 0))
    stored: tuple[Part, ...] = ()


class Moving:
    """hasher: for a digest that needs the bytes in order, otherwise None and the checksums of the parts are combined."""

    def __init__(self, wanted: Wanted, hasher: Hasher | None, part_size: int = PART) -> None:
        self.wanted, self.file, self.hasher = wanted, wanted.file, hasher
        kept = wanted.usable()
        self.resumed = bool(kept)
        written_now = {done.part.offset for done in wanted.trusted}
        self._doubtful = {done.part.offset: done for done in kept if done.part.offset not in written_now}
        self.done = {done.part.offset: done for done in kept if done.part.offset not in self._doubtful}
        self._to_check = deque(done.part for done in self._doubtful.values())
        self._pending = deque(wanted.missing(kept, part_size))
        self._part_size = part_size
        self._ahead = AHEAD * part_size
        self._hashed, self._hashing = 0, False
        self.running = 0
        self.opening = threading.Lock()
        self.sink: Sink | None = None
        self.error: MoveError | None = None
        self.entry: Entry | None = None
        self.not_before = 0.0
        self.moved_at = 0.0
        self.given_up: set[str] = set()
        self.waiting_since: dict[tuple[str, bool], float] = {}
        self.from_peers: dict[int, str] = {}
        self.changed: list[Part] = []

    @property
    def over(self) -> bool:
        return self.running == 0 and (self.error is not None or self.entry is not None)

    @property
    def left(self) -> int:
        """Bytes that are neither there nor to be checked."""
        return sum(total(task.stored) for task in self._pending)

    @property
    def stored(self) -> tuple[Done, ...]:
        """The parts that are in the file, in order."""
        return tuple(done for _offset, done in sorted(self.done.items()))

    def claim(self, now: float) -> Task | None:
        """What to do next for this file, or None when there is nothing at the moment."""
        task = None if self.error or self.entry else self._next(now)
        if task:
            self.running += 1
            self._hashing = self._hashing or task.kind == "hash"
        return task

    def _next(self, now: float) -> Task | None:
        if self._to_check:
            return Task("check", self._to_check.popleft())
        if self.hasher and not self._hashing and self._hashed in self.done:
            return Task("hash", self.done[self._hashed].part)
        if self._pending and self.not_before <= now and self._near(self._pending[0].part):
            return self._pending.popleft()
        whole = not self._pending and not self.running and (not self.hasher or self._hashed == self.file.size)
        return Task("finish") if whole else None

    def _near(self, part: Part) -> bool:
        return not self.hasher or part.offset < self._hashed + self._ahead

    def returned(self) -> None:
        self.running -= 1

    def fetched(self, stored: Sequence[Done], source: Source) -> None:
        """stored: what was written of the part that came."""
        for done in stored:
            self.done[done.part.offset] = done
            if source.kind == "peer":
                self.from_peers[done.part.offset] = source.url

    def checked(self, part: Part, check: int) -> bool:
        """Whether the bytes of a doubtful part are those that were written."""
        done = self._doubtful.pop(part.offset)
        if done.check == check:
            self.done[part.offset] = done
            return True
        self.changed.append(part)
        self._pending.extendleft(self.wanted.fetches((part,), self._part_size))
        return False

    def hashed(self, part: Part) -> None:
        self._hashed, self._hashing = part.end, False

    def put_back(self, task: Task, not_before: float) -> None:
        """This part cannot be had now."""
        self._pending.appendleft(task)
        self.not_before = not_before

    def digest(self, check: str) -> str:
        """check: algorithm of the parts' checksums."""
        if self.hasher:
            return self.hasher.digest()
        return f"{check}:{whole_check(self.done):016x}" if self.file.algorithm == check else self.file.digest

    def distrust(self, hasher: Hasher | None) -> int:
        """The file is wrong and peers gave parts of it: take these again, from elsewhere. Returns their bytes."""
        parts = [self.done.pop(offset).part for offset in sorted(self.from_peers)]
        self.given_up.update(self.from_peers.values())
        self.from_peers.clear()
        self._pending.extend(self.wanted.fetches(parts, self._part_size))
        self.hasher, self._hashed, self._hashing = hasher, 0, False
        return sum(part.length for part in parts)

    def source(self, dead: set[str]) -> Source | None:
        """The best source that is left. dead: sources that no file may use, by the place they are at."""
        return next(
            (source for source in self.wanted.sources if source.url not in self.given_up and source.place not in dead),
            None,
        )
