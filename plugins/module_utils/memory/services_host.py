# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads services and targets of a node, applies a ServicesPlan, and takes it back."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from .. import before
from ..host import HostError, read_text, replace_text, run, write_text
from ..plan import Change
from . import services
from .services import CLOCK_FILE, CLOCK_UNIT, JOURNAL_FILE, UNITS, UPGRADES_FILE, ServicesPlan, State, Unit

JOURNALD = "systemd-journald.service"
OOMD_SOCKET = "systemd-oomd.socket"
DEFAULT_TARGET = "systemd/system/default.target"
SET_LINE = "GPU clocks set to"  # what nvidia-smi -lgc answers


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
    return SET_LINE in done.stdout


def load_record(path: Path) -> dict[str, Any]:
    """What was replaced so far. Raises HostError."""
    try:
        return before.parse(read_text(path), "platform_settings")
    except ValueError as error:
        raise HostError(f"{path} {error}") from error


def apply(planned: ServicesPlan, state: State, record: Path) -> None:
    """The record first, then files, units, target. Raises HostError."""
    if not planned.plan.changed:
        return
    write_text(record, before.render(services.merged(load_record(record), planned, state)))
    for change in planned.files:
        if change.after:
            _replace(change)
    _read_again(planned)
    _switch(planned)
    if planned.target:
        run(["systemctl", "set-default", "--quiet", planned.target.after])
    for change in planned.files:
        if not change.after:  # last: a unit of ours is stopped by its own file
            _replace(change)
    if any(not change.after for change in planned.files):
        run(["systemctl", "daemon-reload"])


def take_back(planned: ServicesPlan, etc: Path, record: Path, known: dict[str, Any]) -> None:
    """The way back, the record last. Raises HostError, and keeps the record then."""
    _switch(planned, known.get("units", {}))
    if planned.target:
        _link(etc / DEFAULT_TARGET, planned.target_link or "")
    for change in planned.files:
        _replace(change)
    _read_again(planned)
    record.unlink(missing_ok=True)


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


def _switch(planned: ServicesPlan, held: dict[str, Any] | None = None) -> None:
    """Units. held: recorded states, which tell apart what was only started or only enabled."""
    for step in planned.units:
        known = (held or {}).get(step.name)
        enabled = step.on if known is None else known["enabled"] == "enabled"
        if step.now.startable:
            run(["systemctl", "enable" if enabled else "disable", "--quiet", "--", step.name])
        # The socket would start the daemon again at once; enabling and disabling it goes with the service.
        sockets = [OOMD_SOCKET] if step.name == services.OOMD else []
        run(["systemctl", "start" if step.on else "stop", "--", *sockets, step.name])


def _link(link: Path, target: str) -> None:
    """Make the link, or remove it for an empty target."""
    try:
        link.unlink(missing_ok=True)
        if target:
            link.symlink_to(target)
    except OSError as error:
        raise HostError(f"cannot change the link {link}: {error.strerror}") from error
    run(["systemctl", "daemon-reload"])


def _replace(change: Change) -> None:
    """Write a file, or remove it with the directory that only held it."""
    replace_text(change.what, change.after)
    directory = Path(change.what).parent
    if not change.after and directory.name.endswith(".service.d"):
        with contextlib.suppress(OSError):  # somebody else's drop-in is in it
            directory.rmdir()
