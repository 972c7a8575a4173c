# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fabric_netplan from options to result."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.fabric import guard
from ansible_collections.gb10.ring.plugins.modules import fabric_netplan
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands, link
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

NAME = "/etc/netplan/60-gb10-ring.yaml"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose one leg is still down; returns its stand-ins and its root."""
    commands = Commands(tmp_path / "bin", monkeypatch)
    commands.links(link("enp1s0f0np0", mtu=1500, flags=()))
    for name in ("netplan", "nmcli", "networkctl", "rdma", "systemd-run"):
        commands.script(name, "exit 0")
    commands.script("systemctl", "echo inactive; exit 3")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    root = tmp_path / "root"
    (root / "etc/netplan").mkdir(parents=True)
    (root / "var/lib/gb10-ring").mkdir(parents=True)
    monkeypatch.setattr(fabric_netplan, "ROOT", root)
    return commands, root


def run(capsys, phase: str, check: bool = False, **options):
    arguments = {"node": "spark1", "ports": PORTS[:1], "phase": phase, **options, "_ansible_check_mode": check}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        fabric_netplan.main()
    return json.loads(capsys.readouterr().out)


def test_plan_looks_and_changes_nothing(machine, capsys):
    _commands, root = machine
    result = run(capsys, "plan")
    assert (result["changed"], result["pending"], result["armed"], result["leftover"]) == (False, True, True, "none")
    assert [check["id"] for check in result["checks"]] == [
        "fabric.netplan",
        "fabric.foreign",
        "fabric.management",
        "fabric.serving",
    ]
    assert list((root / "etc/netplan").iterdir()) == []


def test_check_mode_says_what_apply_does_and_then_it_rests(machine, capsys):
    commands, root = machine
    file = root / NAME.lstrip("/")
    dry = run(capsys, "apply", check=True)
    assert dry["reasons"] == [f"{NAME}: absent", "enp1s0f0np0: interface differs"]
    assert not file.exists()
    assert commands.calls("systemd-run") == []
    wet = run(capsys, "apply")
    assert (wet["diff"], wet["reasons"], wet["changed"]) == (dry["diff"], dry["reasons"], True)
    assert file.read_text() == wet["diff"][0]["after"]
    assert (wet["leftover"], wet["outcome"]) == ("armed", None)
    commands.links(link("enp1s0f0np0", "10.100.0.1/24"))
    run(capsys, "confirm")
    assert run(capsys, "clean")["leftover"] == "none"
    again = run(capsys, "apply")
    assert (again["changed"], again["diff"], again["path"]) == (False, [], NAME)


def test_a_second_apply_waits_for_the_first(machine, capsys):
    run(capsys, "apply")
    result = run(capsys, "apply")
    assert result["failed"] is True
    assert "an earlier change waits for its confirmation" in result["msg"]
    assert run(capsys, "rollback", check=True)["changed"] is False
    assert run(capsys, "rollback")["changed"] is True


def test_a_mode_is_set_right_without_a_timer(machine, capsys):
    commands, root = machine
    run(capsys, "apply")
    commands.links(link("enp1s0f0np0", "10.100.0.1/24"))
    run(capsys, "confirm")
    file = root / NAME.lstrip("/")
    file.chmod(0o644)
    before = len(commands.calls("systemd-run"))
    result = run(capsys, "apply")
    assert (result["changed"], result["armed"], result["leftover"]) == (True, False, "none")
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(commands.calls("systemd-run")) == before


def test_plan_removes_a_confirmed_backup_that_was_left(machine, capsys):
    run(capsys, "apply")
    run(capsys, "confirm")
    assert run(capsys, "plan", check=True)["leftover"] == "confirmed"
    assert run(capsys, "plan")["leftover"] == "none"


def test_what_speaks_against_it_fails_apply_with_all_of_it(machine, capsys):
    commands, root = machine
    commands.script("systemctl", "echo active")
    (root / "etc/netplan/40-cx7.yaml").write_text("network: {ethernets: {enp1s0f0np0: {dhcp4: true}}}\n")
    result = run(capsys, "apply")
    assert result["failed"] is True
    for part in (
        "fabric.foreign",
        "40-cx7.yaml",
        "fabric.serving",
        "fabric_apply_while_serving: true",
        "nothing was changed",
    ):
        assert part in result["msg"]
    assert not (root / NAME.lstrip("/")).exists()
    assert run(capsys, "apply", foreign="migrate", while_serving=True)["changed"] is True
    assert not (root / "etc/netplan/40-cx7.yaml").exists()


def test_confirming_nothing_is_an_error(machine, capsys):
    assert "the change was undone" in run(capsys, "confirm")["msg"]
    assert run(capsys, "confirm", check=True)["changed"] is False


def test_prove_shows_the_legs(machine, capsys):
    result = run(capsys, "prove", check_timeout=0)
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [
        ("fabric.presence", True),
        ("fabric.carrier", False),
    ]
    assert run(capsys, "prove", state="absent")["checks"] == []


def test_status(machine, capsys):
    _commands, root = machine
    guard.save(root / "var/lib/gb10-ring" / guard.LAST, {"at": "noon", "why": "it was rolled back", "problems": []})
    assert run(capsys, "status")["last_restore"]["at"] == "noon"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ports": []}, "ports is empty, expected the netdevs of the fabric (fabric_ports)"),
        ({"mtu": 10000}, "mtu is 10000, expected 1280 to 9216 bytes"),
        ({"path": "/etc/x.yaml"}, "path is '/etc/x.yaml', expected a file directly in /etc/netplan"),
        ({"confirm_timeout": 5}, "confirm_timeout is 5, expected 15 to 600 seconds"),
    ],
)
def test_bad_options(machine, capsys, options, message):
    result = run(capsys, "apply", **options)
    assert result["failed"] is True
    assert result["msg"].startswith(message)
