# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.group import (
    ABSENT,
    BY_HAND,
    FAILED,
    LONG_AGO,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    UNKNOWN,
    Action,
    Look,
    Purpose,
    Rank,
    decide,
    follow,
    hear,
    is_ordered,
    parse_intent,
    purpose_of_end,
    running_with,
    silent,
    word,
)

NOW = 1000.0
UP = Look("loaded", "active", "a", main=True, began=900.0)
GOING = Look("loaded", "deactivating", "a", main=True)
KILLED = Look("loaded", "failed", "a", "signal", 9)
LEFT = Look("loaded", "inactive", "a")
MEANT = Purpose(STOPPED, "role", "a test", 5.0)
ON = Rank(1, RUNNING, "a", 900.0, 999.0)
OFF = Rank(1, STOPPED, "a", 500.0, 999.0, "a test", "role")
DEAD = Rank(1, FAILED, "a", 990.0, 999.0, "its engine ended by itself: signal, status 9", incident="i")


@pytest.mark.parametrize(
    ("before", "look", "asked", "after"),
    [
        (Rank(1), Look(), (None, 0), (ABSENT, "", LONG_AGO)),
        (Rank(1), Look("loaded"), (None, 0), (STOPPED, "", LONG_AGO)),
        (Rank(1), UP, (None, 0), (RUNNING, "", 900.0)),
        (OFF, Look("loaded", "activating", "b", began=NOW), (None, 0), (STARTING, "", NOW)),
        (ON._replace(state=STARTING), UP, (None, 0), (RUNNING, "", 900.0)),
        (ON, UP, (None, 0), (RUNNING, "", 900.0)),
        (ON, UP._replace(active="reloading"), (None, 0), (RUNNING, "", 900.0)),
        (ON, UP._replace(main=False), (None, 0), (RUNNING, "", 900.0)),  # systemd has yet to see it
        (ON, KILLED, (None, 0.5), (RUNNING, "", 900.0)),  # journal and guard may yet say that it was meant
        (ON, KILLED, (None, 1.0), (FAILED, "", NOW)),
        (ON, LEFT, (None, 1.0), (FAILED, "", NOW)),  # an engine that leaves with status 0 is gone all the same
        (ON, LEFT, (MEANT, 0), (STOPPED, "role", NOW)),
        (ON, KILLED, (MEANT, 0), (STOPPED, "role", NOW)),
        (ON, GOING, (None, 0), (STOPPING, "systemctl", NOW)),
        (ON, GOING, (MEANT, 0), (STOPPING, "role", NOW)),
        (ON, GOING._replace(result="watchdog"), (None, 1.0), (FAILED, "", NOW)),
        (ON, GOING._replace(main=False, result="exit-code"), (None, 1.0), (FAILED, "", NOW)),
        (ON._replace(state=STOPPING, since=990.0, by="role"), LEFT, (None, 9), (STOPPED, "role", 990.0)),
        (ON._replace(state=STOPPING, since=990.0), LEFT, (MEANT, 0), (STOPPED, "role", 990.0)),
        (DEAD, KILLED, (None, 9), (FAILED, "", 990.0)),
        (DEAD, KILLED, (MEANT, 9), (STOPPED, "role", NOW)),
        (DEAD, LEFT, (None, 9), (FAILED, "", 990.0)),  # reset by hand: nobody has stopped the group
        (OFF._replace(by="group", incident="i"), LEFT, (MEANT, 9), (STOPPED, "role", 500.0)),  # and is to stay so
        (OFF, KILLED, (None, 9), (STOPPED, "role", 500.0)),  # killed while it was being stopped
        (OFF, KILLED._replace(run="b"), (None, 1.0), (FAILED, "", NOW)),  # began and ended between two looks
        (OFF, LEFT, (None, 9), (STOPPED, "role", 500.0)),
        (Rank(1), KILLED, (None, 1.0), (FAILED, "", NOW)),  # the supervisor came up after it
        (DEAD, UP._replace(run="b"), (None, 0), (RUNNING, "", 900.0)),
    ],
)
def test_the_own_rank_after_a_look(before, look, asked, after):
    found = follow(before, look, *asked, NOW)
    assert (found.state, found.by, found.since) == after
    assert (found.rank, found.heard) == (1, NOW)


def test_why_it_failed():
    assert follow(ON, KILLED, None, 1.0, NOW).why == "its engine ended by itself: signal, status 9"
    assert follow(ON, GOING, None, 0.0, NOW).why == BY_HAND


@pytest.mark.parametrize(
    ("intent", "guard", "job", "by"),
    [
        (None, {}, False, None),
        (MEANT, {}, False, None),  # older than this run
        (MEANT._replace(wall=100.0), {}, False, "role"),
        (MEANT._replace(want="started", wall=100.0), {}, False, None),
        (None, {"phase": "stopped", "run": "a"}, False, "guard"),
        (None, {"phase": "stopped", "run": "b"}, False, None),
        (None, {"phase": "serving", "run": "a"}, False, None),
        (None, {}, True, "systemctl"),
        (MEANT._replace(wall=100.0), {}, True, "role"),
    ],
)
def test_who_meant_an_end(intent, guard, job, by):
    found = purpose_of_end(intent, guard, job, "a", began_wall=50.0)
    assert (found and found.by) == by


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({"want": "stopped", "by": "role", "why": "x", "at": 1}, STOPPED),
        ({"want": "started", "at": 1.5}, "started"),
        ({"want": "gone", "at": 1}, None),
        ({"want": "stopped"}, None),
        ({}, None),
    ],
)
def test_what_an_intent_says(values, want):
    found = parse_intent(values)
    assert (found and found.want) == want


def test_a_word_travels_with_its_age():
    rank = Rank(2, FAILED, "a", 990.0, 999.0, "w" * 500, incident="i")
    said = word(rank, NOW)
    assert said == {"state": FAILED, "run": "a", "age": 10.0, "why": "w" * 200, "incident": "i"}
    heard = hear(2, said, 50.0)
    assert heard == Rank(2, FAILED, "a", 40.0, 50.0, "w" * 200, "", "i")


@pytest.mark.parametrize(
    "values", [{}, {"state": "happy", "age": 1}, {"state": RUNNING}, {"state": RUNNING, "age": "1"}]
)
def test_a_word_without_sense_is_none(values):
    assert hear(2, values, NOW) is None


def test_a_silent_neighbour_is_unknown_once():
    rank = Rank(2, RUNNING, "a", 900.0, 980.0)
    assert silent(rank, NOW, 30) == rank
    lost = silent(rank, 1010.0, 30)
    assert (lost.state, lost.why, lost.run) == (UNKNOWN, "not heard for 30 s, last running", "a")
    assert silent(lost, 2000.0, 30) == lost


ALL = frozenset({"b"})


@pytest.mark.parametrize(
    ("me", "other", "ran_with", "action"),
    [
        (ON, ON, ALL, None),
        (ON, DEAD, ALL, Action(f"b: {DEAD.why}", "i")),
        (ON._replace(state=STARTING), DEAD, frozenset(), Action(f"b: {DEAD.why}", "i")),
        (ON._replace(since=999.5), DEAD, ALL, None),  # last heard before this run: started without that node
        (OFF, DEAD, ALL, None),
        (DEAD, DEAD, ALL, None),
        (ON, Rank(2, UNKNOWN), frozenset(), None),  # not heard yet: it may still be booting
        (
            ON,
            Rank(2, UNKNOWN, why="not heard for 30 s, last running"),
            ALL,
            Action("b was lost: not heard for 30 s, last running"),
        ),
        (ON, OFF, ALL, None),  # stopped before this run: its start is yet to come
        (ON, OFF._replace(since=900.5), ALL, None),
        (ON, OFF._replace(since=950.0), ALL, Action("b was stopped by role: a test", deliberate=True)),
        (ON, OFF._replace(state=STOPPING, since=950.0), ALL, Action("b was stopped by role: a test", deliberate=True)),
        (ON, OFF._replace(since=950.0, by="group", why="c: x", incident="i"), ALL, Action("c: x", "i")),
        (ON, Rank(2, ABSENT, since=950.0), ALL, None),
    ],
)
def test_when_the_own_rank_has_to_end(me, other, ran_with, action):
    assert decide(me, {"b": other}, ran_with) == action


BOOTED = Rank(1, STARTING, "b", 1000.0, 1020.0)
LONE = "b was {} before this rank was started alone, as at a boot. To start the group: `gb10-ring-group start`, or site.yml"


@pytest.mark.parametrize(
    ("other", "ordered", "why"),
    [
        (OFF._replace(heard=1010.0), False, LONE.format("stopped")),
        (
            OFF._replace(heard=1010.0, since=LONG_AGO),
            False,
            LONE.format("stopped"),
        ),  # since before its supervisor started
        (DEAD._replace(heard=1009.0), False, ""),  # nor an incident of this run
        (DEAD._replace(heard=1010.0), False, LONE.format("failed")),
        (OFF._replace(heard=1010.0, by="group", incident="i"), False, LONE.format("stopped")),
        (OFF._replace(heard=1010.0), True, ""),  # the others' turns are yet to come
        (OFF._replace(heard=1009.0), False, ""),  # it may be going down, for a boot of its own
        (OFF._replace(heard=1010.0, waits=True), False, ""),  # it boots too
        (Rank(2, FAILED, "", LONG_AGO, 1010.0, waits=True), False, ""),
        (Rank(2, UNKNOWN), False, ""),  # it is not up yet
        (Rank(2, ABSENT, since=LONG_AGO, heard=1010.0), False, ""),
        (Rank(2, STARTING, "c", 900.0, 1010.0), False, ""),
        (Rank(2, RUNNING, "c", 900.0, 1010.0), False, ""),
    ],
)
def test_a_rank_that_a_boot_began_beside_one_that_stays_down_ends(other, ordered, why):
    assert decide(BOOTED, {"b": other}, frozenset(), ordered) == (Action(why, deliberate=True) if why else None)
    assert decide(BOOTED._replace(state=RUNNING), {"b": other}, frozenset(), ordered) == (
        Action(why, deliberate=True) if why else None
    )


@pytest.mark.parametrize(
    ("intent", "ordered"), [(None, False), (MEANT, False), (Purpose("started", "a person", "again"), True)]
)
def test_what_began_a_run(intent, ordered):
    assert is_ordered(intent) is ordered


def test_a_rank_that_systemd_is_about_to_start_says_so():
    queued = Look("loaded", "inactive", queued=True)
    booting = follow(Rank(2), queued, None, 0.0, NOW)
    assert (booting.state, booting.waits) == (STOPPED, True)
    said = word(booting, NOW)
    assert said["waits"] is True
    assert hear(2, said, NOW).waits
    assert "waits" not in word(follow(booting, queued._replace(queued=False), None, 0.0, NOW), NOW)
    assert not follow(booting, UP._replace(queued=True), None, 0.0, NOW).waits


def test_a_node_that_has_just_booted_brings_no_news():
    """Its clock began a moment ago, long after the others' ranks; they wait for it."""
    booted = follow(Rank(2), Look("loaded"), None, 0.0, now=20.0)
    heard = hear(2, word(booted, now=20.5), NOW)
    assert heard.state == STOPPED
    assert decide(ON, {"b": heard}, frozenset()) is None
    assert decide(ON, {"b": heard}, ALL) is None


def test_a_group_that_was_started_without_a_lost_node_goes_on():
    gone = Rank(2, RUNNING, "a", 900.0, 989.0)  # its last word came a second before the others were started again
    me = ON._replace(state=STARTING, run="b", since=990.0)
    ran_with = running_with(me, {"b": gone}, frozenset())
    assert ran_with == frozenset()
    lost = silent(gone, 1020.0, 30.0)
    assert lost.state == UNKNOWN
    assert decide(me, {"b": lost}, running_with(me, {"b": lost}, ran_with)) is None
    back = gone._replace(run="c", since=1100.0, heard=1101.0)
    ran_with = running_with(me, {"b": back}, ran_with)
    assert ran_with == ALL
    assert decide(me, {"b": silent(back, 1140.0, 30.0)}, ran_with) == Action(
        "b was lost: not heard for 39 s, last running"
    )


def test_a_failure_comes_before_a_stop_that_follows_from_it():
    others = {"b": OFF._replace(since=950.0), "c": DEAD}
    assert decide(ON, others, frozenset()) == Action(f"c: {DEAD.why}", "i")


def test_who_ran_at_the_same_time():
    others = {"b": ON, "c": OFF}
    assert running_with(ON, others, frozenset()) == {"b"}
    assert running_with(ON, {"b": Rank(2, UNKNOWN)}, frozenset({"b"})) == {"b"}
    assert running_with(OFF, others, frozenset({"b"})) == frozenset()
