# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.outcome import Ended, all_back, text
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.restage import Node, decide, roll_back
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.switch import Record, Standing
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check

A, B = "rev-a", "rev-b"
NONE = {"files": 0, "bytes": 0}
KEPT = {"fetch": NONE, "link": NONE, "staged": NONE, "keep": {"files": 54, "bytes": 900}, "reused": NONE}
NEW = {
    **KEPT,
    "fetch": {"files": 3, "bytes": 300},
    "keep": NONE,
    "link": {"files": 51, "bytes": 600},
    "reused": {"files": 1, "bytes": 200},
}
BUDGET = {"used": 1000, "after": 1300, "size": 2000}


SETTLED = Record(A)


def node(name="n0", current=A, summary=None, record=SETTLED, **more):
    summary = summary or NEW
    complete = frozenset({A, B}) if summary is KEPT else frozenset({A})
    standing = Standing(name, current, record, complete, serves=current, healthy=True)
    return Node(**{"standing": standing, "summary": summary, "budget": BUDGET, "frees": 50, **more})


SERVED = node(current=B, summary=KEPT, record=Record(B, A))


def test_nothing_to_do():
    made = decide([SERVED, SERVED], B)
    assert (made.stage, made.switch, made.refusal) == (False, False, "")
    assert made.text() == "all nodes serve revision rev-b; nothing to do"
    assert [row["downtime"] for row in made.rows] == ["none", "none"]


def test_an_update_is_staged_and_switched_to_with_a_way_back():
    made = decide([node("n0"), node("n1", record=Record(A, downtime_s=6.25))], B)
    assert (made.stage, made.switch, made.origin, made.in_place) == (True, True, A, ())
    assert (
        made.text() == "stage revision rev-b beside what is served; switch all nodes to rev-b, on failure back to rev-a"
    )
    assert made.rows[0] == {
        "node": "n0",
        "reused": "800 B",
        "fetched": "100 B",
        "freed": "50 B",
        "disk before": "1.0 kB of 2.0 kB",
        "disk after": "1.2 kB",
        "downtime": "6.2 s last time",
        "verdict": "stage",
    }


def test_staged_already_it_is_only_switched_to():
    made = decide([node(summary=KEPT)], B)
    assert (made.stage, made.switch, made.origin) == (False, True, A)
    assert made.rows[0]["downtime"] == "not measured yet"


@pytest.mark.parametrize(
    "summary", [{**KEPT, "link": {"files": 1, "bytes": 5}}, {**KEPT, "staged": {"files": 1, "bytes": 0}}]
)
def test_deriving_and_taking_over_is_staging_too(summary):
    assert decide([replace(SERVED, summary=summary)], B).stage


def test_an_engine_that_does_not_serve_is_started_again():
    ill = replace(SERVED, standing=replace(SERVED.standing, healthy=False))
    made = decide([ill, SERVED], B)
    assert (made.stage, made.switch, made.origin) == (False, True, B)
    assert made.text() == "start all nodes again with revision rev-b"


def test_in_place_there_is_nothing_to_go_back_to():
    held = {"old": A, "files": ["x"], "frees": 300, "peak": 1100, "after": 1000, "limit": 1200, "ok": True}
    made = decide([node("n0", in_place=held), node("n1")], B)
    assert (made.in_place, made.origin) == (("n0",), "")
    assert "the group is stopped, then n0 replace the old revision file by file" in made.text()
    assert "n0: 1 file of revision rev-a are replaced (x); the manifest is kept as manifests/rev-a.json" in made.text()
    assert (made.rows[0]["verdict"], made.rows[0]["freed"], made.rows[0]["disk after"]) == (
        "in place",
        "300 B",
        "1.0 kB",
    )


def test_files_that_are_lost_are_named_once_for_nodes_that_lose_the_same():
    held = {"old": A, "files": ["x", "y"], "dropped": ["rev-0"], "after": 1000}
    rows = {"rows": 9, "row_files": 2, "row_paths": ("s1", "s2"), "shares": "/srv/rows", "manifests": "/c/manifests"}
    nodes = [node("n0", in_place=held), node("n1", in_place=held), node("n2", **rows), node("n3")]
    made = decide(nodes, B, consent=True)
    assert made.given_up == (
        "n0, n1: revision rev-0 is deleted first, 2 files of revision rev-a are replaced (x, y); the manifest is kept as "
        "manifests/rev-a.json",
        "n2: 2 files of Engram rows of revision rev-a in /srv/rows are replaced (s1, s2); the manifest is kept as "
        "/c/manifests/rev-a.json",
    )
    assert all(text in made.text() for text in made.given_up)
    assert decide([node("n3")], B).given_up == ()


def test_refusals_of_all_nodes_come_together():
    bad = Check("checkpoint.budget", "n0", False, "too much", "less", "free 1 B").to_dict()
    other = {**bad, "node": "n1", "severity": "warning"}
    made = decide([node("n0", checks=[bad]), node("n1", checks=[other])], B)
    assert made.text() == (
        "nothing was changed:\n- n0: checkpoint.budget error: found too much, expected less. Cure: free 1 B"
    )
    assert [row["verdict"] for row in made.rows] == ["refused", "stage"]


EDITED = replace(
    node("n1"),
    standing=replace(node("n1").standing, complete=frozenset({"rev-z"}), damaged={A: "config.json (missing)"}),
)


def test_a_damaged_active_revision_is_repaired_before_another_one_or_given_up_with_consent():
    made = decide([node("n0"), EDITED], B)
    assert "n1: checkpoint.way_back error: found revision rev-a: config.json (missing); it is active" in made.refusal
    assert "n0" not in made.refusal and "checkpoint_in_place to true" in made.refusal
    made = decide([node("n0"), EDITED], B, consent=True)
    assert (made.refusal, made.origin, made.in_place, made.switch) == ("", "", (), True)
    assert "with nothing to go back to (n1: revision rev-a: config.json (missing))" in made.text()
    repaired = decide([node("n0"), EDITED], A)
    assert (repaired.refusal, repaired.stage, repaired.switch) == ("", True, False)


def test_rows_of_another_revision_in_a_shared_directory_ask_for_no_consent_once_more():
    """A run with consent that was killed behind its rows."""
    unfit = replace(EDITED.standing, damaged={}, unfit={A: "/engram holds rows of rev-b"})
    assert decide([replace(EDITED, standing=unfit, shares="/engram"), node("n0")], B).refusal == ""
    assert decide([replace(EDITED, standing=unfit), node("n0")], B).refusal
    assert decide([replace(EDITED, shares="/engram"), node("n0")], B).refusal


def test_rolling_back():
    made = roll_back([SERVED, SERVED], "")
    assert (made.revision, made.origin, made.switch, made.stage) == (A, B, True, False)
    assert made.text() == "switch all nodes to rev-a, on failure back to rev-b"
    assert not roll_back([SERVED], B).switch
    assert "rev-x is not there whole on n0" in roll_back([SERVED], "rev-x").refusal


def test_rolling_back_amid_a_switch_does_not_go_back_into_it():
    half = node(current=B, summary=KEPT, record=Record(A, "", B))
    assert (roll_back([half, SERVED], "").revision, roll_back([half, SERVED], "").origin) == (A, "")


@pytest.mark.parametrize(
    ("ended", "origin", "back", "said"),
    [
        (
            [Ended("n0", "boom", True, True), Ended("n1", "", True, True)],
            A,
            True,
            ["- n0: boom", "back at revision rev-a and were accepted"],
        ),
        ([Ended("n0", "boom", True, True), Ended("n1")], A, False, ["- n1: it does not answer", "n1 did not answer"]),
        (
            [Ended("n0", "boom", True), Ended("n1", "", True)],
            A,
            True,
            ["the group did not come up with it", "rollback.yml"],
        ),
        ([Ended("n0", "boom", True, True)], "", True, ["no revision to go back to", "the group is stopped"]),
        (
            [Ended("n0", "boom", True, True), Ended("n1", "", True, True, running="does not end")],
            A,
            False,
            [
                "- n1: its engine could not be stopped: does not end",
                "On n1 the engine could not be stopped and may still run, so nothing was started. All nodes are back at revision rev-a.",
            ],
        ),
        (
            [Ended("n0", "boom", True, running="does not end"), Ended("n1"), Ended("n2", stays="no")],
            A,
            False,
            ["- n1: it does not answer", "- n2: no", "On n0 the engine", "n2 cannot go back to revision rev-a. Cure"],
        ),
        (
            [Ended("n0", "", True, running="does not end"), Ended("n1", "", True)],
            "",
            False,
            ["nothing was started. There was no revision to go back to on all nodes. Cure"],
        ),
        (
            [Ended("n0", "boom"), Ended("n1")],
            A,
            False,
            ["- n0: boom", "No node was asked to go back, and nothing was started"],
        ),
    ],
)
def test_what_is_said_of_a_switch_that_failed(ended, origin, back, said):
    assert all_back(ended) is back
    told = text(ended, B, origin)
    assert told.startswith("the switch to revision rev-b failed:\n")
    assert all(part in told for part in said)
    if any(one.running for one in ended):
        assert "is stopped" not in told and "accepted" not in told


def test_nobody_is_said_not_to_answer_where_nobody_was_asked():
    assert "answer" not in text([Ended("n0", "boom"), Ended("n1")], B, A)


def test_a_group_that_could_not_be_prepared_goes_on():
    told = text([Ended("n0", "boom", True, True), Ended("n1", "", True, True)], B, A, started=False)
    assert "- n0: boom" in told and told.splitlines()[-1].startswith("Nothing was stopped or moved")


# --- Engram rows -------------------------------------------------------------------------------------------------------

ROWS = {"rows": 700, "row_files": 2}


def test_rows_count_as_what_is_fetched_and_as_something_to_stage():
    made = decide([node(**ROWS), node("n1")], B)
    assert [row["fetched"] for row in made.rows] == ["800 B", "100 B"] and made.refusal == ""
    kept = node(current=B, summary=KEPT, record=Record(B, A), **ROWS)
    assert decide([kept], B).stage and not decide([kept], B).switch


def test_rows_that_all_revisions_share_change_with_consent_only_and_then_there_is_no_way_back():
    sharing = node(**ROWS, shares="/engram")
    made = decide([sharing, node("n1")], B)
    assert "2 files of Engram rows in /engram would change under revision rev-a" in made.refusal
    assert "checkpoint_in_place" in made.refusal
    made = decide([sharing, node("n1")], B, consent=True)
    assert (made.refusal, made.in_place, made.origin) == ("", ("n0",), "")


@pytest.mark.parametrize(
    "one", [{"shares": "/engram"}, {**ROWS, "shares": ""}, {**ROWS, "shares": "/engram", "current": ""}]
)
def test_rows_that_nobody_reads_or_that_stay_need_no_consent(one):
    assert decide([node(**one)], B).refusal == ""


def test_rows_that_change_in_a_shared_directory_leave_no_older_revision_to_go_back_to():
    assert decide([node(**ROWS, shares="/engram", held=False), node("n1")], B).origin == ""
    assert decide([node(shares="/engram", held=False), node("n1")], B).origin == A  # rows that stay
    again = replace(SERVED, **ROWS, shares="/engram", held=False, standing=replace(SERVED.standing, healthy=False))
    assert decide([again], B).origin == B  # the same revision, whose rows come anew


def test_rows_that_a_running_engine_reads_change_with_consent_only():
    bad = Check("checkpoint.engram_served", "n0", False, "rows would change", "they stay", "stop it").to_dict()
    serving = [replace(SERVED, **ROWS, served=[bad]), replace(SERVED, standing=replace(SERVED.standing, node="n1"))]
    refused = decide(serving, B)
    assert refused.text() == (
        "nothing was changed:\n- n0: checkpoint.engram_served error: found rows would change, expected they stay. Cure: stop it"
    )
    made = decide(serving, B, consent=True)
    assert (made.refusal, made.in_place, made.switch, made.origin) == ("", ("n0",), True, "")
    assert made.reasons == ("n0: the Engram rows that its engine reads change",)
    assert made.given_up == (
        "n0: 2 files of Engram rows of revision rev-b in revisions/rev-b are replaced; the manifest is kept as manifests/rev-b.json",
    )
