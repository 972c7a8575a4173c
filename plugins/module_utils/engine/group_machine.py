# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the supervisor of a group does to its own machine: looks at the engine's unit, reads its journal, stops and starts it.

A copy runs on the nodes without Ansible, so this file imports the standard library and its siblings only.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..memory import guard_machine
from .group import Look

BEGAN, ENDED = "InactiveExitTimestampMonotonic", "ExecMainExitTimestampMonotonic"
PROPERTIES = f"LoadState,ActiveState,SubState,Result,ExecMainStatus,MainPID,InvocationID,Job,{BEGAN},{ENDED}"
STOPPING_MESSAGE = "de5b426a63be47a7b6ac3eaac82e2f6f"  # systemd's SD_MESSAGE_UNIT_STOPPING: a stop was asked for
COMMAND_S = 10.0
CLEAN_S = 20.0  # for what a unit runs once its processes have ended: the removal of a container
AROUND = ("--- kernel", "--- memory")
KERNEL_LINES = 40
KERNEL_SINCE = "-10min"  # what it said before has nothing to do with this end
MEMORY = ("MemTotal", "MemFree", "MemAvailable", "Cached", "Shmem", "SwapFree", "CmaTotal", "CmaFree")


def command(argv: Sequence[str]) -> str:
    """What a command prints; empty when it cannot be run or fails, which the next look shows."""
    try:
        done = subprocess.run(
            list(argv), capture_output=True, text=True, errors="replace", timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def parse(shown: str, alive: bool) -> Look:
    """A look from `systemctl show`. alive: whether its main process lives."""
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    numbers = {name: int(text) for name, text in values.items() if text.isdigit()}
    return Look(
        load=values.get("LoadState") or "not-found",
        active=values.get("ActiveState") or "inactive",
        run=values.get("InvocationID", ""),
        result=values.get("Result") or "success",
        status=numbers.get("ExecMainStatus", 0),
        main=alive,
        began=numbers.get(BEGAN, 0) / 1e6,
        ended=numbers.get(ENDED, 0) / 1e6,
        queued=numbers.get("Job", 0) > 0,
    )


class Eye:
    """Looks at the unit without starting a program for it while nothing happens."""

    RUNNING_S, IDLE_S = 10.0, 2.0

    def __init__(self, unit: str, units: str) -> None:
        self._unit, self._units = unit, units
        self._pid = 0
        self._run = ""
        self._asked = float("-inf")
        self._look: Look | None = None

    def look(self, now: float) -> Look | None:
        """None when systemd does not answer."""
        run = guard_machine.run_of(self._units, self._unit)
        held = self._look
        steady = held is not None and held.active in ("active", "inactive", "failed")
        quiet = steady and run == self._run and bool(run) == self._lives()
        if held is not None and quiet and now - self._asked < (self.RUNNING_S if run else self.IDLE_S):
            return held
        shown = command(["systemctl", "show", "-p", PROPERTIES, "--", self._unit])
        if not shown:
            return None
        pid = next((line[8:] for line in shown.splitlines() if line.startswith("MainPID=")), "")
        self._pid, self._run, self._asked = int(pid) if pid.isdigit() else 0, run, now
        self._look = parse(shown, self._lives())
        return self._look

    def _lives(self) -> bool:
        """A process that has ended and is not reaped yet does not."""
        try:
            stat = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii", errors="replace") if self._pid else ""
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[:1] not in ([], ["Z"], ["X"])


def asked_to_stop(unit: str, run: str) -> bool:
    """Whether the journal has a stop job of this run: somebody, or a shutdown, wanted it."""
    argv = ["journalctl", "-q", "--no-pager", "-o", "cat", "-n", "1", f"MESSAGE_ID={STOPPING_MESSAGE}", f"UNIT={unit}"]
    return bool(command([*argv, f"INVOCATION_ID={run}"]).strip()) if run else False


def tail(unit: str, lines: int, run: str = "") -> list[str]:
    """The last lines of the unit's journal, then what the kernel has said of late and how much memory there is: lines in all.

    run: of this run alone, as far as it is known. How an earlier one ended would be taken for the cause.
    """
    own = [f"_SYSTEMD_INVOCATION_ID={run}", "+", f"INVOCATION_ID={run}"] if run else ["-u", unit]
    journal = ["journalctl", "-q", "--no-pager", "-o", "short-iso"]
    kernel = command([*journal, "-k", "-p", "warning", "--since", KERNEL_SINCE, "-n", str(KERNEL_LINES)]).splitlines()
    around = [*([AROUND[0]] if kernel else []), *kernel, AROUND[1], *memory()]
    return [*command([*journal, "-n", str(lines - len(around)), *own]).splitlines(), *around]


def memory(path: str = "/proc/meminfo") -> list[str]:
    """What tells how a node without memory looks; CmaFree above CmaTotal is a kernel that hides memory."""
    try:
        lines = Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError as error:
        return [f"{path}: {error.strerror}"]
    return [" ".join(line.split()) for line in lines if line.partition(":")[0] in MEMORY]


def stop(unit: str, paths: Mapping[str, str], stop_s: float) -> str:
    """End the engine: as systemd does it, and after stop_s seconds at once. What went wrong, or empty.

    Where the engine has ended and systemd cleans up after it, a kill would hit the cleaning only.
    """
    command(["systemctl", "stop", "--no-block", "--", unit])
    limit, problem = time.monotonic() + stop_s, ""
    last = limit + CLEAN_S
    while guard_machine.run_of(paths["units"], unit):
        if time.monotonic() > limit and cleaned(unit):
            limit = min(time.monotonic() + 1.0, last)
        if time.monotonic() > limit:
            problem = guard_machine.stop(unit, paths, lambda: not guard_machine.run_of(paths["units"], unit))
            break
        time.sleep(0.1)
    command(["systemctl", "reset-failed", "--", unit])
    return problem


def cleaned(unit: str) -> bool:
    """Whether systemd runs what comes after the unit's last process."""
    return command(["systemctl", "show", "-P", "SubState", "--", unit]).strip() == "stop-post"


def start(unit: str) -> str:
    command(["systemctl", "reset-failed", "--", unit])
    command(["systemctl", "start", "--no-block", "--", unit])
    return ""


def token(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def changed(path: str) -> int:
    """A number that differs when the file was replaced; 0 when it is absent."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_mtime_ns ^ found.st_ino
