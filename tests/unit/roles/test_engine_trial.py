# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to pass, what may be kept and what may be stopped: the conditions of the role, as Ansible computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gb10.ring.tests.unit.fixtures.role_variables import computed

ROLE = Path(__file__).resolve().parents[3] / "roles/engine"
FILES = ("engine/vars/main.yml",)
RUNS, OFF = "active (running)", "inactive (dead)"


def task(file: str, name: str) -> dict[str, Any]:
    return next(one for one in yaml.safe_load((ROLE / "tasks" / file).read_text()) if one["name"] == name)


def case(unproven: tuple[bool, bool] = (False, False), restart: bool = False, **given: Any) -> dict[str, Any]:
    """A group of two. unproven: what engine_passed says of each; restart: whether the second has to start again."""
    states = given.pop("states", (RUNS, RUNS))
    ready = {"state": given.pop("ready", "ready")}
    looks = zip("ab", unproven, (False, restart), states, strict=True)
    hostvars = {
        name: {
            "engine_passed_look": {"unproven": new},
            "engine_unit_result": {"restart": again},
            "engine_unit_wanted": {"state": state, "restart": again},
        }
        for name, new, again, state in looks
    }
    settings = {"engine_state": "started", "engine_probe": True, "engine_keep": True, "engine_restart_allowed": False}
    told = {"hostvars": hostvars, "ansible_play_hosts_all": ["a", "b"], "engine_ready_result": ready}
    return {**settings, **told, **given}


TRIALS = [
    ("unchanged, and it has passed", case(), (False, False)),
    ("started", case(restart=True, unproven=(True, True)), (True, True)),
    ("started anew from what has passed", case(restart=True), (True, True)),
    ("runs and has never passed", case(unproven=(True, True)), (True, True)),
    ("runs and has not passed on one node", case(unproven=(False, True)), (True, True)),
    ("does not serve", case(unproven=(True, True), ready="waiting"), (False, False)),
    ("nothing may be asked", case(unproven=(True, True), engine_probe=False), (False, False)),
    ("started, and nothing may be asked", case(restart=True, engine_probe="false"), (False, False)),
    ("a switch keeps it later", case(restart=True, engine_keep=False), (True, False)),
]
# Whether a restart is refused, and whether a group that does not pass may be stopped to go back.
CONSENTS = [
    ("serves, no consent", case(), (True, False)),
    ("serves, consent", case(engine_restart_allowed="true"), (False, True)),
    ("serves, and a restart is what was asked for", case(engine_state="restarted"), (False, True)),
    ("changed on one node", case(restart=True), (True, True)),
    ("a lone rank runs", case(restart=True, states=(RUNS, OFF)), (False, True)),
    ("a lone rank waits for its links", case(restart=True, states=(OFF, "activating (start-pre)")), (False, True)),
    ("nothing runs", case(restart=True, states=(OFF, OFF)), (False, True)),
    ("no unit yet", case(restart=True, states=("no unit", "no unit")), (False, True)),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    conditions = {
        "asks": task("trial.yml", "Trial | Ask what was started, or has not passed, what is known")["when"],
        "keeps": task("trial.yml", "Trial | Keep what passed")["when"],
    }
    place = tmp_path_factory.mktemp("conditions") / "conditions.yml"
    place.write_text(yaml.safe_dump({name: f"{{{{ {text} }}}}" for name, text in conditions.items()}))
    names = ["engine_judged", "asks", "keeps", "engine_stop_refused", "engine_back_allowed", "engine_refusal"]
    return list(computed((*FILES, str(place)), names, [given for _name, given, _wanted in (*TRIALS, *CONSENTS)]))


@pytest.mark.parametrize("number", range(len(TRIALS)), ids=[name for name, _given, _wanted in TRIALS])
def test_what_is_asked_and_what_is_kept(found: list[Any], number: int) -> None:
    one = found[number]
    assert (one["asks"], one["keeps"]) == TRIALS[number][2]


@pytest.mark.parametrize("number", range(len(CONSENTS)), ids=[name for name, _given, _wanted in CONSENTS])
def test_what_may_be_stopped(found: list[Any], number: int) -> None:
    one = found[len(TRIALS) + number]
    assert (one["engine_stop_refused"], one["engine_back_allowed"]) == CONSENTS[number][2]


def test_the_refusal_names_the_nodes(found: list[Any]) -> None:
    assert "its configuration on b has changed" in found[len(TRIALS) + 3]["engine_refusal"]


def test_a_dry_run_is_told_and_goes_on() -> None:
    assert (
        task("refuse.yml", "Refuse | Do not stop a serving group without consent")["when"] == "not ansible_check_mode"
    )
