# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the active revision are deleted by what was decided before the group was stopped, not by the consent that it was decided from."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.ring.tests.unit.fixtures.role_variables import computed

RESTAGE = Path(__file__).resolve().parents[3] / "roles/checkpoint/tasks/restage.yml"
NAME = "checkpoint_stage_in_place"


def given(file: str) -> str:
    """What the tasks of this file get."""
    texts = [
        task["vars"][NAME]
        for task in yaml.safe_load(RESTAGE.read_text())
        if file in (task.get("ansible.builtin.include_tasks"), task.get("ansible.builtin.import_tasks"))
    ]
    assert len(texts) == 1
    return str(texts[0])


@pytest.mark.parametrize("file", ["stage.yml", "replaced.yml"])
def test_staging_goes_by_the_decision(tmp_path: Path, file: str) -> None:
    place = tmp_path / "given.yml"
    place.write_text(yaml.safe_dump({NAME: given(file)}))
    cases = [
        {"checkpoint_in_place": consent, "checkpoint_restage_result": {"in_place": decided}}
        for consent, decided in ((True, True), (True, False), (False, False))
    ]
    assert [found[NAME] for found in computed((str(place),), [NAME], cases)] == [True, False, False]


def test_the_plan_is_made_with_the_consent() -> None:
    assert given("plan.yml") == "{{ checkpoint_in_place }}"
