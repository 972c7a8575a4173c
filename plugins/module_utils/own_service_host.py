# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a service's installation that touches the machine: look, carry a ServicePlan out, read what it says of itself."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from .host import HostError, read_text, run, switch_off, write_text
from .own_service import Found, Service, ServicePlan

_START_TIMEOUT_S = 40.0
_POLL_S = 0.5


def sources(modules: Mapping[str, ModuleType]) -> dict[str, str]:
    """Text of modules of ours by a path, also when they were imported from the archive that Ansible sends. Raises HostError."""
    texts = {}
    for path, module in modules.items():
        loader = getattr(module.__spec__, "loader", None)
        text = loader.get_source(module.__name__) if loader else None
        if not text:
            raise HostError(f"the text of {module.__name__} cannot be had from its loader")
        texts[path] = text
    return texts


def look(service: Service) -> Found:
    """Raises HostError."""
    shown = run(["systemctl", "show", "-p", "ActiveState,UnitFileState", "--", service.unit]).stdout
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return Found(
        files={path: read_text(path) for path in service.owned},
        active=values.get("ActiveState") == "active",
        enabled=values.get("UnitFileState") == "enabled",
        digest=str(status(service).get("digest", "")),
        token=(read_text(service.token) or "").strip() if service.token else "",
    )


def status(service: Service) -> dict[str, Any]:
    """What the running service says of itself, empty when there is none."""
    with contextlib.suppress(ValueError):
        found = json.loads(read_text(service.status) or "")
        if isinstance(found, dict):
            return found
    return {}


def settled(service: Service, enough: Callable[[Mapping[str, Any]], bool], timeout: float) -> dict[str, Any]:
    """The status once it is enough, or the last one after timeout seconds."""
    limit = time.monotonic() + timeout
    seen = status(service)
    while not enough(seen) and time.monotonic() < limit:
        time.sleep(_POLL_S)
        seen = status(service)
    return seen


def apply(service: Service, planned: ServicePlan) -> None:
    """Raises HostError. A service that does not start fails the call, with what it said."""
    if planned.disable:
        switch_off(service.unit, run)
    for path, (text, mode) in planned.files.items():
        if text is None:
            Path(path).unlink(missing_ok=True)
        else:
            write_text(path, text, mode)
    if any(text is None for text, _mode in planned.files.values()):
        _prune(service)
    if service.unit_path in planned.files:
        run(["systemctl", "daemon-reload"])
    if planned.enable:
        run(["systemctl", "enable", "--quiet", "--", service.unit])
    if planned.restart:
        _restart(service)


def _restart(service: Service) -> None:
    try:
        run(["systemctl", "restart", "--", service.unit], timeout=_START_TIMEOUT_S)
    except HostError as error:
        said = run(["journalctl", "-q", "--no-pager", "-o", "cat", "-n", "5", "-u", service.unit], check=False).stdout
        raise HostError(f"{service.unit} does not start: {error}. Its last lines:\n{said.strip()}") from error


def _prune(service: Service) -> None:
    for folder in service.folders:
        with contextlib.suppress(OSError):  # absent, or somebody else's file is in it
            Path(folder).rmdir()
