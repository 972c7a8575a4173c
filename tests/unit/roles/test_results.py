# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report gathers is registered at one place each: a second task that fails or finds no node would overwrite the first one's checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.report.gather import RESULTS

ROLES = Path(__file__).resolve().parents[3] / "roles"


def registered(tasks: Any) -> Iterator[str]:
    """Every name that tasks register, those of blocks too."""
    for task in tasks if isinstance(tasks, list) else []:
        if "register" in task:
            yield task["register"]
        for part in ("block", "rescue", "always"):
            yield from registered(task.get(part))


@pytest.mark.parametrize("role", RESULTS)
def test_a_result_is_registered_by_one_task(role: str) -> None:
    files = sorted((ROLES / role / "tasks").glob("*.yml"))
    found = Counter(name for path in files for name in registered(yaml.safe_load(path.read_text(encoding="utf-8"))))
    assert {name: found[name] for name in RESULTS[role]} == dict.fromkeys(RESULTS[role], 1)
