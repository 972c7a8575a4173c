# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One measured run: wall time until the bytes are durable, processor time, memory, pages left behind, bytes sent."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import Command, Job, Tool


@dataclass(frozen=True)
class Sample:
    """Seconds and bytes. wall: until sync -f of the target has returned. cpu: of the tool, without the server's."""

    wall: float
    cpu: float
    rss: int
    cached: int
    sent: int


@dataclass(frozen=True)
class Figures:
    """Medians over the rounds; memory is the most that was seen."""

    tool: str
    verified: str
    wall: float
    cpu: float
    rss: int
    cached: int
    sent: int
    walls: tuple[float, ...]
    cpus: tuple[float, ...]


@contextlib.contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Wait for the machine where others measure on it too."""
    if lock is None:
        yield
        return
    with lock.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fresh(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    os.sync()


def run(tool: Tool, job: Job) -> Sample:
    """One run into an empty directory. Raises RuntimeError when the tool fails or a file is not as it should be."""
    fresh(job.target)
    command = tool.command(job)
    before = job.server.sent()
    started = time.monotonic()
    cpu, rss = _run(command)
    subprocess.run(["sync", "-f", job.target], check=True)
    wall = time.monotonic() - started
    sent = job.server.sent() - before
    cached = resident(job.target)
    _compare(tool, job)
    return Sample(wall, cpu, rss, cached, sent)


class Peak:
    """The most memory of a process and of those it started. Its own ru_maxrss would begin with that of the benchmark."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid, self._end = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.03):
            self.bytes = max(self.bytes, sum(_high_water(pid) for pid in self._tree(self._pid)))

    def _tree(self, pid: int) -> list[int]:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        except OSError:
            return []
        return [pid, *(found for child in children for found in self._tree(int(child)))]


def _high_water(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("VmHWM")), 0)


def _run(command: Command) -> tuple[float, int]:
    """Processor seconds and peak memory."""
    process = subprocess.Popen(
        command.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=command.environment or None,
        text=True,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("no pipes")
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(command.stdin)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    with Peak(process.pid) as peak:
        said = process.stdout.read()
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command.argv[0]} ended with {process.returncode}: {said[-2000:]}")
    return usage.ru_utime + usage.ru_stime, peak.bytes


def resident(directory: Path) -> int:
    """Bytes of the files below that are in the page cache."""
    files = [str(path) for path in directory.rglob("*") if path.is_file()]
    argv = ["fincore", "--bytes", "--noheadings", "--output", "RES", *files]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return sum(int(word) for word in done.stdout.split())


def _compare(tool: Tool, job: Job) -> None:
    """Every file is there with its size; the bytes themselves are compared once in a benchmark, by its caller."""
    sizes = {str(row["path"]): int(row["size"]) for row in job.plan["files"]}
    found = {path.name: path.stat().st_size for path in job.target.rglob("*") if path.is_file() and path.name in sizes}
    if found != sizes:
        raise RuntimeError(f"{tool.name}: files are missing or have other sizes")


def figures(tool: Tool, samples: Iterable[Sample]) -> Figures:
    rows = list(samples)
    return Figures(
        tool=tool.name,
        verified=tool.verified,
        wall=statistics.median(row.wall for row in rows),
        cpu=statistics.median(row.cpu for row in rows),
        rss=max(row.rss for row in rows),
        cached=max(row.cached for row in rows),
        sent=int(statistics.median(row.sent for row in rows)),
        walls=tuple(round(row.wall, 2) for row in rows),
        cpus=tuple(round(row.cpu, 2) for row in rows),
    )
