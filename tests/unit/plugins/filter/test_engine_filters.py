# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.filter.engine_diagnosis import FilterModule as Diagnosis
from ansible_collections.gb10.ring.plugins.filter.engine_way_back import FilterModule as WayBack

engine_diagnosis = Diagnosis().filters()["engine_diagnosis"]
engine_way_back = WayBack().filters()["engine_way_back"]
GROUP = {"a": "h1", "b": "h2"}


def back(**changes):
    return {"differs": True, "group": GROUP, "described": "lab, configuration h1", "problem": "", **changes}


def hosts(first, second, failed=True, **states):
    reason = {"ansible_failed_result": {"msg": "engine: 1 of 9 checks failed"}} if failed else {}
    return {
        "a": {"passed": first, "ready": {"state": states.get("a")}, **reason},
        "b": {"passed": second, "ready": {"state": states.get("b")}, "ansible_failed_result": None},
    }


@pytest.mark.parametrize(
    ("hostvars", "wanted", "possible", "said"),
    [
        (hosts(back(), back()), True, True, ""),
        (hosts(back(differs=False), back()), True, True, ""),
        (hosts(back(), back()), False, False, "engine_rollback is false"),
        (hosts(back(differs=False), back(differs=False)), True, False, "it is the one that passed last"),
        (
            hosts(back(), back(problem="no configuration has passed on this node")),
            True,
            False,
            "b: no configuration has passed",
        ),
        (hosts(back(), back(group={"a": "h0", "b": "h2"})), True, False, "did not pass together"),
    ],
)
def test_whether_there_is_a_way_back(hostvars, wanted, possible, said):
    found = engine_way_back(hostvars, ["a", "b"], "passed", wanted)
    assert found["possible"] is possible
    assert found["said"].startswith("a: engine: 1 of 9 checks failed\n")
    assert said in found["said"]


def test_a_group_that_the_run_has_not_started_is_stopped_with_consent_only():
    found = engine_way_back(hosts(back(), back()), ["a", "b"], "passed", True, allowed=False)
    assert found["possible"] is False
    assert "engine_restart_allowed is false" in found["said"]
    assert engine_way_back(hosts(back(), back()), ["a", "b"], "passed", True, allowed=True)["possible"] is True


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ({"a": "ready", "b": "ready"}, "\nThe group is back at lab, configuration h1, and serves"),
        (
            {"a": "waiting", "b": "ended"},
            "\nThe group was taken back to lab, configuration h1, which does not serve either: a is waiting, b is ended",
        ),
    ],
)
def test_what_became_of_it(states, said):
    found = engine_way_back(hosts(back(), back(), **states), ["a", "b"], "passed", True, "ready")
    assert found["said"] == f"a: engine: 1 of 9 checks failed{said}"


def test_a_failure_without_a_message():
    found = engine_way_back(hosts(back(), back(), failed=False), ["a", "b"], "passed", False)
    assert found["said"].startswith("it did not pass\n")


def test_the_cause_stands_before_the_title():
    hostvars = {
        "a": {"ready": {"tail": ["Connection closed by peer"]}},
        "b": {"ready": {"tail": ["x", "CUDA out of memory"]}},
        "c": {"ready": {"tail": []}},
        "d": {},
    }
    said = engine_diagnosis(hostvars, ["a", "b", "c", "d"], "ready", "engine").splitlines()
    assert said[0].startswith(
        "b: the GPU's share of the memory is used up (gpu-out-of-memory): CUDA out of memory. Cure: "
    )
    assert said[1].startswith("    also a: another rank went away")
    assert said[2:] == ["engine"]


def test_nothing_known_shows_the_last_lines():
    hostvars = {"a": {"ready": {"tail": ["strange"]}}, "b": {"ready": {"tail": ["things"]}}}
    said = engine_diagnosis(hostvars, ["a", "b"], "ready", "engine").splitlines()
    assert said == [
        "no known cause in the logs. Their last lines:",
        "  a:",
        "    strange",
        "  b:",
        "    things",
        "engine",
    ]


def test_a_group_that_serves_needs_no_diagnosis():
    assert engine_diagnosis({"a": {"ready": {"tail": []}}}, ["a"], "ready", "engine") == "engine"


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("INFO: all is well", "engine"),
        ("Out of range float values are not JSON compliant: nan", "a: the model computes values that are not numbers"),
    ],
)
def test_a_group_that_serves_and_answers_wrongly_shows_only_a_known_cause(line, first):
    hostvars = {"a": {"ready": {"tail": [line], "state": "ready"}}, "b": {"ready": {"tail": [], "state": "ready"}}}
    assert engine_diagnosis(hostvars, ["a", "b"], "ready", "engine").startswith(first)
