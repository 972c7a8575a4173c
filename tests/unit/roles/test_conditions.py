# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch given on the command line (`-e checkpoint_fanout=true`) is a text, which ansible-core 2.19 does not take for a condition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"


def switches() -> set[str]:
    """Every boolean that a role takes."""
    specs = [yaml.safe_load(path.read_text())["argument_specs"] for path in ROLES.glob("*/meta/argument_specs.yml")]
    options = [option for spec in specs for entry in spec.values() for option in entry.get("options", {}).items()]
    return {name for name, option in options if option["type"] == "bool"}


def conditions(task: Any) -> Iterator[str]:
    if isinstance(task, list):
        for item in task:
            yield from conditions(item)
    elif isinstance(task, dict):
        for key, value in task.items():
            if key in ("when", "failed_when", "changed_when", "that", "until"):
                yield from (str(one) for one in (value if isinstance(value, list) else [value]))
            else:
                yield from conditions(value)


def test_there_are_switches_and_conditions() -> None:
    assert {"checkpoint_fanout", "fabric_verify_reboot"} <= switches()
    text = (ROLES / "checkpoint" / "tasks" / "stage.yml").read_text()
    assert "checkpoint_fanout | bool" in list(conditions(yaml.safe_load(text)))


@pytest.mark.parametrize("path", sorted(ROLES.glob("*/tasks/*.yml")), ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_a_switch_in_a_condition_is_made_a_boolean(path: Path) -> None:
    found = list(conditions(yaml.safe_load(path.read_text())))
    bare = [one for one in found for name in switches() if re.search(rf"\b{name}\b(?!\s*\|\s*bool\b)", one)]
    assert not bare
