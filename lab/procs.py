# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands and processes: run one, remember one by pid and start time, find and end the lab's own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .instance import LabError


def run(
    argv: Sequence[str | Path], check: bool = True, text: str | None = None, timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run argv with text as its standard input; raises LabError with what it said when it fails."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(words, input=text or "", capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError as error:
        raise LabError(f"{words[0]} is not installed: run `make lab-deps`") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(words)} did not end within {timeout:g} s") from error
    if check and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise LabError(f"{' '.join(words)}: exit {done.returncode}: {' / '.join(said[-3:])}")
    return done


def wait_for(what: str, ready: Callable[[], str | None], timeout: float, pause: float = 0.1) -> None:
    """Call ready until it returns None; it returns the state seen otherwise, which the LabError at the end carries."""
    end = time.monotonic() + timeout
    while (state := ready()) is not None:
        if time.monotonic() >= end:
            raise LabError(f"{what}: not within {timeout:g} s; last state: {state}")
        time.sleep(pause)


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start: int

    def alive(self) -> bool:
        return start_time(self.pid) == self.start


def parse_start_time(stat: str) -> int | None:
    """Field 22 of /proc/PID/stat, None for a zombie; the command (field 2) may hold blanks and brackets."""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def start_time(pid: int) -> int | None:
    """When the process started (clock ticks after boot), None when there is no such process or it has ended."""
    try:
        return parse_start_time(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def remember(path: Path, pid: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pid": pid, "start": start_time(pid)}), encoding="utf-8")


def recall(path: Path) -> Process | None:
    """The process recorded in path when it still runs."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        process = Process(int(record["pid"]), int(record["start"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return process if process.alive() else None


def spawn(
    argv: Sequence[str | Path],
    log: Path,
    record: Path | None = None,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> int:
    """Start argv in a session of its own, its output appended to log; returns the pid, recorded where asked.

    `before` runs in the new process: where a service manager ends everything that its unit started, it moves elsewhere.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            env=None if environment is None else dict(environment),
            preexec_fn=before,  # noqa: PLW1509 - the lab's commands have no threads
        )
    if record is not None:
        remember(record, process.pid)
    return process.pid


def _ended(process: Process) -> bool:
    with contextlib.suppress(OSError):  # a child of ours would stay a zombie until it is waited for
        os.waitpid(process.pid, os.WNOHANG)
    return not process.alive()


def end(processes: Iterable[Process], grace: float = 0.0) -> None:
    """End the processes: SIGTERM first when a grace period (seconds) is given, then SIGKILL; returns when they are gone."""
    left = [process for process in processes if not _ended(process)]
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        if number == signal.SIGTERM and grace <= 0:
            continue
        for process in left:
            if process.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
        limit = time.monotonic() + patience
        while left and time.monotonic() < limit:
            left = [process for process in left if not _ended(process)]
            if left:
                time.sleep(0.02)
    if left:
        raise LabError(f"processes do not end: {', '.join(str(process.pid) for process in left)}")
