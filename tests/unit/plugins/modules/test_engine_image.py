# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.engine import image_machine, image_unit
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.transient import Program
from ansible_collections.gb10.ring.plugins.modules import engine_image, engine_image_peer
from ansible_collections.gb10.ring.tests.unit.fixtures import docker_stand_in

CONTENT = b"an image END"
LISTEN = [{"address": "10.0.0.1", "netdev": "net0"}]
STARTED = {"state": "started", "runtime": "docker", "image_id": f"sha256:{'a' * 64}", "token": "secret-token"}


@pytest.fixture
def program(tmp_path, monkeypatch):
    made = docker_stand_in.make(tmp_path)
    monkeypatch.setitem(image_machine.RUNTIMES, "docker", str(made))
    return made


def call(capsys, module, check_mode=False, **arguments):
    with (
        patch_module_args({**arguments, "_ansible_check_mode": check_mode, "_ansible_diff": True}),
        pytest.raises(SystemExit),
    ):
        module.main()
    text = capsys.readouterr().out
    assert "secret-token" not in text
    return json.loads(text)


def test_a_pull_is_told_first_done_once_and_then_no_change(capsys, program):
    (program.parent / "store/registry").write_bytes(CONTENT)
    given = {"runtime": "docker", "step": "pull", "image": "name@sha256:1", "move": "pulls name"}
    told = call(capsys, engine_image, check_mode=True, **given)
    assert told["changed"] and told["diff"][0]["after"] == "pulls name\n" and told["images"] == {}
    assert call(capsys, engine_image, **given)["changed"]
    again = call(capsys, engine_image, **given)
    assert not again["changed"] and again["reference_id"] in again["images"]


def test_a_look_changes_nothing(capsys, program):
    image_id = docker_stand_in.put(program, CONTENT)
    found = call(
        capsys,
        engine_image,
        runtime="docker",
        image_id=image_id,
        step="take",
        sources=["10.0.0.1"],
        token="secret-token",
    )
    assert not found["changed"] and found["images"] == {image_id: len(CONTENT)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"step": "take", "image_id": "x"}, "option sources is missing, step take needs it; option token"),
        ({"step": "load", "image_id": "x"}, "option archive is missing, step load"),
        ({"step": "pull"}, "option image is missing"),
        ({"port": 80}, "option port is 80"),
        ({"step": "pull", "image": "name"}, "docker"),
    ],
)
def test_what_is_wrong_is_one_message(capsys, program, arguments, said):
    result = call(capsys, engine_image, runtime="docker", **arguments)
    assert result["failed"] and said in result["msg"]


def test_a_machine_without_the_runtime_says_so(capsys, monkeypatch):
    monkeypatch.setitem(image_machine.RUNTIMES, "docker", "/absent/docker")
    assert call(capsys, engine_image, runtime="docker")["msg"] == "/absent/docker is not installed on this machine"


@pytest.fixture
def server(monkeypatch):
    calls = []
    monkeypatch.setattr(Program, "start", lambda _self, settings, max_s: calls.append((settings["listen"], max_s)))
    monkeypatch.setattr(Program, "stop", lambda _self: calls.append("stop") or True)
    monkeypatch.setattr(Program, "present", lambda _self: True)
    return calls


@pytest.mark.parametrize(
    ("arguments", "changed", "calls"),
    [
        ({**STARTED, "listen": LISTEN}, True, [(LISTEN, 14400)]),
        ({**STARTED, "listen": LISTEN, "check_mode": True}, True, []),
        (STARTED, False, []),
        ({"state": "stopped", "runtime": "docker"}, True, ["stop"]),
        ({"state": "stopped", "runtime": "docker", "check_mode": True}, True, []),
    ],
)
def test_the_server_is_started_where_somebody_asks_and_stopped(capsys, server, arguments, changed, calls):
    result = call(capsys, engine_image_peer, **arguments)
    assert (result["changed"], result["unit"], server) == (changed, image_unit.UNIT, calls)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"state": "started", "runtime": "docker"}, "image_id, token"),
        ({**STARTED, "listen": [{"address": "10.0.0.1"}]}, "netdev"),
        ({**STARTED, "port": 80}, "option port is 80"),
    ],
)
def test_wrong_options_start_no_server(capsys, server, arguments, said):
    result = call(capsys, engine_image_peer, **arguments)
    assert result["failed"] and said in result["msg"] and server == []


def test_a_server_that_does_not_start_is_one_message(capsys, server, monkeypatch):
    def refuse(_self, _settings, _max_s):
        raise HostError("cannot start the server")

    monkeypatch.setattr(Program, "start", refuse)
    assert call(capsys, engine_image_peer, **STARTED, listen=LISTEN)["msg"] == "cannot start the server"
