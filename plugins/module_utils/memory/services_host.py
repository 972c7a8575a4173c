# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads services and targets of a node, applies a ServicesPlan, and takes it back."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import before, made
from ..host import HostError, read_text, replace_text, run, write_text
from . import services
from .services import (
    CLOCK_FILE,
    CLOCK_UNIT,
    JOURNAL_FILE,
    UNITS,
    UPGRADES_FILE,
    ServicesPlan,
    State,
    Unit,
    UnitStep,
    Wanted,
)

JOURNALD = "systemd-journald.service"
OOMD_SOCKET = "systemd-oomd.socket"
DEFAULT_TARGET = "systemd/system/default.target"


def look(etc: Path, clocks: bool) -> State:
    """clocks: whether the journal is to be asked for the limit."""
    held = {path: read_text(etc / path) or "" for path in (UPGRADES_FILE, JOURNAL_FILE, CLOCK_FILE)}
    shown = run(["systemctl", "show", "-p", "Id,LoadState,UnitFileState,ActiveState", "--", *UNITS], check=False).stdout
    target = run(["systemctl", "get-default"], check=False).stdout.strip()
    link = etc / DEFAULT_TARGET
    return State(
        held,
        _units(shown),
        target,
        str(link.readlink()) if link.is_symlink() else "",
        _clocks_set() if clocks else None,
    )


def _units(shown: str) -> dict[str, Unit]:
    found = {}
    for part in shown.split("\n\n"):
        values = dict(line.split("=", 1) for line in part.splitlines() if "=" in line)
        if values.get("LoadState") not in (None, "not-found"):
            found[values["Id"]] = Unit(values.get("UnitFileState", ""), values.get("ActiveState") == "active")
    return found


def _clocks_set() -> bool:
    done = run(["journalctl", "-q", "-b", "-o", "cat", "--no-pager", "-u", CLOCK_UNIT], check=False)
    return services.SET_LINE in done.stdout


def load_record(path: Path) -> dict[str, Any]:
    """What was replaced so far. Raises HostError."""
    try:
        return before.parse(read_text(path), "platform_settings")
    except ValueError as error:
        raise HostError(f"{path} {error}") from error


def apply(planned: ServicesPlan, state: State, wanted: Wanted, record: Path) -> None:
    """A limit of the clocks is tried first; one that is refused is not persisted. Raises HostError."""
    if not planned.plan.changed:
        return
    trial = services.clock_trial(planned, wanted)
    if trial:
        _try_clocks(trial, wanted.clock_lock)
    try:
        _carry_out(planned, state, record)
    except HostError:
        if trial:
            _clocks_back(planned, state, wanted.nvidia_smi)
        raise


def _try_clocks(argv: Sequence[str], value: str) -> None:
    try:
        done = run(argv, check=False)
    except HostError as error:
        raise HostError(f"nothing was changed: clock_lock is {value!r}: {error}") from error
    refused = services.clock_refusal(value, done.rc, f"{done.stdout}\n{done.stderr}")
    if refused:
        raise HostError(f"nothing was changed: {refused}")


def _clocks_back(planned: ServicesPlan, state: State, nvidia_smi: str) -> None:
    """Clocks and their unit as they were, after something else of the plan has failed."""
    earlier = state.units.get(CLOCK_UNIT, Unit())
    with contextlib.suppress(HostError):
        for change in planned.files:
            if change.what.endswith(CLOCK_FILE):
                if not change.before:
                    run(["systemctl", "disable", "--quiet", "--now", "--", CLOCK_UNIT], check=False)
                replace_text(change.what, change.before)
        run(["systemctl", "daemon-reload"], check=False)
        run(["systemctl", "restart", "--", CLOCK_UNIT] if earlier.active else [nvidia_smi, "-rgc"], check=False)


def _carry_out(planned: ServicesPlan, state: State, record: Path) -> None:
    """The record first, then files, units, target."""
    write_text(record, before.render(services.merged(load_record(record), planned, state)))
    made.note([change.what for change in planned.files if change.after], record.parent)
    for change in planned.files:
        if change.after:
            replace_text(change.what, change.after)
    _read_again(planned)
    _switch(planned)
    if planned.target:
        run(["systemctl", "set-default", "--quiet", planned.target.after])
    for change in planned.files:
        if not change.after:  # last: a unit of ours is stopped by its own file
            replace_text(change.what, change.after)
    if any(not change.after for change in planned.files):
        run(["systemctl", "daemon-reload"])
        made.tidy(record.parent, ())


def take_back(planned: ServicesPlan, etc: Path, record: Path, known: dict[str, Any]) -> list[str]:
    """The way back, the record last. A note for each unit that does not come back. Raises HostError, and keeps the record then."""
    notes = _switch_back(planned, known.get("units", {}))
    if planned.target:
        _link(etc / DEFAULT_TARGET, planned.target_link or "")
    for change in planned.files:
        replace_text(change.what, change.after)
    _read_again(planned)
    record.unlink(missing_ok=True)
    made.tidy(record.parent, ())
    return notes


def _read_again(planned: ServicesPlan) -> None:
    """Let systemd and journald read what changed for them."""
    if not planned.files:
        return
    run(["systemctl", "daemon-reload"])
    if any(change.what.endswith(JOURNAL_FILE) for change in planned.files):
        run(["systemctl", "restart", JOURNALD])
        run(["journalctl", "--flush"], check=False)  # takes what is in /run along
    if any(change.what.endswith(CLOCK_FILE) and change.before and change.after for change in planned.files):
        run(["systemctl", "try-restart", CLOCK_UNIT])


def _switch(planned: ServicesPlan) -> None:
    """Units. One that does not start is not enabled, and is left as it was: it would fail at every boot."""
    for step in planned.units:
        if not step.on:
            for argv in (*_boot(step, False), _activate(step)):
                run(argv)
            continue
        try:
            run(_activate(step))
        except HostError:
            if not step.now.active:
                run(["systemctl", "stop", "--", step.name], check=False)  # or it is tried again and again
                run(["systemctl", "reset-failed", "--", step.name], check=False)
            raise
        for argv in _boot(step, True):
            run(argv)


def _switch_back(planned: ServicesPlan, held: dict[str, Any]) -> list[str]:
    """Every unit is tried; a note for each that somebody has removed or that does not start any more.

    held: recorded states, which tell apart what was only started or only enabled.
    """
    notes = []
    for step in planned.units:
        known = held.get(step.name)
        boot = step.on if known is None else known["enabled"] == "enabled"
        done = [run(argv, check=False) for argv in (*_boot(step, boot), _activate(step))]
        failed = [one.message() for one in done if one.rc != 0]
        if failed:
            notes.append(f"{step.name} is not as it was before gb10.ring: {'; '.join(failed)}")
    return notes


def _boot(step: UnitStep, on: bool) -> list[list[str]]:
    """The command that decides whether it starts at boot; none where that means nothing."""
    verb = "enable" if on else "disable"
    return [["systemctl", verb, "--quiet", "--", step.name]] if step.now.startable else []


def _activate(step: UnitStep) -> list[str]:
    # The socket would start the daemon again at once; enabling and disabling it goes with the service.
    sockets = [OOMD_SOCKET] if step.name == services.OOMD else []
    return ["systemctl", "start" if step.on else "stop", "--", *sockets, step.name]


def _link(link: Path, target: str) -> None:
    """Make the link, or remove it for an empty target."""
    try:
        link.unlink(missing_ok=True)
        if target:
            link.symlink_to(target)
    except OSError as error:
        raise HostError(f"cannot change the link {link}: {error.strerror}") from error
    run(["systemctl", "daemon-reload"])
