# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side: waiting for a node that may be gone, with a module that answers as the test says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gb10.ring.plugins.action import fabric_netplan
from ansible_collections.gb10.ring.plugins.module_utils.fabric.proof import reachable_check
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

GONE = AnsibleConnectionFailure("Connection timed out")
RESTORED = {"at": "noon", "why": "it was not confirmed in time", "problems": []}


def status(leftover="armed", outcome=None, last=None, **other):
    return {
        "leftover": leftover,
        "outcome": outcome,
        "last_restore": last,
        "seconds_left": 40.0,
        "changed": False,
        **other,
    }


class Clock:
    """Seconds pass only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def action(monkeypatch):
    """Runs a phase; answers: what the module says, by phase, in turn (the last one again and again)."""
    clock = Clock()
    monkeypatch.setattr(fabric_netplan, "time", clock)

    def made(phase, check=False, options=None, **answers):
        arguments = {"node": "spark1", "ports": PORTS[:1], "phase": phase, **(options or {})}
        task = SimpleNamespace(args=arguments, async_val=0, check_mode=check, diff=False, action="x", vars={})
        resets = []
        connection = SimpleNamespace(reset=lambda: resets.append(clock.now), _shell=SimpleNamespace(tmpdir=None))
        plugin = fabric_netplan.ActionModule(task, connection, None, None, None, None)
        calls = []

        def execute(module_name, module_args, task_vars):
            assert module_name == "gb10.ring.fabric_netplan"
            calls.append((module_args["phase"], module_args["check_timeout"]))
            queue = answers[module_args["phase"]]
            outcome = queue.pop(0) if len(queue) > 1 else queue[0]
            if isinstance(outcome, Exception):
                raise outcome
            return dict(outcome)

        monkeypatch.setattr(plugin, "_execute_module", execute)
        result = plugin.run(task_vars={})
        return SimpleNamespace(
            result=result, phases=[call[0] for call in calls], calls=calls, resets=resets, clock=clock
        )

    return made


ARMED = status(changed=True, armed=True, pending=True, notes=[])


def test_apply_waits_for_the_outcome_over_new_connections(action):
    done = action("apply", apply=[ARMED], status=[GONE, status(), status(outcome={"problems": []})])
    assert done.phases == ["apply", "status", "status", "status"]
    assert len(done.resets) == 3
    assert done.result["changed"] is True
    assert not done.result.get("failed")


@pytest.mark.parametrize(
    "answer", [{"failed": True, "msg": "no"}, {**ARMED, "changed": False}, {**ARMED, "armed": False}]
)
def test_apply_without_a_change_of_the_network_does_not_wait(action, answer):
    assert action("apply", apply=[answer]).phases == ["apply"]


def test_apply_in_check_mode_is_the_module_alone(action):
    assert action("apply", check=True, apply=[ARMED]).phases == ["apply"]


@pytest.mark.parametrize(
    ("apply", "seen", "message"),
    [
        (
            ARMED,
            status(outcome={"problems": ["netplan apply: exit 1: boom"]}),
            "did not come up: netplan apply: exit 1: boom",
        ),
        (
            ARMED,
            status("none", last=RESTORED),
            "the earlier network was restored at noon: it was not confirmed in time",
        ),
        (ARMED, GONE, "spark1 does not answer after the change of its network: Connection timed out"),
        (ARMED, {"failed": True, "msg": "no python"}, "no python"),
        (ARMED, status(), "its last state was armed"),
        (GONE, status("none"), "Connection timed out"),
    ],
)
def test_apply_that_does_not_work(action, apply, seen, message):
    done = action("apply", apply=[apply], status=[seen])
    assert done.result["failed"] is True
    assert message in done.result["msg"]
    assert done.clock.now <= 46


def test_notes_become_warnings(action):
    done = action("apply", check=True, apply=[{**ARMED, "notes": ["x stays"]}])
    assert "warnings" not in done.result
    done = action("apply", apply=[{**ARMED, "notes": ["x stays"]}], status=[status(outcome={"problems": []})])
    assert done.result["warnings"] == ["spark1: x stays"]


PROOF = {"changed": False, "checks": [{"id": "fabric.ping", "ok": True, "severity": "error"}]}


@pytest.mark.parametrize(
    ("seen", "seconds"), [(status("none"), 30), (status(seconds_left=25.4), 15), (status(seconds_left=3), 1)]
)
def test_proof_asks_the_neighbours_while_the_timer_allows(action, seen, seconds):
    done = action("prove", status=[GONE, seen], prove=[PROOF])
    assert [(check["id"], check["ok"]) for check in done.result["checks"]] == [
        ("fabric.reachable", True),
        ("fabric.ping", True),
    ]
    assert done.calls[-1] == ("prove", seconds)


@pytest.mark.parametrize(("seen", "prove"), [(GONE, PROOF), (status(), GONE)])
def test_a_node_that_is_gone_is_a_check(action, seen, prove):
    result = action("prove", status=[seen], prove=[prove]).result
    (check,) = result["checks"]
    assert result["failed"] is True
    assert "spark1: fabric.reachable error: found Connection timed out" in result["msg"]
    assert (check["id"], check["ok"], check["found"]) == ("fabric.reachable", False, "Connection timed out")


def test_a_neighbour_that_does_not_answer_fails_the_proof(action):
    silent = reachable_check("spark1", "0 of 2 replies").to_dict()
    result = action("prove", status=[status()], prove=[{"changed": False, "checks": [silent]}]).result
    assert result["failed"] is True
    assert result["msg"].startswith("new network: 1 of 2 checks failed")


def test_a_proof_that_fails_for_another_reason_fails(action):
    assert (
        action("prove", status=[status()], prove=[{"failed": True, "msg": "ping is not installed"}]).result["failed"]
        is True
    )


def test_rollback_starts_the_restore_and_waits_for_it(action):
    seen = [
        GONE,
        status("confirmed"),
        status("confirmed"),
        status("none", last={**RESTORED, "why": "it was rolled back"}),
    ]
    done = action("rollback", status=seen, rollback=[{"changed": True}])
    assert done.phases.count("rollback") == 1
    assert done.result["changed"] is True
    assert done.result["msg"] == "spark1: the earlier network was restored at noon: it was rolled back"


@pytest.mark.parametrize(
    ("seen", "changed", "failed", "message"),
    [
        (status("none"), False, False, "its network was not changed"),
        (status("none", last={**RESTORED, "problems": ["x"]}), True, True, "Not restored: x"),
        (GONE, True, True, "It brings it back by itself"),
    ],
)
def test_rollback_says_how_it_ended(action, seen, changed, failed, message):
    result = action("rollback", status=[seen]).result
    assert (result["changed"], result["failed"]) == (changed, failed)
    assert message in result["msg"]


PLAN = status("none", pending=True, armed=True, checks=[])


def test_plan_undoes_what_a_run_before_left(action):
    done = action(
        "plan",
        plan=[status("armed"), PLAN],
        status=[status(), status("none", last=RESTORED)],
        rollback=[{"changed": True}],
    )
    assert done.phases == ["plan", "status", "rollback", "status", "plan"]
    assert (done.result["pending"], done.result["changed"]) == (True, True)
    assert done.result["warnings"][0].startswith(
        "an earlier run left a change unconfirmed: spark1: the earlier network was restored"
    )


def test_plan_in_check_mode_only_says_so(action):
    done = action("plan", check=True, plan=[status("armed", pending=True)])
    assert done.phases == ["plan"]
    assert "a real run brings the earlier network back first" in done.result["warnings"][0]


def test_plan_fails_when_undoing_fails(action):
    done = action("plan", plan=[status("armed")], status=[GONE])
    assert done.result["failed"] is True


@pytest.mark.parametrize("phase", ["confirm", "clean", "status"])
def test_the_other_phases_are_the_module(action, phase):
    assert action(phase, **{phase: [status()]}).phases == [phase]
