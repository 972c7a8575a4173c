# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.group import (
    FAILED,
    RUNNING,
    STARTING,
    STOPPED,
    UNKNOWN,
    Rank,
)
from ansible_collections.gb10.ring.plugins.module_utils.engine.group_order import (
    Order,
    Progress,
    Tell,
    Times,
    parse,
    report,
    step,
)

TIMES = Times(10.0, 20.0)
NODES = ("a", "b", "c")


class Group:
    """Three nodes that do as they are told one step later; deaf: one that does not, fails: one that ends when it is started."""

    def __init__(self, state: str, deaf: str = "", fails: str = "") -> None:
        self.ranks = {name: Rank(number, state) for number, name in enumerate(NODES)}
        self.deaf, self.fails = deaf, fails
        self.told: list[Tell] = []
        self.now = 0.0

    def carry_out(self, do: str) -> Progress:
        progress, due = Progress(Order("1", do, "a test", "why")), ()
        while progress.state == "doing" and self.now < 100:
            self.now += 1.0
            for tell in due:
                if tell.node != self.deaf:
                    state = FAILED if tell.node == self.fails and tell.do == "start" else RUNNING
                    self.ranks[tell.node] = self.ranks[tell.node]._replace(
                        state=STOPPED if tell.do == "stop" else state
                    )
            self.ranks = {name: rank._replace(heard=self.now) for name, rank in self.ranks.items()}
            progress, due = step(progress, self.ranks, self.now, TIMES)
            self.told += due
        return progress


STOPS = [Tell(name, "stop") for name in NODES]


def test_a_stop_is_of_everybody_at_once():
    group = Group(RUNNING)
    assert group.carry_out("stop")[-2:] == ("done", "every rank is stopped")
    assert group.told == STOPS


@pytest.mark.parametrize("state", [RUNNING, STOPPED, FAILED, STARTING])
def test_a_start_stops_first_and_goes_from_the_highest_rank_to_the_head(state):
    group = Group(state)
    assert group.carry_out("start")[-2:] == ("done", "every rank runs")
    assert group.told == [*STOPS, Tell("c", "start"), Tell("b", "start"), Tell("a", "start")]


@pytest.mark.parametrize(
    ("group", "do", "text", "told"),
    [
        (Group(RUNNING, deaf="b"), "stop", "not stopped within 10 s: b is running", 3),
        (Group(UNKNOWN, deaf="c"), "stop", "not stopped within 10 s: c is unknown", 3),
        (Group(STOPPED, deaf="c"), "start", "not running within 20 s: c is stopped", 4),
        (Group(STOPPED, fails="c"), "start", "c is failed", 4),
        (Group(STOPPED, fails="b"), "start", "b is failed", 5),
        (Group(STOPPED, fails="a"), "start", "a is failed", 6),
    ],
)
def test_what_goes_wrong_ends_it_with_the_last_state(group, do, text, told):
    progress = group.carry_out(do)
    assert (progress.state, progress.text) == ("failed", text)
    assert len(group.told) == told
    assert step(progress, group.ranks, 1000.0, TIMES) == (progress, ())
    assert report(progress) == {"id": "1", "do": do, "state": "failed", "text": text}


def test_what_was_heard_before_the_order_does_not_count():
    progress, _told = step(Progress(Order("1", "stop", "x", "y")), {"a": Rank(0, STOPPED, heard=5.0)}, 6.0, TIMES)
    assert step(progress, {"a": Rank(0, STOPPED, heard=5.9)}, 6.5, TIMES)[0].state == "doing"
    assert step(progress, {"a": Rank(0, STOPPED, heard=6.1)}, 6.5, TIMES)[0].state == "done"


def test_a_rank_that_goes_again_is_not_taken_for_running():
    progress = Progress(Order("1", "start", "x", "y"), "start", False, 0.0, ())
    ranks = {"a": Rank(0, RUNNING), "b": Rank(1, STOPPED)}
    assert step(progress, ranks, 1.0, TIMES)[0].state == "doing"
    assert step(progress, ranks, 21.0, TIMES)[0].text == "b is stopped"


@pytest.mark.parametrize(
    ("values", "good"),
    [
        ({"id": "1", "do": "stop"}, True),
        ({"id": "1", "do": "start", "by": "x", "reason": "y", "incident": "z"}, True),
        ({"id": "1", "do": "dance"}, False),
        ({"do": "stop"}, False),
        ({}, False),
    ],
)
def test_what_is_an_order(values, good):
    assert (parse(values) is not None) is good
