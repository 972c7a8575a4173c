# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel settings that are in force only while the engine serves.

The node runs a copy of this file as a unit that is bound to the engine's: it waits until the head answers, sets the values, and
puts the earlier ones back when the engine stops. Raised earlier they would make the engine's own memory check fail.
Standard library only, nothing of the collection.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

STATE = "memory-serving.json"  # below the run directory of the settings; there while the values are in force
REFUSED = (
    78  # exit code (EX_CONFIG of sysexits.h) after which the unit is not started again; the next try would end alike
)


class RefusedError(Exception):
    """A value that the kernel did not take; all are as they were before."""


def read_value(path: Path) -> str:
    """A setting's value: the first line, one blank between words."""
    return " ".join(path.read_text(encoding="ascii").split("\n", 1)[0].split())


def place(proc_sys: Path, key: str) -> Path:
    """Dots between the parts of a name are slashes; slashes, of interface names, are dots."""
    return proc_sys / key.translate(str.maketrans("./", "/."))


def set_value(path: Path, value: str) -> str:
    """Write a value and read it back; why it did not take, or an empty text."""
    try:
        path.write_text(value + "\n", encoding="ascii")
        found = read_value(path)
    except OSError as error:
        return f"the kernel refused it: {error.strerror}"
    return "" if found == value else f"it reads {found} after the write"


def raise_values(values: Mapping[str, str], proc_sys: Path, state: Path) -> dict[str, str]:
    """Set the values and read them back; what was before goes to the state file first, so that it can be put back whatever happens.

    Raises RefusedError when any does not take; all are back then.
    """
    before = {key: read_value(place(proc_sys, key)) for key in values}
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(json.dumps({"before": before, "values": dict(values)}) + "\n", encoding="ascii")
    problems = {key: set_value(place(proc_sys, key), value) for key, value in values.items()}
    refused = [
        f"{key} = {values[key]}: {problem} (it was {before[key]})" for key, problem in problems.items() if problem
    ]
    if not refused:
        return before
    lost = {key: set_value(place(proc_sys, key), value) for key, value in before.items()}
    lost = {key: problem for key, problem in lost.items() if problem}
    if not lost:
        state.unlink()
    after = f"not put back: {words(lost)}" if lost else "the earlier values are in force"
    raise RefusedError(f"{'; '.join(refused)}. Now {after}; correct memory_serving_sysctls")


def put_back(proc_sys: Path, state: Path) -> dict[str, str]:
    """Return to the values of the state file; one that somebody else has set since stays. Returns what was put back."""
    if not state.exists():
        return {}
    held = json.loads(state.read_text(encoding="ascii"))
    returned = {}
    for key, value in held["before"].items():
        path = place(proc_sys, key)
        if read_value(path) == held["values"][key]:
            path.write_text(value + "\n", encoding="ascii")
            returned[key] = value
    state.unlink()
    return returned


def answers(record: Path) -> bool:
    """Whether the head of the group, whose address the engine's record names, says that it is healthy."""
    try:
        url = json.loads(record.read_text(encoding="utf-8"))["url"]
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except (OSError, ValueError, KeyError, urllib.error.URLError):
        return False


def words(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def serve(settings: Mapping[str, Any], ready: Callable[[], bool], stopped: threading.Event) -> None:
    """From start to stop. settings: values, proc_sys, run, interval_s."""
    proc_sys, state = Path(settings["proc_sys"]), Path(settings["run"]) / STATE
    put_back(proc_sys, state)  # of a run that was killed
    while not ready():
        if stopped.wait(settings["interval_s"]):
            return
    before = raise_values(settings["values"], proc_sys, state)
    say(f"the engine serves: {words(settings['values'])} (before: {words(before)})")
    stopped.wait()
    say(f"the engine stops: {words(put_back(proc_sys, state)) or 'nothing to put back'}")


def main(argv: list[str]) -> None:
    """memory_serving.py SETTINGS [restore]"""
    settings = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    if argv[2:] == ["restore"]:
        returned = put_back(Path(settings["proc_sys"]), Path(settings["run"]) / STATE)
        if returned:
            say(f"put back: {words(returned)}")
        return
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopped.set())
    record = Path(settings["engine_record"])
    try:
        serve(settings, lambda: answers(record), stopped)
    except RefusedError as error:
        say(f"nothing was set: {error}")
        raise SystemExit(REFUSED) from None


if __name__ == "__main__":
    main(sys.argv)
