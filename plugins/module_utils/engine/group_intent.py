# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the supervisor of a node is told what is meant: files in its directory in /run, replaced as a whole.

A copy runs on the nodes without Ansible, so this file imports the standard library only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "gb10-ring-group"


def path(run_root: str, name: str) -> Path:
    return Path(run_root) / FOLDER / f"{name}.json"


def read(place: str | Path) -> dict[str, Any]:
    """A file that holds a JSON mapping; empty when it is absent or holds anything else."""
    try:
        found = json.loads(Path(place).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def replace(place: str | Path, content: Mapping[str, Any]) -> None:
    """Write a mapping as JSON, whole or not at all, for root alone. Raises OSError."""
    target = Path(place)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.write_text(json.dumps(content, sort_keys=True) + "\n", encoding="utf-8")
    beside.chmod(0o600)
    beside.replace(target)


def write(run_root: str, want: str, by: str, why: str, incident: str = "") -> None:
    """Say that the node's rank is about to be stopped or started on purpose. want: "stopped" or "started". Raises OSError."""
    content = {"want": want, "by": by, "why": why, "at": time.time(), "incident": incident}
    replace(path(run_root, "intent"), content)


def order(run_root: str, do: str, by: str, reason: str, incident: str = "") -> str:
    """Have the whole group stopped or started by this node's supervisor; the order's id. Raises OSError."""
    identity = os.urandom(8).hex()
    replace(path(run_root, "order"), {"id": identity, "do": do, "by": by, "reason": reason, "incident": incident})
    return identity


def status(run_root: str) -> dict[str, Any]:
    """What the supervisor says; empty when there is none."""
    return read(path(run_root, "status"))
