# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gb10.ring.plugins.action import checkpoint_stage
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import source
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, make
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.progress import Progress
from ansible_collections.gb10.ring.plugins.plugin_utils.following import Follower, Pace

PLAN = make("tiny", "", [File("a", 5, '"a"', "crc64nvme:" + "0" * 16)]).to_dict()
SECRETS = {"access_key": "access-key-id", "secret_key": "very-secret"}
STORE = {"bucket": "models", "prefix": "org/tiny", "endpoint_url": "http://127.0.0.1:1", **SECRETS}
WHEEL = "awscrt-0.38.1-cp311-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64.whl"
SUMMARY = {"fetch": {"files": 1, "bytes": 5}}
NEEDS = {"changed": False, "needs_runtime": True, "machine": "aarch64", "python": "3.13", "checks": []}
NEEDS |= {"needs_sources": True, "summary": SUMMARY}
ADDRESSES = {"changed": False, "needs_runtime": False, "needs_sources": True, "summary": SUMMARY}
MOVED = {"s3_bytes": 5, "peer_bytes": 0, "disk_bytes": 0, "resumed_bytes": 0, "seconds": 1.0, "mb_per_s": 0.0}
DONE = {"changed": True, "expired": [], "replaced": [], "moved": MOVED}


def raised(answer):
    """The answer, or the exception that stands in for one."""
    if isinstance(answer, Exception):
        raise answer
    return answer


class Action(checkpoint_stage.ActionModule):
    """The plugin with a node that answers from a list."""

    def __init__(self, arguments, answers, check_mode=False):
        task = SimpleNamespace(args=arguments, async_val=0, check_mode=check_mode, diff=False)
        shell = SimpleNamespace(tmpdir=None, join_path=lambda *parts: "/".join(parts))
        super().__init__(task, SimpleNamespace(_shell=shell), SimpleNamespace(), None, None, None)
        self.answers, self.calls, self.sent, self.removed = list(answers), [], [], []
        self.texts, self.progress, self.background = {}, [], []

    def _execute_module(self, module_name=None, module_args=None, task_vars=None, wrap_async=False, **_more):
        name = module_name.rpartition(".")[2]
        self.calls.append({**module_args, "_module": name} if name != "checkpoint_stage" else module_args)
        self.background.append(bool(wrap_async and self._task.async_val))
        return raised(self.answers.pop(0))

    def _low_level_execute_command(self, cmd, *_more, **_others):
        self.calls.append({"_command": cmd})
        return {"stdout": raised(self.progress.pop(0)) if self.progress else ""}

    def _make_tmp_path(self, remote_user=None):
        self._connection._shell.tmpdir = "/tmp/node"
        return "/tmp/node"

    def _transfer_data(self, remote_path, data):
        self.texts[remote_path] = data

    def _transfer_file(self, local_path, remote_path):
        self.sent.append((local_path, remote_path))

    def _fixup_perms2(self, remote_paths, remote_user=None, execute=True):
        return remote_paths

    def _remove_tmp_path(self, tmp_path, force=False):
        self.removed.append(tmp_path)
        self._connection._shell.tmpdir = None

    def get_shell_option(self, option, default=None):
        return default

    def go(self):
        return self.run(task_vars={"inventory_hostname": "spark1"})


@pytest.fixture
def wheels(tmp_path):
    (tmp_path / WHEEL).write_bytes(b"")
    return {"wheel_dir": str(tmp_path)}


def test_the_node_gets_signed_addresses_and_no_credentials():
    action = Action({"plan": PLAN, **STORE}, [ADDRESSES, DONE])
    assert action.go() == DONE
    first, second = action.calls
    assert "sources_file" not in first and second["sources_file"] == "/tmp/node/gb10-ring-sources.json"
    (address,) = source.parse(action.texts["/tmp/node/gb10-ring-sources.json"])["a"]
    assert address.url.startswith("http://127.0.0.1:1/models/org/tiny/a?X-Amz-Algorithm=")
    assert second["node"] == "spark1" and action.removed == ["/tmp/node"]
    assert not {*SECRETS, "bucket", "endpoint_url", "profile", "wheel_dir", "peers", "progress"} & set(second)
    assert "very-secret" not in str(action.texts) and "X-Amz" not in str(action.calls)


def test_a_node_that_has_everything_is_asked_once():
    action = Action({"plan": PLAN, **STORE}, [{"changed": False}])
    assert action.go() == {"changed": False}
    assert len(action.calls) == 1 and action.texts == {}


def test_peers_are_asked_before_the_store():
    peers = {"a": [{"url": "http://198.51.100.2:8000/a", "patience_s": 60}]}
    action = Action({"plan": PLAN, **STORE, "peers": peers}, [ADDRESSES, DONE])
    action.go()
    first, second = source.parse(action.texts["/tmp/node/gb10-ring-sources.json"])["a"]
    assert first == source.Source("http://198.51.100.2:8000/a", "peer", 60.0) and second.kind == "s3"


def test_expired_addresses_are_signed_anew_and_the_numbers_added():
    late = {**DONE, "expired": ["a"], "reason": "expired"}
    action = Action({"plan": PLAN, **STORE}, [ADDRESSES, late, late, DONE])
    result = action.go()
    assert result["moved"]["s3_bytes"] == 15 and result["moved"]["seconds"] == 3.0 and not result.get("failed")
    assert len(action.calls) == 4 and action.removed == ["/tmp/node"] * 3


def test_new_addresses_that_are_refused_too_end_it():
    late = {**DONE, "expired": ["a"], "reason": "the signed address expired", "moved": {**MOVED, "s3_bytes": 0}}
    result = Action({"plan": PLAN, **STORE}, [ADDRESSES, late]).go()
    assert result["failed"] and "the signed address expired" in result["msg"] and "clocks" in result["msg"]


@pytest.mark.parametrize("ok", [True, False])
def test_replaced_objects_fail_unless_the_caller_plans_anew(ok):
    changed = {**DONE, "replaced": ["a"], "reason": "a: the object changed since it was planned"}
    result = Action({"plan": PLAN, **STORE, "replaced_ok": ok}, [ADDRESSES, changed]).go()
    assert result["replaced"] == ["a"] and bool(result.get("failed")) is not ok
    assert ok or result["msg"] == "spark1: a: the object changed since it was planned"


# --- by itself on the node ----------------------------------------------------------------------------------------


def tick(number):
    return Progress("staging", 2 * number, 10, 0, 1, 1.0, 5, number).to_text()


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(checkpoint_stage.display, "display", lines.append)
    clock = [0.0]
    pace = Pace(clock=lambda: clock[0], sleep=lambda _seconds: clock.__setitem__(0, clock[0] + 10))
    monkeypatch.setattr(checkpoint_stage, "Follower", lambda node, say: Follower(node, say, pace))
    return lines


def test_a_long_transfer_is_followed(said):
    finished = {**DONE, "ansible_job_id": "j1", "finished": True}
    answers = [ADDRESSES, {"ansible_job_id": "j1", "started": 1}, {"finished": False}, finished, {}]
    action = Action({"plan": PLAN, **STORE, "progress": "on"}, answers)
    action.progress = [tick(1), tick(2), tick(2), "", ""]
    assert action.go() == DONE
    assert action.background == [False, True, False, False, False] and action._task.async_val == 0
    modules = [call.get("_module") for call in action.calls if "_module" in call]
    assert modules == ["async_status"] * 3 and action.calls[-1]["mode"] == "cleanup"
    place = f"/var/lib/gb10-ring/checkpoints/tiny/staging/{PLAN['revision']}"
    # To look is to renew the lease.
    assert action.calls[2]["_command"].startswith(f"touch -c {place}.lease; cat {place}.progress ")
    assert action.calls[1]["lease_s"] == 60
    assert said == [
        "spark1: 0/1 files, 2 B of 10 B (20 %), 1 B/s, 5 s left",
        "spark1: 0/1 files, 4 B of 10 B (40 %), 1 B/s, 5 s left",
    ]


@pytest.mark.parametrize(
    ("size", "rate_limit", "background"),
    [((256 << 20) - 1, 0, False), (256 << 20, 0, True), (60 << 20, 1 << 20, True), (59 << 20, 1 << 20, False)],
)
def test_only_a_long_transfer_runs_by_itself_and_quietly_without_a_terminal(said, size, rate_limit, background):
    answers = [{**ADDRESSES, "summary": {"fetch": {"files": 1, "bytes": size}}}]
    answers += [{"ansible_job_id": "j1"}, {**DONE, "finished": True}, {}] if background else [DONE]
    action = Action({"plan": PLAN, **STORE, "rate_limit": rate_limit}, answers)
    action.progress = [tick(1)]
    assert action.go() == DONE and any(action.background) is background and said == []
    assert action.calls[1]["lease_s"] == (60 if background else 0)


def test_a_connection_that_drops_is_borne(said):
    answers = [ADDRESSES, {"ansible_job_id": "j1"}, AnsibleConnectionFailure("gone"), {**DONE, "finished": True}, {}]
    action = Action({"plan": PLAN, **STORE, "progress": "on"}, answers)
    action.progress = [tick(1), AnsibleConnectionFailure("gone"), tick(2)]
    assert action.go() == DONE


def test_a_worker_whose_run_is_gone_renews_nothing(said, monkeypatch):
    parents = iter([17, 17, 1])
    monkeypatch.setattr(checkpoint_stage.os, "getppid", lambda: next(parents))
    answers = [ADDRESSES, {"ansible_job_id": "j1"}]
    action = Action({"plan": PLAN, **STORE, "progress": "on"}, answers)
    action.progress = [tick(1), tick(2)]
    result = action.go()
    assert result["failed"] and result["msg"] == "spark1: the run that wanted the result is gone"
    assert len([call for call in action.calls if "_command" in call]) == 1


def test_a_process_that_is_gone_is_told(said):
    answers = [ADDRESSES, {"ansible_job_id": "j1"}] + [{"finished": False}] * 100
    action = Action({"plan": PLAN, **STORE, "progress": "on"}, answers)
    action.progress = [tick(3)]
    result = action.go()
    assert result["failed"] and "gave no sign for 130 s (limit 120 s)" in result["msg"]
    assert "6 B of 10 B" in result["msg"] and "what has come is kept" in result["msg"]


def test_a_job_that_does_not_start_is_passed_on(said):
    failed = {"failed": True, "msg": "no space in /tmp"}
    action = Action({"plan": PLAN, **STORE, "progress": "on"}, [ADDRESSES, failed])
    assert action.go() == failed and action.removed == ["/tmp/node"]


@pytest.mark.parametrize(("phase", "check_mode"), [("budget", False), ("stage", True)])
def test_nothing_is_signed_where_nothing_moves(phase, check_mode):
    action = Action({"plan": PLAN, "phase": phase}, [{"changed": False}], check_mode)
    action.go()
    assert "sources_file" not in action.calls[0] and action.texts == {}


def test_awscrt_is_sent_to_a_node_that_lacks_it(wheels):
    action = Action({"plan": PLAN, **STORE, **wheels}, [NEEDS, DONE])
    assert action.go() == DONE
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
    action = Action({"plan": PLAN, **STORE, "ca_bundle": str(pem)}, [ADDRESSES, DONE])
    action.go()
    assert action.calls[1]["ca_pem"] == "-----BEGIN CERTIFICATE-----" and "ca_bundle" not in action.calls[1]
