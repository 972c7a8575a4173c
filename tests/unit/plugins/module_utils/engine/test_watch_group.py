# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.watch_group import Group, group, told

INCIDENT = {"id": "i1", "node": "spark2", "why": "its engine ended by itself", "at": 200.0, "logs": []}
STARTED = {"want": "started", "by": "role", "why": "", "at": 100.0}


def status(*states, at=1000.0, **more):
    ranks = {
        f"spark{number}": {"rank": number - 1, "state": state, "run": f"run{number}", "why": "it ended"}
        for number, state in enumerate(states, start=1)
    }
    return {"at": at, "node": "spark1", "ranks": ranks, "stopped": None, "incident": None, "order": None, **more}


def stopped(by="role", at=300.0):
    return {"by": by, "why": "restart asked for", "at": at}


RUNNING = status("running", "running", "running")
HELD = Group(hold="stopped by role: restart asked for")


@pytest.mark.parametrize(
    ("seen", "intent", "expected"),
    [
        (RUNNING, STARTED, Group(run="run1")),
        (RUNNING, {}, Group(run="run1")),
        ({**RUNNING, "incident": INCIDENT}, STARTED, Group(run="run1")),
        ({**RUNNING, "stopped": stopped()}, STARTED, Group(run="run1")),
        (status("starting", "running", "running"), STARTED, Group(run="run1")),
        (status("stopped", "stopped", "stopped", stopped=stopped()), {}, HELD),
        (status("stopped", "stopped", "stopped", stopped=stopped(), incident=INCIDENT), {}, HELD),
        (status("running", "stopping", "running", stopped=stopped()), STARTED, HELD._replace(run="run1")),
        (
            status("stopped", "stopped", "stopped", stopped=stopped(at=100.0), incident=INCIDENT),
            {},
            Group(broken="spark2: its engine ended by itself", incident="i1"),
        ),
        (
            status("running", "failed", "running", incident=INCIDENT),
            STARTED,
            Group("run1", broken="spark2: its engine ended by itself", incident="i1"),
        ),
        (status("running", "failed", "running"), STARTED, Group("run1", broken="spark2: it ended")),
        (status("stopped", "stopped", "stopped"), {}, Group()),
        (
            status("running", "unknown", "unknown", incident=INCIDENT),
            STARTED,
            Group("run1", broken="spark2: its engine ended by itself", incident="i1", missing="spark2, spark3"),
        ),
        # somebody starts the group after an incident
        (status("stopped", "stopped", "running", incident=INCIDENT), {**STARTED, "at": 250.0}, Group()),
        # the watchdog's own stops and starts are no orders of a person
        (
            status("stopped", "stopped", "stopped", stopped=stopped("watch"), incident=INCIDENT),
            {**STARTED, "by": "watch", "at": 300.0},
            Group(broken="spark2: its engine ended by itself", incident="i1"),
        ),
        # an intent counts before the supervisor has seen it
        (
            RUNNING,
            {"want": "stopped", "by": "role", "why": "restart asked for", "at": 300.0},
            HELD._replace(run="run1"),
        ),
        (
            {**RUNNING, "incident": INCIDENT},
            {"want": "stopped", "by": "group", "why": "spark2 ended", "at": 300.0, "incident": "i1"},
            Group("run1"),
        ),
        ({}, STARTED, Group(lost="the supervisor (gb10-ring-group.service) has no status")),
        (
            {**RUNNING, "at": 980.0},
            STARTED,
            Group(lost="the supervisor (gb10-ring-group.service) has said nothing for more than 15 s"),
        ),
        ({"at": 1000.0, "node": "spark1", "ranks": None, "incident": 3}, {"want": 1}, Group()),
    ],
)
def test_what_the_supervisor_says_comes_to(seen, intent, expected):
    assert group(seen, intent, "", 1000.0) == expected


@pytest.mark.parametrize(("order", "state"), [("o1", ("doing", "telling")), ("o2", ("", "")), ("", ("", ""))])
def test_only_the_own_order_counts(order, state):
    said = {**RUNNING, "order": {"id": "o1", "do": "stop", "state": "doing", "text": "telling"}}
    seen = group(said, STARTED, order, 1000.0)
    assert (seen.order, seen.order_text) == state


@pytest.mark.parametrize(
    ("incident", "text"),
    [
        (INCIDENT, "spark2: its engine ended by itself"),
        ({"node": "spark2", "why": "spark2: it ended"}, "spark2: it ended"),
        ({"node": "spark2", "why": "spark2 was lost: not heard"}, "spark2 was lost: not heard"),
        ({"node": "", "why": "failed 3 times: no answer"}, "failed 3 times: no answer"),
        ({}, "a rank ended by itself"),
    ],
)
def test_an_incident_in_words(incident, text):
    assert told(incident) == text
