# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fabric_check from options to result."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.modules import fabric_check
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands, link
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS


@pytest.fixture
def commands(tmp_path, monkeypatch):
    stand_ins = Commands(tmp_path / "bin", monkeypatch)
    stand_ins.script("ping", "echo '2 packets transmitted, 2 received'")
    return stand_ins


def run(capsys, **options):
    arguments = {"ports": PORTS, "mtu": 9000, "node": "spark1", "timeout": 0, **options}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        fabric_check.main()
    return json.loads(capsys.readouterr().out)


def test_all_legs_up(commands, capsys):
    commands.links(*(link(port["netdev"], f"{port['address']}/24") for port in PORTS))
    result = run(capsys)
    assert (result["legs_up"], result["legs_total"], result["changed"]) == (4, 4, False)
    assert len(result["checks"]) == 20
    assert all(check["ok"] and check["node"] == "spark1" for check in result["checks"])
    assert set(result["checks"][0]) == {"id", "node", "ok", "severity", "found", "expected", "cure"}


def test_failed_checks_do_not_fail_the_module(commands, capsys):
    commands.links(link(PORTS[0]["netdev"], "10.100.0.1/24"), link(PORTS[1]["netdev"], "10.100.1.1/24", mtu=1500))
    result = run(capsys)
    assert (result["legs_up"], result["legs_total"], "failed" in result) == (1, 4, False)
    assert [check["id"] for check in result["checks"] if not check["ok"]] == [
        "fabric.mtu",
        "fabric.presence",
        "fabric.presence",
    ]


def test_runs_in_check_mode(commands, capsys):
    commands.links()
    assert run(capsys, _ansible_check_mode=True)["legs_up"] == 0


def test_bad_options(commands, capsys):
    assert run(capsys, ports=[])["msg"] == "ports is empty, expected the netdevs of the fabric (fabric_ports)"


def test_a_broken_ip_is_an_error(commands, capsys):
    commands.script("ip", "exit 255")
    result = run(capsys)
    assert (result["failed"], result["msg"]) == (True, "ip -j addr: exit 255: no output")
