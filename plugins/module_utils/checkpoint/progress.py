# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a staging is: counted by many threads, written to a file once a second, shown as one line."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import units
from .source import Kind

#: Seconds that the rate is taken over.
_SPAN = 15.0
_EVERY = 5


@dataclass(frozen=True)
class Progress:
    """total: bytes and files to fetch. reused: bytes of them that an earlier run had fetched. rate: bytes a second."""

    phase: str
    done_bytes: int
    total_bytes: int
    done_files: int
    total_files: int
    rate: float
    eta_s: int | None
    tick: int

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def parse(text: str) -> Progress | None:
    """The progress in this text, or None while there is none that can be read."""
    try:
        return Progress(**json.loads(text))
    except (ValueError, TypeError):
        return None


def line(node: str, progress: Progress) -> str:
    """What a person sees of it."""
    percent = 100 * progress.done_bytes / progress.total_bytes if progress.total_bytes else 100.0
    left = f", {_span(progress.eta_s)} left" if progress.eta_s is not None else ""
    return (
        f"{node}: {progress.done_files}/{progress.total_files} files, {units.human(progress.done_bytes)} of "
        f"{units.human(progress.total_bytes)} ({percent:.0f} %), {units.human(int(progress.rate))}/s{left}"
    )


def _span(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    minutes = -(-seconds // 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


class Meter:
    """Counts bytes and files; any thread may."""

    def __init__(self, total_bytes: int = 0, total_files: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._total = (total_bytes, total_files)
        self._moved = {"s3": 0, "peer": 0, "disk": 0}
        self._resumed = self._lost = self._files = self._ticks = 0
        self._history: deque[tuple[float, int]] = deque([(clock(), 0)])
        self.started = clock()

    def moved(self, kind: Kind, count: int) -> None:
        """Bytes that came over the network."""
        with self._lock:
            self._moved[kind] += count

    def resumed(self, count: int) -> None:
        """Bytes that an earlier run had fetched."""
        with self._lock:
            self._resumed += count

    def lost(self, count: int) -> None:
        """Bytes that were counted and have to be fetched again."""
        with self._lock:
            self._lost += count

    def file(self) -> None:
        with self._lock:
            self._files += 1

    def numbers(self) -> dict[str, float]:
        """For the result of the task: bytes by where they came from, and how long it took."""
        with self._lock:
            seconds = self._clock() - self.started
            moved = sum(self._moved.values())
            return {
                "s3_bytes": self._moved["s3"],
                "peer_bytes": self._moved["peer"],
                "disk_bytes": self._moved["disk"],
                "resumed_bytes": self._resumed,
                "seconds": round(seconds, 2),
                "mb_per_s": round(moved / 1e6 / seconds, 1) if seconds else 0.0,
            }

    def progress(self, phase: str) -> Progress:
        """Where it stands; to be called at a steady pace, the rate is taken between calls."""
        with self._lock:
            now, moved = self._clock(), sum(self._moved.values())
            self._history.append((now, moved))
            while len(self._history) > 2 and now - self._history[0][0] > _SPAN:
                self._history.popleft()
            (since, before) = self._history[0]
            rate = (moved - before) / (now - since) if now > since else 0.0
            total, files = self._total
            done = max(0, min(total, moved + self._resumed - self._lost))
            self._ticks += 1
            eta = int((total - done) / rate) if rate else None
            return Progress(phase, done, total, self._files, files, rate, eta, self._ticks)


class Reporter:
    """Writes the progress to a file at a steady pace while a block runs; the file goes with the block.

    also: called every few times, for what has to be done at a steady pace too.
    """

    def __init__(self, meter: Meter, path: Path, also: Callable[[], None], pace_s: float = 1.0) -> None:
        self._meter, self._path, self._also, self._pace = meter, path, also, pace_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reporter:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._end.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._end.wait(self._pace):
            self._write()

    def _write(self) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        try:
            progress = self._meter.progress("staging")
            fresh.write_text(progress.to_text(), encoding="ascii")
            fresh.replace(self._path)
            if progress.tick % _EVERY == 0:
                self._also()
        except OSError:
            return  # a full disk is told by the transfer; progress is news, not the work


def moved_numbers(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of two runs of one staging together."""
    total: dict[str, Any] = {
        name: one.get(name, 0) + other.get(name, 0) for name in ("s3_bytes", "peer_bytes", "disk_bytes", "seconds")
    }
    total["resumed_bytes"] = one.get("resumed_bytes", other.get("resumed_bytes", 0))
    seconds = total["seconds"]
    total["mb_per_s"] = round((total["s3_bytes"] + total["peer_bytes"]) / 1e6 / seconds, 1) if seconds else 0.0
    return total
