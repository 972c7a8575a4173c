from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure, AnsibleError

from ansible_collections.gb10.ring.plugins.action.preflight_check import ActionModule

MODULE_RESULT = {"changed": False, "checks": [{"id": "preflight.os", "node": "spark1", "ok": True}]}


@pytest.fixture
def action(monkeypatch):
    """The action with a connection that has SSH's options and a module that answers ``outcome``."""

    def made(outcome, options=None):
        held = {"host": "192.0.2.11", "remote_user": "nvidia", "port": 22} if options is None else options
        task = SimpleNamespace(args={"node": "spark1"}, async_val=0, check_mode=True, diff=False, action="x", vars={})
        connection = SimpleNamespace(get_option=held.__getitem__, _shell=SimpleNamespace(tmpdir=None))
        plugin = ActionModule(task, connection, None, None, None, None)

        def execute(module_name, task_vars):
            assert module_name == "gb10.ring.preflight_check"
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(plugin, "_execute_module", execute)
        return plugin.run(task_vars={"inventory_hostname": "spark1"})

    return made


def test_a_node_that_answers_gets_a_clock_check(action):
    result = action({**MODULE_RESULT, "checks": [*MODULE_RESULT["checks"]], "facts": {"epoch": time.time()}})
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [
        ("preflight.os", True),
        ("preflight.clock", True),
    ]


def test_a_wrong_clock_is_seen(action):
    result = action({**MODULE_RESULT, "checks": [], "facts": {"epoch": time.time() - 3600}})
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [("preflight.clock", False)]


@pytest.mark.parametrize(
    ("error", "name", "found"),
    [
        (AnsibleConnectionFailure("via ssh: No route to host"), "preflight.reachable", "No route to host"),
        (AnsibleAuthenticationFailure("Invalid/incorrect password"), "preflight.reachable", "incorrect password"),
        (AnsibleError("Missing sudo password"), "preflight.module", "Missing sudo password"),
    ],
)
def test_an_error_of_the_connection_becomes_a_check(action, error, name, found):
    result = action(error)
    assert "failed" not in result
    assert "unreachable" not in result
    (check,) = result["checks"]
    assert (check["id"], check["ok"], check["node"]) == (name, False, "spark1")
    assert found in check["found"]


def test_the_cure_is_a_command_to_try(action):
    (check,) = action(AnsibleConnectionFailure("timed out"))["checks"]
    assert "ssh -v -p 22 nvidia@192.0.2.11 true" in check["cure"]


def test_a_connection_without_ssh_options(action):
    (check,) = action(AnsibleConnectionFailure("timed out"), options={})["checks"]
    assert "ssh -v spark1 true" in check["cure"]


@pytest.mark.parametrize(
    ("outcome", "name", "found"),
    [
        (
            {"rc": 127, "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found\n", "module_stdout": ""},
            "preflight.python",
            "/bin/sh: 1: /usr/bin/python3: not found",
        ),
        (
            {"rc": 1, "module_stderr": "  def f(a, /):\nSyntaxError: invalid syntax\n", "module_stdout": ""},
            "preflight.python",
            "def f(a, /):; SyntaxError: invalid syntax",
        ),
        ({"rc": 1, "module_stderr": "", "module_stdout": "", "msg": "No result"}, "preflight.module", "No result"),
    ],
)
def test_a_module_that_did_not_run_becomes_a_check(action, outcome, name, found):
    result = action({"failed": True, "_ansible_parsed": False, **outcome})
    assert "failed" not in result
    assert [(check["id"], check["found"]) for check in result["checks"]] == [(name, found)]


def test_a_mistake_in_the_options_stays_an_error(action):
    result = action({"failed": True, "_ansible_parsed": True, "msg": "min_python is 'x'"})
    assert result["failed"] is True
    assert result["msg"] == "min_python is 'x'"
