# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the engine's subject that touches the machine: systemd, the journal, the model's place, the head's API."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..host import HostError, run, write_text
from .downtime import Watch
from .ready import QUESTION, Look, Reply, ready, settled
from .service import PROPERTIES, UnitState, parse_show, reached
from .spec import ModelPlace, Spec
from .unit import hash_in_environ

NOT_STAGED = "NOT-STAGED"  # stands for the revision in a dry run of a machine that has none yet
_BODY_LIMIT = 1 << 20
_REQUEST_TIMEOUT = 5.0
_CHAT_TIMEOUT = 60.0
_POLL = 1.0
_LINES = 20
_WATCH_POLL = 0.1


def unit_state(unit: str) -> UnitState:
    """The unit as systemd sees it now, with the configuration hash of its running process."""
    shown = parse_show(run(["systemctl", "show", "-p", ",".join(PROPERTIES), "--", unit]).stdout)
    if not shown.pid or not shown.running:
        return shown
    try:
        environ = Path(f"/proc/{shown.pid}/environ").read_bytes()
    except OSError:
        return shown  # it ended since; the next look tells
    return replace(shown, hash=hash_in_environ(environ))


def journal(unit: str) -> tuple[str, ...]:
    """The last lines of the unit's journal; one line with the reason when they cannot be had."""
    try:
        done = run(["journalctl", "-q", "--no-pager", "-o", "cat", "-n", str(_LINES), "-u", unit])
    except HostError as error:
        return (str(error),)
    return tuple(done.stdout.splitlines()[-_LINES:])


def change_state(unit: str, wanted: str, timeout: float) -> UnitState:
    """Bring the unit to the wanted one of service.STATES and wait for it. Raises HostError with the last state."""
    verb = {"started": "start", "stopped": "stop", "restarted": "restart"}[wanted]
    deadline = time.monotonic() + timeout
    run(["systemctl", verb, "--", unit], timeout=timeout)
    state = unit_state(unit)
    while not reached(state, wanted):
        if time.monotonic() > deadline or state.failed:
            lines = "\n".join(f"    {line}" for line in journal(unit))
            raise HostError(f"{unit} is {state.text()}, wanted {wanted} within {timeout:g} s. Its last lines:\n{lines}")
        time.sleep(_POLL)
        state = unit_state(unit)
    if wanted == "stopped" and state.active == "failed":
        run(["systemctl", "reset-failed", "--", unit])
        state = unit_state(unit)
    return state


def find_model(root: str, revision: str, check_mode: bool) -> ModelPlace:
    """The place of the revision, or of the active one when none is named. Raises HostError when it is not staged.

    In check mode a revision that is not there yet is taken as it will be.
    """
    if not revision:
        try:
            target = os.readlink(Path(root) / "current")
        except OSError as error:
            if check_mode:
                return ModelPlace(root, NOT_STAGED)
            raise HostError(
                f"{root}/current: {error.strerror}; no revision is active here. Cure: run the checkpoint role, or set engine_revision"
            ) from error
        revision = Path(target).name
    config = Path(root) / "revisions" / revision / "config.json"
    try:
        digest = hashlib.sha256(config.read_bytes()).hexdigest()
    except OSError as error:
        if check_mode:
            return ModelPlace(root, revision)
        raise HostError(
            f"{config}: {error.strerror}; revision {revision} is not staged here. Cure: run the checkpoint role"
        ) from error
    return ModelPlace(root, revision, digest)


def apply_unit(unit_path: str, record_path: str, spec: Spec) -> None:
    """Write both files, the unit last, make systemd read it, and have it started at boot."""
    write_text(record_path, spec.record)
    write_text(unit_path, spec.unit)
    run(["systemctl", "daemon-reload"])
    run(["systemctl", "enable", "--quiet", "--", Path(unit_path).name])


def check_executable(path: str) -> None:
    """Raises HostError unless the engine can be run."""
    if not os.access(path, os.X_OK) or Path(path).is_dir():
        raise HostError(
            f"{path} is no executable file on this machine. Cure: install the engine there, or correct `executable` in the profile"
        )


def ask(url: str, path: str, body: dict[str, object] | None = None) -> Reply:
    """One HTTP request to the head: plain, direct (a proxy of the environment has no part in it), bounded in time."""
    parts = urllib.parse.urlsplit(url)
    timeout = _REQUEST_TIMEOUT if body is None else _CHAT_TIMEOUT
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return Reply(answer.status, answer.read(_BODY_LIMIT).decode("utf-8", "replace"))
    except TimeoutError:
        return Reply(error=f"no answer within {timeout:g} s")
    except (OSError, http.client.HTTPException) as error:
        return Reply(error=getattr(error, "strerror", None) or str(error) or type(error).__name__)
    finally:
        connection.close()


def look(unit: str, rank: int, url: str, wanted_hash: str) -> Look:
    """One look. A worker asks the head's /health too, since it is ready only with the group; a loopback head it cannot reach."""
    state = unit_state(unit)
    alone = rank != 0 and (urllib.parse.urlsplit(url).hostname or "").startswith("127.")
    health = None if alone else ask(url, "/health")
    models = ask(url, "/v1/models") if rank == 0 else None
    return Look(state, health, models, wanted_hash=wanted_hash)


def wait(see: Callable[[], Look], timeout: float, unit: str) -> Look:
    """Look until the rank is ready, its unit has ended by itself, or timeout seconds have passed; the last look.

    With timeout 0 it looks once. Unless all is well the look carries the journal's last lines.
    """
    deadline = time.monotonic() + timeout
    seen = see()
    while not settled(seen) and time.monotonic() < deadline:
        time.sleep(min(_POLL, max(0.0, deadline - time.monotonic())))
        seen = see()
    return seen if ready(seen) else replace(seen, journal=journal(unit))


def watch(url: str, timeout: float) -> tuple[Watch, float]:
    """Look at the API until it has gone and come back, or timeout seconds have passed; what was seen, and for how long."""
    began = time.monotonic()
    seen = Watch()
    while not seen.over and time.monotonic() - began < timeout:
        healthy = ask(url, "/health").status == 200
        seen = seen.seen(time.monotonic(), healthy)
        time.sleep(0 if seen.over else _WATCH_POLL)
    return seen, time.monotonic() - began


def chat(url: str, model_name: str) -> Reply:
    """A chat completion whose answer is known."""
    return ask(
        url,
        "/v1/chat/completions",
        {
            "model": model_name,
            "messages": [{"role": "user", "content": QUESTION}],
            "temperature": 0,
            "max_tokens": 64,
        },
    )
