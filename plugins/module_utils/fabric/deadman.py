# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dead-man switch on the machine: arm, apply, confirm, clean, roll back. guard.py does the work from systemd units."""

from __future__ import annotations

import base64
import inspect
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import made
from ..host import HostError, run, write_text
from . import before, guard
from .change import Edit, NetworkPlan

HOME = made.STATE.lstrip("/")
FOLDER = f"{HOME}/network-rollback"
BOOT_UNIT = "etc/systemd/system/gb10-ring-fabric-restore.service"
BOOT_LINK = "etc/systemd/system/multi-user.target.wants/gb10-ring-fabric-restore.service"
APPLY_DELAY = 1.0  # seconds, in which the module's answer leaves by the old network
NONE = "none"

_BOOT_TEXT = """\
# Written by gb10.ring while a change of the network is not confirmed, removed with the confirmation.
[Unit]
Description=Undo a network change that nobody confirmed before the machine restarted
ConditionPathExists={folder}/{state}
RequiresMountsFor={folder}
After=network.target systemd-networkd.service NetworkManager.service

[Service]
Type=oneshot
ExecStart={python} {folder}/guard.py expire {folder}

[Install]
WantedBy=multi-user.target
"""


def status(root: Path) -> dict[str, Any]:
    """leftover: none, armed or confirmed; seconds_left until the timer; outcome of the apply (None: still at it); the last restore."""
    folder = root / FOLDER
    state = guard.load(folder)
    return {
        "leftover": state["phase"] if state else NONE,
        "seconds_left": round(max(0.0, state["deadline"] - time.monotonic()), 1) if state else 0.0,
        "outcome": guard.load(folder, guard.OUTCOME),
        "last_restore": guard.load(folder.parent, guard.LAST),
    }


def arm(root: Path, planned: NetworkPlan, links: Sequence[str], timeout: float) -> None:
    """Keep what will be replaced, and start the timer that brings it back. links: interfaces whose state is kept, too.

    Raises HostError; nothing is changed and nothing is left then.
    """
    folder = root / FOLDER
    state = {
        "phase": guard.ARMED,
        "deadline": time.monotonic() + timeout,
        "was_broken": planned.was_broken,
        "apply": {
            "links": dict(planned.wanted),
            "by_hand": planned.by_hand,
            "nm_reload": planned.nm_reload,
            "nm_ports": list(planned.nm_ports),
        },
        "boot_files": [str(root / BOOT_UNIT), str(root / BOOT_LINK)],
    }
    try:
        state["files"] = [guard.record(str(root / edit.path.lstrip("/"))) for edit in planned.edits]
        state["generated"] = guard.generated()
        state["links"] = {name: {**seen, "keep_dynamic": True} for name, seen in guard.look(links).items()}
        _prepare(root, folder, state)
        _later(guard.TIMER_UNIT, timeout, folder, "expire", "Undo a network change of gb10.ring that nobody confirmed")
    except (OSError, ValueError, HostError) as error:
        guard.release(folder, state)
        raise HostError(f"cannot prepare the way back, so nothing was changed: {error}") from error


def _prepare(root: Path, folder: Path, state: Mapping[str, Any]) -> None:
    """The files that a restore needs, and the unit that makes one after a restart."""
    (folder.parent / guard.LAST).unlink(missing_ok=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / guard.OUTCOME).unlink(missing_ok=True)
    write_text(folder / "guard.py", inspect.getsource(guard), 0o600)
    guard.save(folder / guard.STATE, state)
    write_text(root / BOOT_UNIT, _BOOT_TEXT.format(folder=folder, state=guard.STATE, python=sys.executable))
    link = root / BOOT_LINK
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(root / BOOT_UNIT)


def _later(unit: str, delay: float, folder: Path, what: str, why: str) -> None:
    """Have guard.py run by systemd, apart from this session, after ``delay`` seconds."""
    for kind in ("timer", "service"):
        run(["systemctl", "reset-failed", f"{unit}.{kind}"], check=False)
    run(
        [
            *("systemd-run", f"--unit={unit}", "--collect", f"--description={why}", f"--on-active={delay}s"),
            *("--timer-property=AccuracySec=100ms", sys.executable, str(folder / "guard.py"), what, str(folder)),
        ]
    )


def apply(root: Path, planned: NetworkPlan, links: Sequence[str], timeout: float) -> None:
    """Arm, write the files, let netplan apply them in a moment. Raises HostError; what was written by then is undone."""
    arm(root, planned, links, timeout)
    try:
        _write_all(planned, root)
        _later(guard.APPLY_UNIT, APPLY_DELAY, root / FOLDER, "apply", "Apply a network change of gb10.ring")
    except HostError as error:
        roll_back(root)
        raise HostError(f"{error}. The earlier network is being restored") from error


def write_only(root: Path, planned: NetworkPlan) -> None:
    """Files that need no ``netplan apply``. Raises HostError."""
    _write_all(planned, root)
    tidy(root)


def _write_all(planned: NetworkPlan, root: Path) -> None:
    made.note([root / edit.path.lstrip("/") for edit in planned.edits if edit.text is not None], root / HOME)
    for edit in planned.edits:
        _write(edit, root)


def tidy(root: Path) -> None:
    """Remove directories that were made for the network's files or for looks at the cables, and are empty."""
    made.tidy(root / HOME, [root / "run/gb10-ring/cabling", root / "run/gb10-ring"])


def _write(edit: Edit, root: Path) -> None:
    if edit.text is not None and edit.path.startswith(before.FOLDER):
        (root / before.FOLDER.lstrip("/")).mkdir(mode=0o700, parents=True, exist_ok=True)
    content = None if edit.text is None else edit.text.encode("utf-8", "surrogateescape")
    encoded = None if content is None else base64.b64encode(content).decode("ascii")
    owner = edit.owner if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    path = root / edit.path.lstrip("/")
    try:
        guard.put({"path": str(path), "content": encoded, "mode": edit.mode, "uid": owner[0], "gid": owner[1]})
        if edit.text is None and edit.path.startswith(before.FOLDER):
            _prune(path.parent, root / before.FOLDER.lstrip("/"))
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}") from error


def _prune(folder: Path, top: Path) -> None:
    """Remove folders that are empty now, up to ``top`` itself."""
    while folder.is_relative_to(top) and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def roll_back(root: Path) -> bool:
    """Start the restore, apart from this session; whether there is anything to restore."""
    folder = root / FOLDER
    if guard.load(folder) is None:
        return False
    _later(guard.NOW_UNIT, 0.2, folder, "restore", "Undo a network change of gb10.ring")
    return True


def confirm(root: Path) -> None:
    """Stop the timer; the backup stays until clean(). Raises HostError when the change was undone already."""
    folder = root / FOLDER
    with guard.locked(folder):
        state = guard.load(folder)
        if state is None:
            last = guard.load(folder.parent, guard.LAST) or {}
            raise HostError(
                f"the change was undone at {last.get('at', 'an unknown time')}: {last.get('why', 'no reason known')}"
            )
        guard.save(folder / guard.STATE, {**state, "phase": guard.CONFIRMED})
    _stop_timer()


def clean(root: Path) -> bool:
    """Remove a confirmed change's backup; whether there was one."""
    folder = root / FOLDER
    if not folder.exists():  # nor need the directory that is locked
        return False
    with guard.locked(folder):
        state = guard.load(folder)
        if state is None or state["phase"] != guard.CONFIRMED:
            return False
        _stop_timer()
        guard.release(folder, state)
    tidy(root)
    return True


def _stop_timer() -> None:
    for unit in (f"{guard.TIMER_UNIT}.timer", f"{guard.APPLY_UNIT}.timer"):
        run(["systemctl", "stop", unit], check=False)


def describe(found: Mapping[str, Any]) -> str:
    """The last restore in a status, for a person; empty when there was none."""
    last = found.get("last_restore")
    if not last:
        return ""
    problems = "; ".join(last["problems"])
    return f"the earlier network was restored at {last['at']}: {last['why']}" + (
        f". Not restored: {problems}" if problems else ""
    )
