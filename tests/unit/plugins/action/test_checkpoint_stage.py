# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.gb10.ring.plugins.action import checkpoint_stage
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, make

PLAN = make("tiny", "", [File("a", 5, '"a"', "crc64nvme:" + "0" * 16)]).to_dict()
SECRETS = {"access_key": "access-key-id", "secret_key": "very-secret"}
STORE = {"bucket": "models", "prefix": "org/tiny", "endpoint_url": "http://127.0.0.1:1", **SECRETS}
WHEEL = "awscrt-0.38.1-cp311-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64.whl"
NEEDS = {"changed": False, "needs_runtime": True, "machine": "aarch64", "python": "3.13", "checks": []}


class Action(checkpoint_stage.ActionModule):
    """The plugin with a node that answers from a list."""

    def __init__(self, arguments, answers, check_mode=False):
        task = SimpleNamespace(args=arguments, async_val=0, check_mode=check_mode, diff=False)
        shell = SimpleNamespace(tmpdir=None, join_path=lambda *parts: "/".join(parts))
        super().__init__(task, SimpleNamespace(_shell=shell), SimpleNamespace(), None, None, None)
        self.answers, self.calls, self.sent, self.removed = list(answers), [], [], []

    def _execute_module(self, module_name=None, module_args=None, task_vars=None, **_more):
        assert module_name == "gb10.ring.checkpoint_stage"
        self.calls.append(module_args)
        return self.answers.pop(0)

    def _make_tmp_path(self, remote_user=None):
        return "/tmp/node"

    def _transfer_file(self, local_path, remote_path):
        self.sent.append((local_path, remote_path))

    def _fixup_perms2(self, remote_paths, remote_user=None, execute=True):
        return remote_paths

    def _remove_tmp_path(self, tmp_path, force=False):
        self.removed.append(tmp_path)

    def go(self):
        return self.run(task_vars={"inventory_hostname": "spark1"})


@pytest.fixture
def wheels(tmp_path):
    (tmp_path / WHEEL).write_bytes(b"")
    return {"wheel_dir": str(tmp_path)}


def test_the_node_gets_signed_addresses_and_no_credentials():
    action = Action({"plan": PLAN, **STORE}, [{"changed": True}])
    assert action.go() == {"changed": True}
    (arguments,) = action.calls
    assert arguments["urls"]["a"].startswith("http://127.0.0.1:1/models/org/tiny/a?X-Amz-Algorithm=")
    assert arguments["node"] == "spark1"
    assert not {*SECRETS, "bucket", "endpoint_url", "profile", "wheel_dir"} & set(arguments)
    assert "very-secret" not in str(arguments)


@pytest.mark.parametrize(("phase", "check_mode"), [("budget", False), ("stage", True)])
def test_nothing_is_signed_where_nothing_moves(phase, check_mode):
    action = Action({"plan": PLAN, "phase": phase}, [{"changed": False}], check_mode)
    action.go()
    assert "urls" not in action.calls[0]


def test_awscrt_is_sent_to_a_node_that_lacks_it(wheels):
    action = Action({"plan": PLAN, **STORE, **wheels}, [NEEDS, {"changed": True}])
    assert action.go() == {"changed": True}
    assert action.sent == [(f"{wheels['wheel_dir']}/{WHEEL}", f"/tmp/node/{WHEEL}")]
    assert action.calls[1]["wheel"] == f"/tmp/node/{WHEEL}" and "wheel" not in action.calls[0]
    assert action.removed == ["/tmp/node"]


def test_without_a_wheel_the_node_is_named_and_the_command_printed(tmp_path):
    result = Action({"plan": PLAN, **STORE, "wheel_dir": str(tmp_path)}, [NEEDS]).go()
    assert result["failed"] and result["msg"].startswith("spark1: awscrt")
    assert "pip download" in result["msg"] and "manylinux2014_aarch64" in result["msg"]


@pytest.mark.parametrize("there", [True, False])
def test_the_budget_says_whether_a_wheel_fits(wheels, there):
    options = wheels if there else {"wheel_dir": "/nowhere"}
    result = Action({"plan": PLAN, "phase": "budget", **options}, [NEEDS]).go()
    (check,) = result["checks"]
    assert (check["id"], check["node"], check["ok"]) == ("checkpoint.runtime", "spark1", there)
    assert ("pip download" in check["cure"]) is not there


def test_a_failure_of_the_module_is_passed_on(wheels):
    failed = {"failed": True, "msg": "spark1: not enough room"}
    assert Action({"plan": PLAN, **STORE, **wheels}, [failed]).go() == failed


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"plan": PLAN}, "option bucket is missing"),
        ({"plan": PLAN, **STORE, "url_expiry_s": 10**6}, "url_expiry_s is 1000000, allowed are 60 to 604800"),
        ({"plan": {"a": 1}, **STORE}, "option plan is not what"),
        ({"plan": PLAN, **STORE, "ca_bundle": "/nowhere.pem"}, "is not a file on the controller"),
    ],
)
def test_what_cannot_work_never_reaches_the_node(arguments, text):
    action = Action(arguments, [])
    result = action.go()
    assert result["failed"] and text in result["msg"]


def test_the_authority_travels_as_text(tmp_path):
    pem = tmp_path / "ca.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----")
    action = Action({"plan": PLAN, **STORE, "ca_bundle": str(pem)}, [{"changed": False}])
    action.go()
    assert action.calls[0]["ca_pem"] == "-----BEGIN CERTIFICATE-----" and "ca_bundle" not in action.calls[0]
