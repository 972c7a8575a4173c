# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleError

from ansible_collections.gb10.ring.plugins.action import checkpoint_restage
from ansible_collections.gb10.ring.plugins.filter.switch_outcome import switch_outcome

NONE = {"files": 0, "bytes": 0}
KEPT = {"fetch": NONE, "link": NONE, "staged": NONE, "keep": {"files": 4, "bytes": 9}, "reused": NONE}


def standing(current, previous=""):
    record = {"active": current, "previous": previous, "target": "", "downtime_s": None}
    return {"current": current, "record": record, "complete": ["a", "b"], "serves": current}


def host(current="b", **more):
    said = {
        "standing": standing(current, "a"),
        "stages": False,
        "summary": KEPT,
        "budget": {"node": "x", "used": 1, "after": 1, "size": 10},
        "in_place": {},
        "frees": 0,
        "checks": [],
        **more,
    }
    return {"checkpoint_budget": said, "engine_checks": {"checks": [{"ok": True}]}}


def decide(hostvars, **arguments):
    task = SimpleNamespace(args=arguments, async_val=0, check_mode=False, diff=False)
    action = checkpoint_restage.ActionModule(
        task, SimpleNamespace(_shell=SimpleNamespace(tmpdir=None)), SimpleNamespace(), None, None, None
    )
    return action.run(task_vars={"hostvars": hostvars, "ansible_play_hosts_all": list(hostvars)})


def test_what_it_comes_to():
    made = decide({"n0": host("a"), "n1": host("a")}, revision="b")
    assert (made["failed"], made["switch"], made["stage"], made["origin"], made["in_place"]) == (
        False,
        True,
        False,
        "a",
        False,
    )
    assert len(made["rows"]) == 2 and "switch all nodes to b, on failure back to a" in made["msg"]
    assert not decide({"n0": host(), "n1": host()}, revision="b")["switch"]


def test_an_engine_that_is_ill_is_a_reason():
    ill = {**host(), "engine_checks": {"checks": [{"ok": True}, {"ok": False}]}}
    assert decide({"n0": host(), "n1": ill}, revision="b")["reasons"] == [
        "n1: its engine does not serve as its unit says"
    ]
    nobody_looked = {"checkpoint_budget": host()["checkpoint_budget"]}
    assert not decide({"n0": nobody_looked}, revision="b")["switch"]


@pytest.mark.parametrize(
    ("arguments", "hostvars"), [({"revision": "b"}, {}), ({"mode": "rollback"}, {"checkpoint_checks": {"checks": []}})]
)
def test_a_node_that_said_nothing_stops_it(arguments, hostvars):
    made = decide({"n0": host(), "n1": hostvars}, **arguments)
    assert made["failed"] and "n1" in made["msg"] and "nothing was changed" in made["msg"]


def test_a_refusal_fails_with_the_table_shown():
    check = {
        "id": "checkpoint.budget",
        "node": "n0",
        "ok": False,
        "severity": "error",
        "found": "x",
        "expected": "y",
        "cure": "z",
    }
    made = decide({"n0": host(checks=[check])}, revision="b")
    assert made["failed"] and "n0: checkpoint.budget error: found x, expected y. Cure: z" in made["msg"]


def test_rolling_back():
    known = {"n0": {"checkpoint_checks": {"checkpoint": {"standing": standing("b", "a")}}}}
    made = decide(known, mode="rollback")
    assert (made["failed"], made["revision"], made["origin"], made["switch"]) == (False, "a", "b", True)
    assert "rev-x is not there whole on n0" in decide(known, mode="rollback", revision="rev-x")["msg"]


def test_a_switch_that_is_under_way_on_any_node_is_gone_on_with():
    half = standing("a") | {"record": {**standing("a")["record"], "target": "b"}}
    assert decide({"n0": host(), "n1": host(standing=half)}, revision="b")["resumes"]
    assert not decide({"n0": host("a"), "n1": host("a")}, revision="b")["resumes"]
    assert decide({"n0": {"checkpoint_checks": {"checkpoint": {"standing": half}}}}, mode="rollback")["resumes"]


def test_re_staging_needs_a_revision():
    with pytest.raises(AnsibleError, match="revision"):
        decide({"n0": host()})


def test_the_outcome_of_a_switch():
    known = {
        "n0": {
            "checkpoint_switch_reason": "Start: boom",
            "checkpoint_back_result": {"revision": "a"},
            "checkpoint_back_done": True,
        },
        "n1": {"checkpoint_back_result": {"revision": "a"}, "checkpoint_back_done": True},
    }
    found = switch_outcome(known, ["n0", "n1"], "b", "a")
    assert found["all_back"] and "- n0: Start: boom" in found["text"] and "accepted" in found["text"]
    lost = switch_outcome({**known, "n1": {"checkpoint_back_result": {"unreachable": True}}}, ["n0", "n1"], "b", "a")
    assert not lost["all_back"] and "n1 did not answer" in lost["text"]
    assert not switch_outcome({"n0": {}}, ["n0"], "b", "a")["all_back"]
    runs = switch_outcome({**known, "n1": {**known["n1"], "checkpoint_back_running": "no end"}}, ["n0", "n1"], "b", "a")
    assert not runs["all_back"] and "- n1: its engine could not be stopped: no end" in runs["text"]


SLICE, INDEX = "model-00048-of-00048.safetensors", "model.safetensors.index.json"


def rows(placement, ok=True, held="a", bad="checkpoint.engram_budget", paths=(SLICE,)):
    check = {
        "id": bad,
        "node": "x",
        "ok": ok,
        "severity": "error",
        "found": "f",
        "expected": "e",
        "cure": "c",
    }
    told = {
        "placement": placement,
        "held": held,
        "path": "/engram",
        "stages": bool(paths),
        "summary": {"fetch": {"files": len(paths), "bytes": 7}, "link": 0, "paths": list(paths)},
        "checks": [check],
    }
    return {"checkpoint_engram_budget": told}


def test_rows_are_heard_of():
    made = decide({"n0": {**host("a"), **rows("shard")}}, revision="b")
    assert made["stage"] and made["rows"][0]["fetched"] == "7 B"
    assert "checkpoint.engram_budget" in decide({"n0": {**host("a"), **rows("shard", ok=False)}}, revision="b")["msg"]
    shared = {"n0": {**host("a"), **rows("directory")}}
    assert decide(shared, revision="b")["failed"]
    assert decide(shared, revision="b", in_place=True)["in_place"]


@pytest.mark.parametrize("consent", [True, False])
def test_rows_that_come_to_a_shared_directory_without_a_record_leave_no_way_back(consent):
    """A first stage, or a run that was killed amid the rows: the directory had the rows of nobody, and gets those of the new revision."""
    made = decide({"n0": {**host("a"), **rows("directory", held="")}, "n1": host("a")}, revision="b", in_place=consent)
    assert (made["failed"], made["switch"], made["in_place"], made["origin"]) == (False, True, False, "")
    assert "with nothing to go back to" in made["msg"]


def test_an_index_is_no_rows_and_leaves_the_way_back():
    made = decide({"n0": {**host("a"), **rows("directory", paths=(INDEX,))}}, revision="b")
    assert (made["failed"], made["stage"], made["in_place"], made["origin"]) == (False, True, False, "a")
    both = decide({"n0": {**host("a"), **rows("directory", paths=(SLICE, INDEX))}}, revision="b")
    assert both["failed"] and "1 file of Engram rows in /engram" in both["msg"]


@pytest.mark.parametrize("placement", ["directory", "shard"])
def test_rows_under_a_running_engine_change_with_consent_only_and_it_is_started_again(placement):
    """Of the active revision: other ranks, say. Nothing else is to be switched."""
    known = {"n0": {**host("b"), **rows(placement, ok=False, held="b", bad="checkpoint.engram_served")}}
    refused = decide(known, revision="b")
    assert refused["failed"] and refused["msg"].count("checkpoint.engram_") == 1
    made = decide(known, revision="b", in_place=True)
    assert (made["failed"], made["in_place"], made["switch"], made["origin"]) == (False, True, True, "")
    assert "1 file of Engram rows of revision b in" in made["msg"]


def test_where_the_old_revision_makes_room_the_checkpoint_says_whether_rows_have_any():
    replaced = {"old": "a", "files": [], "dropped": [], "frees": 0, "peak": 1, "after": 1, "limit": 2, "ok": True}
    made = decide({"n0": {**host("a", in_place=replaced), **rows("shard", ok=False)}}, revision="b", in_place=True)
    assert not made["failed"] and made["in_place"]


def test_where_the_old_revision_makes_room_other_problems_of_the_rows_still_refuse():
    replaced = {"old": "a", "files": [], "dropped": [], "frees": 0, "peak": 1, "after": 1, "limit": 2, "ok": True}
    foreign = rows("directory", ok=False, bad="checkpoint.engram_place")
    made = decide({"n0": {**host("a", in_place=replaced), **foreign}}, revision="b", in_place=True)
    assert made["failed"] and "checkpoint.engram_place" in made["msg"]


def test_a_node_that_may_not_go_back_is_named_with_the_reason():
    gone = {"checkpoint_back_result": {"revision": "a"}, "checkpoint_back_done": True}
    stays = {"checkpoint_back_result": {"failed": True, "msg": "cannot go back to a of tiny: rows of b; cure"}}
    found = switch_outcome(
        {"n0": {**gone, "checkpoint_switch_reason": "Accept: boom"}, "n1": stays}, ["n0", "n1"], "b", "a"
    )
    assert not found["all_back"] and "- n1: cannot go back to a of tiny: rows of b; cure" in found["text"]
    assert "n1 cannot go back to revision a, so nothing was started and the group is stopped" in found["text"]
    assert "answer" not in found["text"]
