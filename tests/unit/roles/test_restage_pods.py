# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An update of a group whose ranks are pods is refused by the first thing that the role does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gb10.ring.tests.unit.fixtures.role_variables import computed

TASKS = Path(__file__).resolve().parents[3] / "roles/checkpoint/tasks"
IMPORT = "ansible.builtin.import_tasks"


def first(name: str) -> tuple[str, dict[str, Any]]:
    """The file that the first task of this one comes from, and the variables on the way there."""
    given: dict[str, Any] = {}
    task = yaml.safe_load((TASKS / name).read_text())[0]
    while IMPORT in task:
        given, name = {**task.get("vars", {}), **given}, task[IMPORT]
        task = yaml.safe_load((TASKS / name).read_text())[0]
    return name, {**task["vars"], **given}


@pytest.mark.parametrize("playbook", ["restage.yml", "rollback.yml"])
def test_pods_are_refused_before_anything_is_looked_at(tmp_path: Path, playbook: str) -> None:
    name, given = first(playbook)
    place = tmp_path / "given.yml"
    place.write_text(yaml.safe_dump(given))
    engine = {"name": "x", "engine": "vllm", "engram": {}, "renderer": "kubernetes"}
    known = {
        "checkpoint_engine": engine,
        "checkpoint_engram_placement": "full",
        "checkpoint_engram_rule": "vllm",
        "checkpoint_tensor_parallel": 0,
        "checkpoint_in_place": True,
        "inventory_hostname": "spark1",
    }
    cases = [{**known, "checkpoint_serves": serves} for serves in (True, "true", "false", False)]
    cases.append({**known, "checkpoint_serves": True, "checkpoint_engine": {**engine, "renderer": "venv"}})
    found = [one["checkpoint_fit"] for one in computed((str(place),), ["checkpoint_fit"], cases)]
    assert name == "fit.yml"
    assert [[check["id"] for check in one] for one in found] == [["checkpoint.renderer"]] * 2 + [[]] * 3


def test_site_yml_stages_for_pods() -> None:
    assert first("main.yml")[1].keys() == {"checkpoint_fit"}
