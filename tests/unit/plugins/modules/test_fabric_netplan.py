# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fabric_netplan from options to result."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.modules import fabric_netplan
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands, link
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

NAME = "/etc/netplan/60-gb10-ring.yaml"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose one leg is still down; returns its stand-ins and its netplan file."""
    commands = Commands(tmp_path / "bin", monkeypatch)
    commands.links(link("enp1s0f0np0", mtu=1500, flags=()))
    commands.script("netplan", "exit 0")
    root = tmp_path / "root"
    (root / "etc/netplan").mkdir(parents=True)
    monkeypatch.setattr(fabric_netplan, "ROOT", root)
    return commands, root / "etc/netplan/60-gb10-ring.yaml"


def run(capsys, check: bool = False, **options):
    arguments = {"ports": PORTS[:1], "mtu": 9000, **options, "_ansible_check_mode": check}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        fabric_netplan.main()
    return json.loads(capsys.readouterr().out)


def test_check_mode_validates_and_changes_nothing(machine, capsys):
    commands, file = machine
    result = run(capsys, check=True)
    assert result["changed"] is True
    assert result["reasons"] == [f"{NAME}: absent", "enp1s0f0np0: interface differs"]
    assert [part["before_header"] for part in result["diff"]] == [NAME, "enp1s0f0np0"]
    assert "10.100.0.1/24" in result["diff"][0]["after"]
    assert not file.exists()
    assert [call.split()[0] for call in commands.calls("netplan")] == ["generate"]


def test_apply_gives_the_diff_of_check_mode_and_then_rests(machine, capsys):
    commands, file = machine
    dry = run(capsys, check=True)
    wet = run(capsys)
    assert (wet["diff"], wet["reasons"], wet["changed"]) == (dry["diff"], dry["reasons"], True)
    assert file.read_text() == wet["diff"][0]["after"]
    assert [call.split()[0] for call in commands.calls("netplan")] == ["generate", "generate", "apply"]
    commands.links(link("enp1s0f0np0", "10.100.0.1/24"))
    again = run(capsys)
    assert (again["changed"], again["diff"], again["path"]) == (False, [], NAME)
    assert len(commands.calls("netplan")) == 3


def test_a_refused_configuration_changes_nothing(machine, capsys):
    commands, file = machine
    commands.script("netplan", 'echo "$3/etc/netplan/01-x.yaml:2:1: Invalid YAML: tabs" >&2; exit 1')
    result = run(capsys)
    assert result["failed"] is True
    assert result["msg"].startswith("/etc/netplan/01-x.yaml, line 2: netplan does not accept it: Invalid YAML: tabs.")
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ports": []}, "ports is empty, expected the netdevs of the fabric (fabric_ports)"),
        ({"mtu": 10000}, "mtu is 10000, expected 1280 to 9216 bytes"),
        ({"path": "/etc/x.yaml"}, "path is '/etc/x.yaml', expected a file directly in /etc/netplan"),
    ],
)
def test_bad_options(machine, capsys, options, message):
    result = run(capsys, **options)
    assert result["failed"] is True
    assert result["msg"].startswith(message)
