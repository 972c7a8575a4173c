# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the memory guard's installation that touches the machine: look, and carry a GuardPlan out."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from .. import made
from ..host import HostError, read_text, run, switch_off, write_text
from . import guard, guard_machine, guard_notice, guard_service
from .guard_unit import PACKAGE, PROGRAM, SLICE, UNIT, Found, GuardPlan, Places, owned

_START_TIMEOUT_S = 30.0  # above the unit's own TimeoutStartSec
_MODULES = dict(zip(PROGRAM, (guard, guard_machine, guard_notice, guard_service), strict=True))


def program() -> dict[str, str]:
    """Text of the guard's own modules, also when they were imported from the archive that Ansible sends."""
    texts = {}
    for name in PROGRAM:
        module = _MODULES[name]
        loader = getattr(module.__spec__, "loader", None)
        text = loader.get_source(module.__name__) if loader else None
        if not text:
            raise HostError(f"the text of {module.__name__} cannot be had from its loader")
        texts[name] = text
    return texts


def look(places: Places) -> Found:
    """Raises HostError."""
    shown = run(["systemctl", "show", "-p", "ActiveState,UnitFileState", "--", UNIT]).stdout
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return Found(
        files={path: read_text(path) for path in owned(places)},
        active=values.get("ActiveState") == "active",
        enabled=values.get("UnitFileState") == "enabled",
        digest=str(status(places).get("digest", "")),
        token=(read_text(places.token) or "").strip(),
    )


def status(places: Places) -> dict[str, Any]:
    """What the running guard says of itself, empty when there is none."""
    return _mapping(read_text(places.status))


def last(places: Places) -> dict[str, Any]:
    """The last stop, empty when there was none."""
    return _mapping(read_text(places.last))


def _mapping(text: str | None) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(text or "")
        if isinstance(found, dict):
            return found
    return {}


def apply(planned: GuardPlan, places: Places) -> None:
    """Raises HostError. A guard that does not start fails the call, with what it said."""
    if planned.disable:
        switch_off(UNIT, run)
        run(["systemctl", "stop", "--", SLICE], check=False)  # a slice stays when its last unit ends
    written = [path for path, (text, _mode) in planned.files.items() if text is not None]
    made.note(written, Path(places.state))
    for path, (text, mode) in planned.files.items():
        if text is None:
            Path(path).unlink(missing_ok=True)
        else:
            write_text(path, text, mode)
    if not planned.plan.changed:
        return
    _prune(places)
    if any(path.startswith(f"{places.etc}/systemd/") for path in planned.files):
        run(["systemctl", "daemon-reload"])
    if planned.enable:
        run(["systemctl", "enable", "--quiet", "--", UNIT])
    if planned.restart:
        _restart(places)


def _restart(places: Places) -> None:
    Path(places.state).mkdir(parents=True, exist_ok=True)
    try:
        run(["systemctl", "restart", "--", UNIT], timeout=_START_TIMEOUT_S)
    except HostError as error:
        said = run(["journalctl", "-q", "--no-pager", "-o", "cat", "-n", "5", "-u", UNIT], check=False).stdout.strip()
        raise HostError(f"the memory guard does not start: {error}. Its last lines:\n{said}") from error


def _prune(places: Places) -> None:
    """Remove folders of ours that are empty now."""
    package = Path(places.directory) / PACKAGE
    made.tidy(Path(places.state), (package, package.parent, Path(places.settings).parent))


def settled(places: Places, names: list[str], timeout: float) -> dict[str, Any]:
    """The status once every neighbour of these names has answered, or the last one after timeout seconds."""
    limit = time.monotonic() + timeout
    seen = status(places)
    while time.monotonic() < limit and not all((seen.get("answered") or {}).get(name) for name in names):
        time.sleep(0.5)
        seen = status(places)
    return seen
