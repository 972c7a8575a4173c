# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the engine's subject that touches the machine: systemd, the journal, the model's place, the head's API."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .. import made
from ..host import HostError, read_text, run, write_text
from . import thinking
from .downtime import Watch
from .group_incident import tidy
from .profile import Profile
from .ready import QUESTION, Look, Reply, answers, ready, right, settled
from .service import PROPERTIES, UnitState, parse_show, reached
from .spec import ModelPlace
from .unit import HASH_FILE, NAME, hash_in_environ

RUNTIMES = {"docker": "/usr/bin/docker", "podman": "/usr/bin/podman"}
NOT_STAGED = "NOT-STAGED"  # stands for the revision in a dry run of a machine that has none yet
_BODY_LIMIT = 1 << 20
_REQUEST_TIMEOUT = 5.0
_CHAT_TIMEOUT = 60.0
_ANSWER_TOKENS = 64
_POLL = 1.0
_LINES = 20
_WATCH_POLL = 0.1
_TAIL = 200


def unit_state(unit: str) -> UnitState:
    """The unit as systemd sees it now, with the configuration hash that its process was started with."""
    shown = parse_show(run(["systemctl", "show", "-p", ",".join(PROPERTIES), "--", unit]).stdout)
    if not shown.pid or not shown.running:
        return shown
    try:
        environ = Path(f"/proc/{shown.pid}/environ").read_bytes()
    except OSError:
        return shown  # it ended since; the next look tells
    # Podman's monitor, which is the unit's process, has no environment of ours; what ran before it wrote the hash down.
    return replace(shown, hash=hash_in_environ(environ) or (read_text(HASH_FILE) or "").strip())


def journal(unit: str, lines: int = _LINES) -> tuple[str, ...]:
    """The last lines of the unit's journal, no secrets in them; one line with the reason when they cannot be had."""
    try:
        done = run(["journalctl", "-q", "--no-pager", "-o", "cat", "-n", str(lines), "-u", unit])
    except HostError as error:
        return (str(error),)
    return tuple(tidy(done.stdout.splitlines()[-lines:]).splitlines())


def explained(look: Look, unit: str) -> Look:
    """With the journal's last lines when the model's answer is not right."""
    return look if look.chat is None or right(look.chat) else replace(look, journal=journal(unit, _TAIL))


def log_of_run(unit: str) -> list[str]:
    """The journal of the unit's present run, all of it, a container's too, which is no process of the unit. Raises HostError."""
    run_id = run(["systemctl", "show", "-p", "InvocationID", "--value", "--", unit]).stdout.strip()
    argv = ["journalctl", "-q", "--no-pager", "-o", "cat", f"_SYSTEMD_INVOCATION_ID={run_id}"]
    return run(argv).stdout.splitlines() if run_id else []


def change_state(unit: str, wanted: str, timeout: float, may_end: bool = False) -> UnitState:
    """Bring the unit to the wanted one of service.STATES and wait for it. Raises HostError with the last state.

    may_end: a rank that ends as it starts is no error here; its state tells.
    """
    verb = {"started": "start", "stopped": "stop", "restarted": "restart"}[wanted]
    deadline = time.monotonic() + timeout
    run(["systemctl", verb, "--", unit], timeout=timeout, check=not may_end)
    state = unit_state(unit)
    while not reached(state, wanted):
        if may_end and (state.failed or state.active == "inactive"):
            return state
        if time.monotonic() > deadline or state.failed:
            lines = "\n".join(f"    {line}" for line in journal(unit))
            raise HostError(f"{unit} is {state.text()}, wanted {wanted} within {timeout:g} s. Its last lines:\n{lines}")
        time.sleep(_POLL)
        state = unit_state(unit)
    if wanted == "stopped" and state.active == "failed":
        run(["systemctl", "reset-failed", "--", unit])
        state = unit_state(unit)
    return state


def began(unit: str) -> float:
    """When the unit's present or last run began, in Unix seconds; 0 when it has not run since boot."""
    shown = run(["systemctl", "show", "-p", "InactiveExitTimestampMonotonic", "--value", "--", unit]).stdout.strip()
    return time.time() - time.monotonic() + int(shown) / 1e6 if shown.isdigit() and int(shown) else 0.0


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
        content = config.read_bytes()
        parsed = json.loads(content)
    except ValueError as error:
        raise HostError(
            f"{config}: {error}; it is no JSON. Cure: stage the revision again (checkpoint role)"
        ) from error
    except OSError as error:
        if check_mode:
            return ModelPlace(root, revision)
        raise HostError(
            f"{config}: {error.strerror}; revision {revision} is not staged here. Cure: run the checkpoint role"
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    return ModelPlace(root, revision, digest, parsed if isinstance(parsed, dict) else {})


def held(wanted: Mapping[str, str], owned: Sequence[str], etc_root: str) -> dict[str, tuple[str | None, str | None]]:
    """Each owned file by its path on this machine: its text as it is and as wanted. etc_root stands for /etc."""
    paths = [*wanted, *(path for path in owned if path not in wanted)]
    places = {path: etc_root + path.removeprefix("/etc") for path in paths}
    return {place: (read_text(place), wanted.get(path)) for path, place in places.items()}


def state_root(etc_root: str) -> Path:
    """Where directories that are made for files under etc_root are on record."""
    return Path(made.STATE) if etc_root == "/etc" else Path(etc_root).parent / made.NAME


def apply_files(files: Mapping[str, tuple[str | None, str | None]], enable: bool, state: Path) -> None:
    """Write or remove each file that differs, make systemd read them, and have the unit started at boot.

    Directories that are made for them are put on record in state.
    """
    made.note([path for path, (_before, after) in files.items() if after is not None], state)
    for path, (before, after) in files.items():
        if after is None and before is not None:
            if path.endswith(".service"):
                run(["systemctl", "disable", "--quiet", "--", NAME], check=False)
            remove(path)
        elif after is not None and before != after:
            write_text(path, after)
    run(["systemctl", "daemon-reload"])
    if enable:
        run(["systemctl", "enable", "--quiet", "--", NAME])


def remove(path: str) -> None:
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise HostError(f"cannot remove {path}: {error.strerror}") from error


def check_program(profile: Profile) -> None:
    """Raises HostError unless the engine, or the program that runs its container, is there; with everything that is missing."""
    path = RUNTIMES.get(profile.renderer, profile.executable)
    cure = (
        "install the engine there, or correct `executable` in the profile"
        if path == profile.executable
        else f"install {profile.renderer} on the node, or choose another engine_renderer"
    )
    if not os.access(path, os.X_OK) or Path(path).is_dir():
        raise HostError(f"{path} is no executable file on this machine. Cure: {cure}")
    missing = [f"{name} {version}" for name, version in profile.pins.items() if not _pinned(path, name, version)]
    if missing and profile.renderer == "venv":
        raise HostError(
            f"the environment of {path} lacks {', '.join(missing)}, which profile {profile.name} pins. Cure: "
            f"{Path(path).parent}/pip install --no-deps {' '.join(item.replace(' ', '==') for item in missing)}"
        )


def _pinned(executable: str, name: str, version: str) -> bool:
    """Whether the virtual environment of the executable has this version, by the folder that every installer leaves."""
    site = Path(executable).parent.parent
    stem = re.sub(r"[-_.]+", "[-_.]", name)
    return any(site.glob(f"lib/python3*/site-packages/{stem}-{version}.dist-info"))


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


def look(unit: str, rank: int, url: str, wanted_hash: str, line: str = "") -> Look:
    """One look. A worker asks the head's /health too, since it is ready only with the group; a loopback head it cannot reach.

    line: what the head's log has to have; it is looked for once the API answers, since the log of a start is long.
    """
    state = unit_state(unit)
    alone = rank != 0 and (urllib.parse.urlsplit(url).hostname or "").startswith("127.")
    health = None if alone else ask(url, "/health")
    models = ask(url, "/v1/models") if rank == 0 else None
    seen = Look(state, health, models, wanted_hash=wanted_hash, line=line if rank == 0 else "")
    return replace(seen, lined=any(line in said for said in log_of_run(unit))) if seen.line and answers(seen) else seen


def wait(see: Callable[[], Look], timeout: float, unit: str) -> Look:
    """Look until the rank is ready, its unit has ended by itself, or timeout seconds have passed; the last look.

    With timeout 0 it looks once. Unless all is well the look carries the journal's last lines.
    """
    deadline = time.monotonic() + timeout
    seen = see()
    while not settled(seen) and time.monotonic() < deadline:
        time.sleep(min(_POLL, max(0.0, deadline - time.monotonic())))
        seen = see()
    return seen if ready(seen) else replace(seen, journal=journal(unit, _TAIL))


def watch(url: str, timeout: float) -> tuple[Watch, float]:
    """Look at the API until it has gone and come back, or timeout seconds have passed; what was seen, and for how long."""
    began = time.monotonic()
    seen = Watch()
    while not seen.over and time.monotonic() - began < timeout:
        healthy = ask(url, "/health").status == 200
        seen = seen.seen(time.monotonic(), healthy)
        time.sleep(0 if seen.over else _WATCH_POLL)
    return seen, time.monotonic() - began


def chat(url: str, model_name: str, thinks: Mapping[str, object], extra: Mapping[str, object]) -> Reply:
    """A chat completion whose answer is known. thinks: the profile's `thinking`. extra: put into the body."""
    question = {
        "model": model_name,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": thinking.tokens(thinks, _ANSWER_TOKENS),
    }
    return ask(url, "/v1/chat/completions", thinking.body(question, {thinking.KWARGS: thinking.quiet(thinks)}, extra))
