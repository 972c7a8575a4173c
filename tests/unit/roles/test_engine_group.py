# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine's tasks take from the group as a whole: that all of it is there, and where its API is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.filter.engine_url import engine_url
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import GROUPS, ROLE
from ansible_collections.gb10.ring.tests.unit.fixtures.role_variables import computed

FILES = ("engine/defaults/main.yml", "engine/vars/main.yml")
RING = {"groups": {"ring": ["spark1", "spark2", "spark3"]}}
HEAD = {"engine_profile": "lab", "ring_size": 3, "ring_head_address": "192.0.2.11"}


def tasks(name: str) -> list[dict[str, Any]]:
    found = yaml.safe_load((ROLE / f"tasks/{name}.yml").read_text(encoding="utf-8"))
    assert isinstance(found, list)
    return found


def test_nodes_that_a_run_leaves_out_are_named() -> None:
    plays = [["spark3"], ["spark1", "spark2", "spark3"], ["spark3", "spark1"]]
    found = computed(FILES, ["engine_left_out"], [{**RING, "ansible_play_hosts_all": hosts} for hosts in plays])
    assert [case["engine_left_out"] for case in found] == [["spark1", "spark2"], [], ["spark2"]]


def test_a_run_that_leaves_nodes_out_is_refused_before_anything_else() -> None:
    first = tasks("preflight")[0]
    assert first["ansible.builtin.assert"]["that"] == "engine_left_out | length == 0"
    assert "{{ engine_left_out | join(', ') }}" in first["ansible.builtin.assert"]["fail_msg"]
    assert "when" not in first and "tags" not in first
    for name in ("main", "prepare"):
        assert tasks(name)[0]["ansible.builtin.import_tasks"] == "preflight.yml"


@pytest.mark.parametrize("name", ["verify", "benchmark", "acceptance", "downtime"])
def test_looking_at_some_of_the_nodes_is_not(name: str) -> None:
    assert "preflight.yml" not in str(tasks(name))
    assert "engine_left_out" not in str(tasks(name))


def test_no_guards_get_a_token_that_other_nodes_lack() -> None:
    guard = yaml.safe_load((ROLE.parent / "memory/tasks/guard.yml").read_text(encoding="utf-8"))
    (block,) = [task["block"] for task in guard if "block" in task]
    assert [task.get("register") for task in block] == [None, "memory_guard_token_result"]
    assert block[0]["ansible.builtin.assert"]["that"] == "memory_left_out | length == 0"


URLS = [
    ({}, "http://192.0.2.11:8000"),
    ({"engine_port": 8001}, "http://192.0.2.11:8001"),
    ({"engine_overrides": {"host": "::"}}, "http://192.0.2.11:8000"),
    ({"engine_overrides": {"host": "203.0.113.7", "port": 8002}}, "http://203.0.113.7:8002"),
    ({"engine_overrides": {"host": "api.example.org"}}, "http://api.example.org:8000"),
]


def test_the_api_is_asked_where_it_listens() -> None:
    found = computed(FILES, ["engine_url"], [{**HEAD, **case} for case, _url in URLS])
    assert [case["engine_url"] for case in found] == [url for _case, url in URLS]


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_that_is_what_the_record_says(name: str) -> None:
    profile, specs = GROUPS[name].specs()
    head = GROUPS[name].nodes()[0].head_address
    assert {engine_url(profile.to_dict(), head)} == {spec.url for spec in specs}


@pytest.mark.parametrize("path", sorted((ROLE / "tasks").glob("*.yml")), ids=lambda path: path.stem)
def test_no_task_makes_an_address_of_its_own(path: Any) -> None:
    assert "http://" not in path.read_text(encoding="utf-8")
