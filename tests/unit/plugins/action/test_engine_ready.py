# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from ansible import constants
from ansible.errors import AnsibleActionFail

from ansible_collections.gb10.ring.plugins.action import engine_ready


@pytest.fixture
def plugin(monkeypatch, tmp_path):
    """The action of a host, with a module that gives the outcomes one after another; timeouts: what it was called with."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))

    def made(outcomes, **arguments):
        task = SimpleNamespace(args=arguments, async_val=0, check_mode=False, diff=False, action="x", _uuid="task-1")
        connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
        action = engine_ready.ActionModule(task, connection, None, None, None, None)
        action.timeouts = []
        pending = iter(outcomes)

        def execute(module_name, module_args, task_vars):
            assert module_name == "gb10.ring.engine_ready"
            action.timeouts.append(module_args["timeout_s"])
            outcome = next(pending)
            return outcome if isinstance(outcome, dict) else {"changed": False, "checks": [], "state": outcome}

        monkeypatch.setattr(action, "_execute_module", execute)
        return action

    return made


@pytest.mark.parametrize(
    ("outcomes", "arguments", "timeouts", "state"),
    [
        (["ready"], {}, [10], "ready"),
        (["waiting", "waiting", "ready"], {"timeout_s": 900}, [10, 10, 10], "ready"),
        (["waiting", "ended"], {"timeout_s": "60"}, [10, 10], "ended"),
        (["waiting"], {"timeout_s": 0}, [0], "waiting"),
        (["waiting"], {"timeout_s": 7}, [7], "waiting"),
    ],
)
def test_slices(plugin, outcomes, arguments, timeouts, state):
    action = plugin(outcomes, **arguments)
    assert action.run(task_vars={})["state"] == state
    assert action.timeouts == timeouts


def test_the_total_time_is_kept(plugin, monkeypatch):
    now = iter([0.0, 0.0, 10.2, 20.3, 27.0])
    monkeypatch.setattr(engine_ready, "time", SimpleNamespace(monotonic=lambda: next(now)))
    action = plugin(["waiting"] * 9, timeout_s=27)
    assert action.run(task_vars={})["state"] == "waiting"
    assert action.timeouts == [10, 10, 7]
    assert time.monotonic() > 0


@pytest.mark.parametrize("bad", ["ended", {"failed": True, "msg": "x"}])
def test_one_ended_rank_ends_the_wait_of_the_others(plugin, bad):
    plugin([bad], timeout_s=900).run(task_vars={})
    other = plugin(["waiting", "waiting"], timeout_s=900)
    assert other.run(task_vars={})["state"] == "waiting"
    assert other.timeouts == [10]


def test_a_timeout_that_is_no_number(plugin):
    with pytest.raises(AnsibleActionFail, match="timeout_s is 'long'"):
        plugin([], timeout_s="long").run(task_vars={})
