# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the memory guard does to the machine it runs on: drop, kill, ask systemd and the engine.

A copy runs on the nodes without Ansible, so this file imports the standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HEALTH_TIMEOUT_S = 2.0
STOP_TRIES = 5
STOP_WAIT_S = 3.0  # for systemd to see the engine's last process end, before it is asked again
_LOCK_WHAT_IS_USED = 7  # MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT of mlockall(2)
ERROR, WARNING, INFO = 3, 4, 6  # of the journal


def say(priority: int, text: str) -> None:
    """One line of the journal."""
    sys.stdout.write(f"<{priority}>{text}\n")
    sys.stdout.flush()


def notify(text: str) -> None:
    """Tell systemd (sd_notify); nothing where it does not listen."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(text.encode(), "\0" + address[1:] if address.startswith("@") else address)


class Job:
    """One piece of work in a thread of its own; its text says what went wrong, or is empty."""

    def __init__(self, work: Callable[[], str]) -> None:
        self.result: str | None = None
        self.since = self.ended = time.monotonic()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], str]) -> None:
        try:
            result = work()
        except Exception as error:  # whatever it is, the guard goes on and says so
            result = str(error) or type(error).__name__
        self.ended = time.monotonic()
        self.result = result

    @property
    def seconds(self) -> float:
        return self.ended - self.since


def lock_memory() -> None:
    """Keep every page that was used once, so that a node without memory does not have to read the guard from disk again."""
    try:
        import ctypes  # noqa: PLC0415  (a guard without it guards as well)

        failed = ctypes.CDLL(None, use_errno=True).mlockall(_LOCK_WHAT_IS_USED)
        problem = os.strerror(ctypes.get_errno()) if failed else ""
    except (ImportError, OSError, AttributeError, MemoryError) as error:
        problem = str(error)
    if problem:
        say(WARNING, f"the guard's own pages are not locked in memory: {problem}")


def drop(path: str) -> str:
    """Write dirty pages out and drop the page cache; dirty pages could not be dropped."""
    os.sync()
    Path(path).write_text("3\n", encoding="ascii")
    return ""


def run_of(units: str, unit: str) -> str:
    """Identity of the unit's present run, empty when it has none: the link that systemd keeps for journald, read without a fork."""
    try:
        return os.readlink(f"{units}/invocation:{unit}")
    except OSError:
        return ""


def engine_record(path: str) -> dict[str, Any]:
    """What the engine's unit was rendered from. Raises OSError and ValueError."""
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError(f"{path} holds no mapping")
    return record


def stop_commands(unit: str, record: Mapping[str, Any]) -> list[list[str]]:
    """What ends the engine and keeps it ended: a kill alone would be restarted, and a stop alone waits for a clean end.

    A container of Docker is outside the unit's control group, and bears the unit's name.
    """
    container = [["docker", "kill", unit.removesuffix(".service")]] if record.get("renderer") == "docker" else []
    return [
        ["systemctl", "stop", "--no-block", unit],
        *container,
        ["systemctl", "kill", "--signal=KILL", unit],
    ]


def kill_group(path: str) -> None:
    """End all processes of the unit's control group by one write: no program has to be read from disk and started first."""
    with contextlib.suppress(OSError):  # no such unit, or a kernel without cgroup.kill (before 5.14): systemctl does it
        Path(path).write_text("1\n", encoding="ascii")


def stop(unit: str, paths: Mapping[str, str], ended: Callable[[], bool]) -> str:
    """Kill the engine, and keep systemd from starting it again; what went wrong, or empty."""
    kill_group(paths["cgroup_kill"])
    try:
        record = engine_record(paths["engine"])
    except (OSError, ValueError):
        record = {}
    said: list[str] = []
    for _attempt in range(STOP_TRIES):
        said = [problem for argv in stop_commands(unit, record) if (problem := _run(argv))]
        limit = time.monotonic() + STOP_WAIT_S
        while time.monotonic() < limit:
            if ended():
                return ""
            time.sleep(0.05)
    return f"{unit} still runs after {STOP_TRIES} tries: {'; '.join(said) or 'systemctl says nothing'}"


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


def healthy(record_path: str) -> str:
    """Empty when the group's API, named in the engine's record, answers its health request with 200; else why not."""
    record = engine_record(record_path)
    path = record.get("readiness", {}).get("health", "/health")
    host, _colon, port = record["url"].partition("://")[2].partition("/")[0].rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), HEALTH_TIMEOUT_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        answer = connection.recv(64).split()
    return "" if answer[1:2] == [b"200"] else f"answered {answer[:2]!r}"


def replace(path: str, content: Mapping[str, Any]) -> None:
    """Write a mapping as JSON, whole or not at all."""
    beside = Path(f"{path}.new")
    beside.write_text(json.dumps(content, sort_keys=True) + "\n", encoding="utf-8")
    beside.replace(path)
