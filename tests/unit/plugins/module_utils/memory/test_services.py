from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory import services
from ansible_collections.gb10.ring.plugins.module_utils.memory.services import (
    CLOCK_FILE,
    CLOCK_UNIT,
    EARLYOOM,
    JOURNAL_FILE,
    OOMD,
    PERSISTENCED,
    UPGRADES_FILE,
    State,
    Unit,
    Wanted,
    decide,
)

ON, OFF, STATIC = Unit("enabled", True), Unit("disabled", False), Unit("static", True)
DGX = State(units={EARLYOOM: ON, OOMD: ON, PERSISTENCED: OFF}, target="graphical.target")
SET = State(files=services.files(Wanted()), units={PERSISTENCED: ON}, target="graphical.target")


def steps(state, **wanted):
    return [(step.name, step.on) for step in decide(state, Wanted(**wanted), "/etc").units]


@pytest.mark.parametrize(
    ("state", "wanted", "expected"),
    [
        (DGX, {}, [(PERSISTENCED, True)]),
        (DGX, {"persistence": False}, []),
        (DGX, {"oom_daemon": "none", "persistence": False}, [(EARLYOOM, False), (OOMD, False)]),
        (DGX, {"oom_daemon": "earlyoom", "persistence": False}, [(OOMD, False)]),
        (SET, {"oom_daemon": "none"}, []),
        (SET, {"clock_lock": "300,2200"}, [(CLOCK_UNIT, True)]),
        (replace(SET, units={CLOCK_UNIT: ON}), {"clock_lock": "300,2200"}, []),
        (replace(SET, units={CLOCK_UNIT: ON}), {}, [(CLOCK_UNIT, False)]),
        (replace(SET, units={PERSISTENCED: STATIC}), {}, []),
        (replace(SET, units={PERSISTENCED: Unit("static", False)}), {}, [(PERSISTENCED, True)]),
        (replace(SET, units={EARLYOOM: Unit("enabled", False)}), {"oom_daemon": "none"}, [(EARLYOOM, False)]),
    ],
)
def test_which_units_are_switched(state, wanted, expected):
    assert steps(state, **wanted) == expected


@pytest.mark.parametrize(
    ("state", "wanted", "what"),
    [
        (DGX, {}, ["/etc/" + UPGRADES_FILE, "/etc/" + JOURNAL_FILE, PERSISTENCED]),
        (SET, {}, []),
        (SET, {"hold_upgrades": False}, ["/etc/" + UPGRADES_FILE]),
        (SET, {"headless": True}, ["default target"]),
        (replace(SET, target="multi-user.target"), {"headless": True}, []),
        (SET, {"clock_lock": "300,2200"}, ["/etc/" + CLOCK_FILE, CLOCK_UNIT]),
    ],
)
def test_only_what_differs_changes(state, wanted, what):
    assert [change.what for change in decide(state, Wanted(**wanted), "/etc").plan.changes] == what


def test_upgrades_are_held_exactly_while_the_engine_is_active():
    text = services.files(Wanted())[UPGRADES_FILE]
    assert "ExecCondition=/bin/sh -c '! systemctl is-active --quiet gb10-ring-engine.service'" in text


def test_the_clock_unit_limits_and_lets_go():
    text = services.files(Wanted(clock_lock="300,2200"))[CLOCK_FILE]
    assert "ExecStart=/usr/bin/nvidia-smi -lgc 300,2200\n" in text
    assert "ExecStop=/usr/bin/nvidia-smi -rgc\n" in text
    assert "After=nvidia-persistenced.service\n" in text


@pytest.mark.parametrize(
    ("value", "ok"), [("", True), ("300,2200", True), ("2200", False), ("300, 2200", False), ("a,b", False)]
)
def test_a_clock_limit_is_two_numbers(value, ok):
    assert (services.option_problems(Wanted(clock_lock=value)) == []) is ok


def test_an_oom_daemon_that_is_not_installed_is_a_problem_with_its_cure():
    (problem,) = decide(SET, Wanted(oom_daemon="earlyoom"), "/etc").problems
    assert "sudo apt-get install earlyoom" in problem


ALL = Wanted(oom_daemon="none", headless=True, clock_lock="300,2200")


def test_the_way_back_is_to_what_was_recorded_first():
    planned = decide(DGX, ALL, "/etc")
    record = services.merged({}, planned, DGX)
    assert record["units"] == {
        EARLYOOM: {"enabled": "enabled", "active": True},
        OOMD: {"enabled": "enabled", "active": True},
        PERSISTENCED: {"enabled": "disabled", "active": False},
    }
    done = State(
        files=services.files(ALL),
        units={EARLYOOM: OFF, OOMD: OFF, PERSISTENCED: ON, CLOCK_UNIT: ON},
        target="multi-user.target",
        target_link="/usr/lib/systemd/system/multi-user.target",
    )
    assert decide(done, ALL, "/etc").plan.changes == ()
    assert services.merged(record, decide(done, Wanted(), "/etc"), done)["units"] == record["units"]
    back = services.way_back(record, done, "/etc")
    assert [(step.name, step.on) for step in back.units] == [
        (EARLYOOM, True),
        (OOMD, True),
        (PERSISTENCED, False),
        (CLOCK_UNIT, False),
    ]
    assert [change.after for change in back.files] == ["", "", ""]
    assert (back.target.after, back.target_link, back.notes) == ("graphical.target", "", ())


def test_another_default_target_since_then_stays():
    record = services.merged({}, decide(DGX, ALL, "/etc"), DGX)
    back = services.way_back(
        record, replace(DGX, target="rescue.target", target_link="/usr/lib/systemd/system/rescue.target"), "/etc"
    )
    assert back.target is None
    assert "rescue.target, which gb10.ring did not set" in back.notes[0]


@pytest.mark.parametrize(
    ("state", "wanted", "bad"),
    [
        (
            DGX,
            Wanted(oom_daemon="none", headless=True),
            {"memory.services", "memory.oom_daemon", "memory.persistence", "memory.headless"},
        ),
        (SET, Wanted(), set()),
        (SET, Wanted(oom_daemon="none"), set()),
        (SET, Wanted(oom_daemon="earlyoom"), {"memory.oom_daemon"}),
        (
            replace(SET, files=services.files(ALL), units={CLOCK_UNIT: ON}, clocks=True),
            Wanted(clock_lock="300,2200"),
            set(),
        ),
        (
            replace(SET, files=services.files(ALL), units={CLOCK_UNIT: ON}, clocks=False),
            Wanted(clock_lock="300,2200"),
            {"memory.clock_lock"},
        ),
        (
            replace(SET, files=services.files(ALL), units={CLOCK_UNIT: OFF}, clocks=True),
            Wanted(clock_lock="300,2200"),
            {"memory.clock_lock"},
        ),
    ],
)
def test_checks(state, wanted, bad):
    found = services.checks("spark1", state, wanted, "/etc")
    assert {check.id for check in found if not check.ok} == bad
    assert all(check.node == "spark1" and check.found and check.expected and check.cure for check in found)
