# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, make
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.transient import Program
from ansible_collections.gb10.ring.plugins.modules import checkpoint_peer

PLAN = make("tiny", "", [File("a", 5, '"a"', "crc64nvme:" + "0" * 16)]).to_dict()
STARTED = {"state": "started", "plan": PLAN, "token": "secret-token"}
LISTEN = [{"address": "10.100.0.1", "netdev": "enp1s0f0np0"}]


@pytest.fixture
def done(monkeypatch):
    calls = []
    monkeypatch.setattr(Program, "start", lambda _self, settings, max_s: calls.append((settings["listen"], max_s)))
    monkeypatch.setattr(Program, "stop", lambda _self: calls.append("stop") or True)
    monkeypatch.setattr(Program, "present", lambda _self: True)
    return calls


def call(capsys, check_mode=False, **arguments):
    with patch_module_args({**arguments, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
        checkpoint_peer.main()
    text = capsys.readouterr().out
    assert "secret-token" not in text.partition('"invocation"')[0]
    return json.loads(text)


@pytest.mark.parametrize(
    ("arguments", "changed", "calls"),
    [
        ({**STARTED, "listen": LISTEN}, True, [(LISTEN, 86400)]),
        ({**STARTED, "listen": LISTEN, "check_mode": True}, True, []),
        (STARTED, False, []),
        ({"state": "stopped"}, True, ["stop"]),
        ({"state": "stopped", "check_mode": True}, True, []),
    ],
)
def test_start_and_stop(capsys, done, arguments, changed, calls):
    result = call(capsys, **arguments)
    assert (result["changed"], result["unit"], done) == (changed, "gb10-ring-fanout.service", calls)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"state": "started"}, "plan, token"),
        ({**STARTED, "listen": [{"address": "10.100.0.1"}]}, "netdev"),
        ({**STARTED, "port": 80}, "option port is 80"),
    ],
)
def test_wrong_options(capsys, done, arguments, said):
    result = call(capsys, **arguments)
    assert result["failed"] and said in result["msg"] and done == []


def test_a_server_that_does_not_start_is_one_message(capsys, done, monkeypatch):
    def refuse(_self, _settings, _max_s):
        raise HostError("cannot start the server")

    monkeypatch.setattr(Program, "start", refuse)
    assert call(capsys, **STARTED, listen=LISTEN)["msg"] == "cannot start the server"
