# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cabling probe in the background of a node, so that all nodes can be started before the first one is waited for.

A file for each run in /run holds the process's id, then its result. A second one says that the result is asked for. Collecting
removes both.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..host import HostError, read_text, write_text
from .cabling_window import Wanted

FOLDER = Path("/run/gb10-ring/cabling")
STALE = 600.0  # seconds after which a result that nobody collected is removed
POLL = 0.1  # seconds between two looks

Work = Callable[[Wanted], dict[str, Any]]


def start(run: str, work: Work, folder: Path = FOLDER) -> None:
    """Run work in a process of its own, which outlives the SSH session, and keep its result. Raises HostError."""
    _remove_stale(folder)
    path = folder / f"{run}.json"
    if path.exists():
        raise HostError(f"a probe of the run {run} exists already in {path}; use another word for each run")
    write_text(path, json.dumps({"pid": 0}), 0o600)
    try:
        first = os.fork()
    except OSError as error:
        path.unlink(missing_ok=True)
        raise HostError(f"cannot start a process: {error.strerror}") from error
    if first:
        os.waitpid(first, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _detach()
            _work(path, work)
    finally:
        os._exit(0)


def _detach() -> None:
    """Let go of the session's pipes: its end waits for everybody who holds them."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.chdir("/")


def _work(path: Path, work: Work) -> None:
    write_text(path, json.dumps({"pid": os.getpid()}), 0o600)
    try:
        outcome: dict[str, Any] = {"result": work(lambda: _asked(path.with_suffix(".wanted")))}
    except Exception as error:  # whatever it is, collect() raises it where somebody sees it
        outcome = {"error": str(error) or type(error).__name__}
    write_text(path, json.dumps(outcome), 0o600)


def _asked(path: Path) -> float | None:
    text = read_text(path)
    return None if text is None else float(text)


def collect(
    run: str,
    timeout: float,
    folder: Path = FOLDER,
    *,
    since: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Wait for the result of a run that was started, and forget it. Raises HostError with its error, or at the timeout (seconds).

    since: how many seconds ago all nodes had started.
    """
    path = folder / f"{run}.json"
    _content(path)
    write_text(path.with_suffix(".wanted"), str(since), 0o600)
    try:
        return _wait(run, path, timeout, clock, sleep)
    finally:
        path.with_suffix(".wanted").unlink(missing_ok=True)


def _wait(
    run: str, path: Path, timeout: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> dict[str, Any]:
    end = clock() + timeout
    while True:
        content = _content(path)
        if "pid" not in content:
            break
        gone = content["pid"] and not Path(f"/proc/{content['pid']}").exists()
        if gone and "pid" in _content(path):  # it may have ended between the two looks
            path.unlink(missing_ok=True)
            raise HostError(f"the probe of the run {run} was ended (process {content['pid']}); run it again")
        if clock() >= end:
            raise HostError(f"the probe of the run {run} has not ended within {timeout:g} s (process {content['pid']})")
        sleep(POLL)
    path.unlink(missing_ok=True)
    if "error" in content:
        raise HostError(content["error"])
    result: dict[str, Any] = content["result"]
    return result


def _content(path: Path) -> dict[str, Any]:
    text = read_text(path)
    if text is None:
        raise HostError(f"no probe was started here, {path} is missing; run it with phase: start on all nodes first")
    content: dict[str, Any] = json.loads(text)
    return content


def _remove_stale(folder: Path) -> None:
    for path in folder.glob("*"):
        try:
            if time.time() - path.stat().st_mtime > STALE:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue
