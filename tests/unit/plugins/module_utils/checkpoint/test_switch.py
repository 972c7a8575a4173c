# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import switch
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.switch import (
    Record,
    Standing,
    SwitchError,
    check,
    lost_way_back,
    needs_switch,
    origin_of,
    parse,
    plan_of,
    render,
    state_text,
    step,
    target_of_rollback,
)

A, B, C = "rev-a", "rev-b", "rev-c"
BOTH = frozenset({A, B})


@pytest.mark.parametrize(
    ("phase", "record", "current", "origin", "after", "link"),
    [
        ("now", Record(), "", None, Record(B), B),
        ("now", Record(), A, None, Record(B, A), B),
        ("now", Record(B, A), B, None, Record(B, A), B),
        # site.yml ends a switch that was under way: what was active before it is the one before
        ("now", Record(A, C, B), B, None, Record(B, A), B),
        ("prepare", Record(A, C, "", 4.0), A, None, Record(A, C, B, 4.0), A),
        ("prepare", Record(), "", None, Record("", "", B), ""),
        ("prepare", Record(B, A), B, A, Record(A, A, B), B),
        ("prepare", Record(A, C, B), B, None, Record(A, C, B), B),
        ("commit", Record(A, C, B), A, None, Record(A, C, B), B),
        ("commit", Record(A, C, B), B, None, Record(A, C, B), B),
        ("finish", Record(A, C, B), B, None, Record(B, A), B),
        ("finish", Record(B, A, B), B, None, Record(B, A), B),
        ("finish", Record(B, A), B, None, Record(B, A), B),
        ("revert", Record(A, C, B), B, None, Record(A, C), A),
        ("revert", Record(A, C, B), A, None, Record(A, C), A),
        ("revert", Record("", "", B), B, None, Record(), B),
        ("revert", Record(A, C), A, None, Record(A, C), A),
        # nothing to go back to: what was active is the one before all the same, and stays what it was if nothing moved
        ("prepare", Record(A, C), A, "", Record("", C, B, left=A), A),
        ("prepare", Record("", C, B, left=A), B, "", Record("", C, B, left=A), B),
        ("prepare", Record(A, C, "other"), "other", "", Record("", C, B, left=A), "other"),
        ("prepare", Record("", C, B, left=A), A, A, Record(A, C, B), A),
        ("finish", Record("", C, B, left=A), B, None, Record(B, A), B),
        ("finish", Record("", A, B, left=B), B, None, Record(B, A), B),
        ("now", Record("", C, B, left=A), B, None, Record(B, A), B),
        ("revert", Record("", C, B, left=A), A, None, Record("", C), A),
        ("revert", Record("", C, B, left=A), B, None, Record("", A), B),
    ],
)
def test_what_a_phase_leaves(phase, record, current, origin, after, link):  # noqa: PLR0917 - columns of the table
    assert step(phase, record, current, B, origin) == switch.Step(after, link)


@pytest.mark.parametrize(
    ("phase", "record", "current", "text"),
    [
        ("commit", Record(A), A, "rev-b was not prepared here"),
        ("commit", Record(A, "", C), A, "rev-b was not prepared here"),
        ("finish", Record(A, "", B), A, "current is rev-a, not rev-b"),
        ("finish", Record(), "", "current is absent"),
    ],
)
def test_phases_that_do_not_follow(phase, record, current, text):
    with pytest.raises(SwitchError, match=text):
        step(phase, record, current, B)


def test_a_switch_that_stops_anywhere_can_be_finished_or_taken_back_and_ends_alike():
    """Every combination of how far three nodes came, then one whole run forward, or the way back."""
    stages = [(Record(A, C), A), (Record(A, C, B), A), (Record(A, C, B), B), (Record(B, A), B)]
    for states in itertools.product(stages, repeat=3):
        standings = tuple(Standing(f"n{i}", current, record, BOTH) for i, (record, current) in enumerate(states))
        origin = origin_of(standings)
        ended = []
        for record, current in states:
            made = switch.Step(record, current)
            for phase in ("prepare", "commit", "finish"):
                made = step(phase, made.record, made.link, B, origin)
            ended.append(made)
        assert {made.link for made in ended} == {B}
        assert {made.record.target for made in ended} == {""}
        backs = []
        for record, current in states:
            made = step("prepare", record, current, B, origin)
            backs.append(step("revert", made.record, step("commit", made.record, made.link, B).link, B).link)
        assert backs == [origin] * 3


def test_the_record_is_read_back():
    for record in (Record(A, C, B, 3.5), Record("", C, B, left=A)):
        assert parse(render(record), "x") == record
    before = '{"active": "rev-a", "previous": "", "target": "", "downtime_s": null}'
    assert parse(before, "x") == Record(A)
    assert parse(None, "x") == parse("", "x") == Record()
    for torn in ("{", "[]", '{"active": "a"}', '{"active": "", "previous": "", "target": "", "downtime_s": "x"}'):
        with pytest.raises(SwitchError, match=r"/x/switch.json is not a record of gb10.ring .*move it away"):
            parse(torn, "/x/switch.json")


def test_the_plan_shows_link_and_record_as_far_as_they_change():
    made = step("now", Record(), "", B)
    plan = plan_of(made, Record(), "", "/x/current", "/x/switch.json")
    assert [(change.what, change.before) for change in plan.changes] == [("/x/current", ""), ("/x/switch.json", "")]
    assert plan.changes[0].after == "revisions/rev-b"
    assert not plan_of(made, made.record, B, "/x/current", "/x/switch.json").changed


@pytest.mark.parametrize(
    ("record", "current", "ok", "text"),
    [
        (Record(), "", True, "no revision is active"),
        (Record(B, A), B, True, "revision rev-b is active, rev-a before it"),
        (Record(A, C, B), A, False, "revision rev-a is active, the switch from rev-a to rev-b is prepared"),
        (Record(A, C, B), B, False, "switched from rev-a to rev-b, not accepted yet"),
        (Record(B, A), A, False, "but the last switch ended with rev-b"),
    ],
)
def test_where_a_node_is(record, current, ok, text):
    found = check("spark1", record, current)
    assert found.ok is ok and text in found.found and "restage.yml" in found.cure
    assert state_text(record, current) in found.found


def test_a_replacement_in_place_that_did_not_end_is_told_first():
    found = check("spark1", Record(A), A, "revision rev-a is being replaced")
    assert not found.ok and found.found == "revision rev-a is being replaced"


@pytest.mark.parametrize(
    ("standings", "origin"),
    [
        ([(A, Record(), {A})] * 3, A),
        ([(A, Record(), {A, B})] * 2 + [(B, Record(), {A, B})], A),
        ([(A, Record(), {A, B})] * 2 + [(B, Record(), {B})], B),
        ([(A, Record(), {A})] * 2 + [("", Record(), set())], ""),
        ([(B, Record(A, C, B), {A, B})] + [(B, Record(B, A), {A, B})] * 2, A),
        ([(B, Record(A, C, B), {B})] * 3, ""),
        ([], ""),
    ],
)
def test_what_a_group_goes_back_to(standings, origin):
    made = tuple(
        Standing(f"n{i}", current, record, frozenset(whole)) for i, (current, record, whole) in enumerate(standings)
    )
    assert origin_of(made) == origin


def test_a_link_that_was_moved_without_the_engines_does_not_hide_what_they_serve():
    moved = tuple(Standing(f"n{i}", B, Record(B, A), BOTH, serves=A) for i in range(3))
    assert origin_of(moved) == A
    assert origin_of((*moved[:2], Standing("n2", B, Record(B, A), BOTH, serves=B))) == B
    assert origin_of(tuple(Standing("n", B, Record(), frozenset({B}), serves="gone") for _index in range(2))) == B


WHOLE = Standing("n0", A, Record(A, C), frozenset({A, C}), serves=A)
EDITED = Standing("n1", A, Record(A, C), frozenset({C}), serves=A, damaged={A: "x (missing)"})


@pytest.mark.parametrize(
    ("standings", "wanted", "lost"),
    [
        ((WHOLE, EDITED), B, {"n1": "revision rev-a: x (missing)"}),
        ((WHOLE, replace(EDITED, damaged={}, unfit={A: "rows of 4"})), B, {"n1": "revision rev-a: rows of 4"}),
        # prepared, and killed then
        ((replace(WHOLE, record=Record(A, C, B)), EDITED), B, {"n1": "revision rev-a: x (missing)"}),
        ((WHOLE, WHOLE), B, {}),
        ((WHOLE, EDITED), A, {}),  # it is being repaired
        ((Standing("n0"), Standing("n1")), B, {}),  # the first activation
        ((replace(WHOLE, current=B), EDITED), B, {}),  # a killed site.yml
        ((WHOLE, replace(EDITED, current="")), B, {}),
        ((WHOLE, replace(EDITED, damaged={})), B, {}),  # given up in place, so nothing tells of it
        # something else is served, and whole: the group goes back to that
        (tuple(replace(one, current=A, serves=C) for one in (WHOLE, EDITED)), B, {}),
    ],
)
def test_what_is_active_everywhere_and_no_way_back_any_more(standings, wanted, lost):
    assert lost_way_back(standings, wanted) == lost


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (Standing("n", B), None),
        (Standing("n", B, serves=B, healthy=True), None),
        (Standing("n", A), "revision rev-a is active"),
        (Standing("n"), "revision none is active"),
        (Standing("n", B, Record(A, "", B)), "switched from rev-a to rev-b"),
        (Standing("n", B, serves=B, healthy=False), "does not serve as its unit says"),
        (Standing("n", B, serves=A, healthy=True), "serves revision rev-a"),
    ],
)
def test_why_a_group_switches(standing, reason):
    reasons = needs_switch((standing,), B)
    assert reasons == [] if reason is None else reason in reasons[0]


@pytest.mark.parametrize(
    ("standings", "named", "revision", "problem"),
    [
        ([(B, Record(B, A))] * 2, "", A, ""),
        ([(B, Record(B, A))] * 2, B, B, ""),
        ([(B, Record(B))] * 2, "", "", "no revision is recorded as the one before"),
        ([(B, Record(B, A)), (B, Record(B, C))], "", "", "nodes differ"),
        ([(B, Record(B, C))] * 2, "", "", r"rev-c is not there whole on n0, n1; on all nodes there are rev-a, rev-b"),
        ([(B, Record(A, C, B)), (A, Record(A, C, B))], "", A, ""),
        ([(B, Record(A, C, B)), (B, Record(B, A))], "", A, ""),
    ],
)
def test_where_rolling_back_goes(standings, named, revision, problem):
    made = tuple(Standing(f"n{i}", current, record, BOTH) for i, (current, record) in enumerate(standings))
    found = target_of_rollback(made, named)
    assert found[0] == revision and (problem in found[1] if problem else found[1] == "")


def test_a_revision_with_the_rows_of_another_group_is_not_gone_back_to():
    why = {A: "it has the rows of rank 0 of 4"}
    standings = (Standing("n0", B, Record(B, A), frozenset({B}), unfit=why), Standing("n1", B, Record(B, A), BOTH))
    found = target_of_rollback(standings, "")
    assert found == ("", f"revision {A} cannot be served by this group: n0: it has the rows of rank 0 of 4")
    assert origin_of((replace(standings[0], current=A), replace(standings[1], current=A))) == ""


def test_a_standing_comes_from_what_a_node_said():
    said = {
        "current": B,
        "record": {"active": B, "previous": A, "target": "", "downtime_s": None},
        "complete": [A, B],
        "unfit": {C: "why"},
        "damaged": {"rev-d": "x (missing)"},
        "serves": B,
    }
    made = Standing("n", B, Record(B, A), BOTH, B, unfit={C: "why"}, damaged={"rev-d": "x (missing)"})
    assert Standing.from_dict("n", said) == made
    assert Standing.from_dict("n", {}) == Standing("n")
