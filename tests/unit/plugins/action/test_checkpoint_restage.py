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


def rows(placement, ok=True, held="a"):
    check = {
        "id": "checkpoint.engram_budget",
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
        "summary": {"fetch": {"files": 1, "bytes": 7}, "link": 0},
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
    assert not decide({"n0": {**host("a"), **rows("directory", held="")}}, revision="b")["failed"]


def test_where_the_old_revision_makes_room_the_checkpoint_says_whether_rows_have_any():
    replaced = {"old": "a", "files": [], "dropped": [], "frees": 0, "peak": 1, "after": 1, "limit": 2, "ok": True}
    made = decide({"n0": {**host("a", in_place=replaced), **rows("shard", ok=False)}}, revision="b", in_place=True)
    assert not made["failed"] and made["in_place"]
