# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.ready import (
    Look,
    Reply,
    checks,
    log_check,
    outcome,
    ready,
    served,
    settled,
    with_chat,
    with_ending,
)
from ansible_collections.gb10.ring.plugins.module_utils.engine.service import UnitState

RUNNING = UnitState("loaded", "active", "running", "enabled", 42, hash="aa")
AGAIN = UnitState("loaded", "activating", "auto-restart", "enabled", result="exit-code", status=1)
OK = Reply(200)
MODELS = Reply(200, json.dumps({"data": [{"id": "m"}]}))
DOWN = Reply(error="Connection refused")


@pytest.mark.parametrize(
    ("look", "is_ready", "is_settled", "word"),
    [
        (Look(RUNNING, OK, MODELS), True, True, "ready"),
        (Look(RUNNING, OK), True, True, "ready"),
        (Look(RUNNING), True, True, "ready"),
        (Look(RUNNING, OK, MODELS, line="started"), False, False, "waiting"),
        (Look(RUNNING, OK, MODELS, line="started", lined=True), True, True, "ready"),
        (Look(AGAIN, OK, MODELS, line="started"), False, True, "ended"),
        (Look(RUNNING, DOWN, DOWN), False, False, "waiting"),
        (Look(RUNNING, Reply(503), MODELS), False, False, "waiting"),
        (Look(UnitState("loaded")), False, True, "ended"),
        (Look(AGAIN, OK), False, True, "ended"),
    ],
)
def test_decisions(look, is_ready, is_settled, word):
    assert ready(look) is is_ready
    assert settled(look) is is_settled
    assert outcome(look) == word


@pytest.mark.parametrize(
    ("reply", "names"),
    [(MODELS, ("m",)), (DOWN, ()), (None, ()), (Reply(200, "<html>"), ()), (Reply(200, '{"data": 1}'), ())],
)
def test_served(reply, names):
    assert served(reply) == names


def chat(text, **more):
    return Reply(200, json.dumps({"choices": [{"message": {"content": text, **more}}]}))


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (
            Look(RUNNING, OK, MODELS, wanted_hash="aa"),
            {"engine.unit": True, "engine.config": True, "engine.health": True},
        ),
        (Look(RUNNING, OK, wanted_hash="bb"), {"engine.unit": True, "engine.config": False}),
        (Look(AGAIN, DOWN, DOWN, wanted_hash="aa"), {"engine.unit": False, "engine.health": False}),
        (Look(RUNNING, OK, Reply(200, '{"data": [{"id": "other"}]}')), {"engine.unit": True, "engine.health": False}),
        (
            with_chat(Look(RUNNING, OK, MODELS), chat("It is 323.")),
            {"engine.unit": True, "engine.health": True, "engine.chat": True},
        ),
        (
            with_chat(Look(RUNNING, OK, MODELS), chat("322")),
            {"engine.unit": True, "engine.health": True, "engine.chat": False},
        ),
        (
            with_chat(Look(RUNNING, OK, MODELS), chat(None, reasoning="17*19 is 323")),
            {"engine.unit": True, "engine.health": True, "engine.chat": False},
        ),
        (
            with_chat(Look(RUNNING, OK, MODELS), Reply(500, "x")),
            {"engine.unit": True, "engine.health": True, "engine.chat": False},
        ),
    ],
)
def test_checks(look, expected):
    found = checks("spark1", "x.service", "http://192.0.2.11:8000", "m", look)
    assert {check.id: check.ok for check in found} == expected
    assert {check.node for check in found} == {"spark1"}


def test_a_failed_unit_brings_its_journal():
    found = checks("spark2", "x.service", "http://h:1", "m", Look(AGAIN, journal=("first", "last")))
    assert found[0].found == "activating (auto-restart), exit-code, status 1"
    assert found[0].cure.endswith("Its last lines:\n    first\n    last")


DEAD = UnitState("loaded")


@pytest.mark.parametrize(
    ("unit", "rank", "found", "cure"),
    [
        (DEAD, {}, "inactive (dead)", "run the engine role; `journalctl"),
        (
            DEAD,
            {"state": "stopped", "by": "systemctl", "why": "systemd was asked to stop it"},
            "inactive (dead); stopped by systemctl: systemd was asked to stop it",
            "run the engine role; `journalctl",
        ),
        (
            DEAD,
            {"state": "stopped", "by": "group", "why": "spark3 was stopped by systemctl: systemd was asked to stop it"},
            "inactive (dead); ended with its group: spark3 was stopped by systemctl: systemd was asked to stop it",
            "see to the rank that ended first",
        ),
        (
            AGAIN,
            {"state": "failed", "by": "", "why": "its engine ended by itself: signal, status 9"},
            "activating (auto-restart), exit-code, status 1; its engine ended by itself: signal, status 9",
            "run the engine role; `journalctl",
        ),
        # of an earlier run, or not of an end
        (DEAD, {"state": "running", "by": "group", "why": "x"}, "inactive (dead)", "run the engine role"),
        (RUNNING, {"state": "stopped", "by": "group", "why": "x"}, "active (running)", "run the engine role"),
    ],
)
def test_a_rank_that_ended_says_whether_it_was_the_first(unit, rank, found, cure):
    look = with_ending(Look(unit, journal=("last",)), rank)
    check = checks("spark1", "x.service", "http://h:1", "m", look)[0]
    assert check.found == found
    assert check.cure.startswith(cure)
    assert check.cure.endswith("\n    last")


def test_health_names_what_was_asked_and_found():
    found = checks("spark1", "x.service", "http://h:1", "m", Look(RUNNING, DOWN, DOWN))[-1]
    assert found.found == "http://h:1: /health Connection refused, /v1/models Connection refused"
    assert found.expected == "/health status 200, /v1/models with m"


@pytest.mark.parametrize(
    ("answer", "found", "cure"),
    [
        (chat(None, reasoning="I look"), "answer '', only reasoning 'I look'", "it thinks where it was told not to"),
        (chat("322", reasoning="I look"), "answer '322'", "the engine runs but answers wrongly"),
        (Reply(200, '{"choices": []}'), "answer ''", "the engine runs but answers wrongly"),
    ],
)
def test_a_model_that_only_thinks_is_told_from_one_that_is_wrong(answer, found, cure):
    check = checks("spark1", "x.service", "http://h:1", "m", with_chat(Look(RUNNING, OK, MODELS), answer))[-1]
    assert not check.ok
    assert check.found.endswith(found)
    assert check.cure.startswith(cure)


LINES = [
    {"text": "NET/IB", "want": "present", "means": "RDMA is used"},
    {"text": "NET/Socket", "want": "absent", "means": "TCP is used"},
]


@pytest.mark.parametrize(
    ("log", "found", "severity"),
    [
        (["x NET/IB : Using"], "every line that a healthy rank has", "warning"),
        ([], "no 'NET/IB' (RDMA is used)", "warning"),
        (["NET/Socket : Using"], "no 'NET/IB' (RDMA is used); 'NET/Socket' (TCP is used)", "error"),
        (["NET/IB", "NET/Socket"], "'NET/Socket' (TCP is used)", "error"),
    ],
)
def test_lines_of_a_healthy_log(log, found, severity):
    check = log_check("a", "u.service", log, LINES)
    assert (check.id, check.ok, check.found) == ("engine.log", found.startswith("every"), found)
    assert check.severity == severity
    assert check.expected == "'NET/IB' present; 'NET/Socket' absent"


def test_a_missing_line_that_the_profile_requires_is_an_error():
    wanted = [{**LINES[0], "required": True}]
    assert log_check("a", "u.service", ["something else"], wanted).severity == "error"
    assert log_check("a", "u.service", ["NET/IB"], wanted).ok


def test_the_last_state_of_a_wait_has_the_line_that_did_not_come():
    found = checks("spark1", "x.service", "http://h:1", "m", Look(RUNNING, OK, MODELS, line="started"))[-1]
    assert (found.id, found.ok, found.severity) == ("engine.health", False, "error")
    assert found.found == "http://h:1: /health status 200, /v1/models status 200 with m, its log lacks 'started'"
    assert found.expected == "/health status 200, /v1/models with m, 'started' in the log of this run"
    assert "engine_ready_timeout_s" in found.cure and "ready_line" in found.cure
    down = checks("spark1", "x.service", "http://h:1", "m", Look(RUNNING, DOWN, DOWN, line="started"))[-1]
    assert down.cure.startswith("the head answers once every rank has joined")
    had = checks("spark1", "x.service", "http://h:1", "m", Look(RUNNING, OK, MODELS, line="started", lined=True))[-1]
    assert had.ok


@pytest.mark.parametrize(
    ("models", "cure"),
    [
        (Reply(200, '{"data": [{"id": "other"}]}'), "something else answers at http://h:1, or another profile runs"),
        (DOWN, "the head answers once every rank has joined"),
    ],
)
def test_the_cure_of_health_tells_another_model_from_none(models, cure):
    found = checks("spark1", "x.service", "http://h:1", "m", Look(RUNNING, OK, models))
    assert [check.cure.startswith(cure) for check in found if check.id == "engine.health"] == [True]
