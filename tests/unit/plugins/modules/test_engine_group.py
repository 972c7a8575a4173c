# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import stat
import subprocess
import sys
import time

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils import own_service_host
from ansible_collections.gb10.ring.plugins.module_utils.engine import group_call
from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError
from ansible_collections.gb10.ring.plugins.modules import engine_group

TOKEN = "a" * 48
UNIT = "gb10-ring-group.service"


class Systemd:
    """As much of systemctl as the module uses; a started supervisor writes its status."""

    def __init__(self, root) -> None:
        self.root, self.active, self.enabled, self.broken = root, False, False, False
        self.calls: list[str] = []
        self.other = "running"

    def run(self, argv, timeout=60.0, check=True):
        verb = argv[1] if argv[0] == "systemctl" else argv[0]
        if verb == "show":
            said = f"ActiveState={'active' if self.active else 'inactive'}\n"
            return Completed(tuple(argv), 0, said + f"UnitFileState={'enabled' if self.enabled else ''}\n", "")
        self.calls.append(verb)
        if verb == "journalctl":
            return Completed(tuple(argv), 0, "ImportError\n", "")
        if verb == "restart" and self.broken:
            raise HostError("systemctl restart: exit 1")
        self.active = {"restart": True, "disable": False}.get(verb, self.active)
        self.enabled = {"enable": True, "disable": False}.get(verb, self.enabled)
        if verb == "restart":
            self.say()
        return Completed(tuple(argv), 0, "", "")

    def say(self, at=None) -> None:
        settings = json.loads((self.root / "etc/gb10-ring/group.json").read_text())
        ranks = {"spark1": {"state": "stopped"}, "spark2": {"state": self.other}}
        status = {"at": time.monotonic() if at is None else at, "ranks": ranks, "digest": settings["digest"]}
        path = self.root / "run/gb10-ring-group/status.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**status, "incident": {"id": "I"}}))


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    one = Systemd(tmp_path)
    monkeypatch.setattr(own_service_host, "run", one.run)
    monkeypatch.setattr(own_service_host, "_POLL_S", 0.01)
    return one


def call(root, capsys, check=False, **options):
    roots = {f"{name}_root": str(root / name) for name in ("etc", "usr", "state", "run")}
    arguments = {
        "node": "spark1",
        "ranks": {"spark1": 0, "spark2": 1},
        "addresses": {"spark1": "192.0.2.11", "spark2": "192.0.2.12"},
        **roots,
        **options,
        "_ansible_check_mode": check,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        engine_group.main()
    return json.loads(capsys.readouterr().out)


def files(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "run/" not in str(path))


def test_install_once_then_no_change_then_nothing_left(systemd, tmp_path, capsys):
    assert call(tmp_path, capsys, check=True, token=TOKEN)["changed"]
    assert files(tmp_path) == []
    first = call(tmp_path, capsys, token=TOKEN)
    assert first["changed"]
    assert first["checks"][0]["ok"]
    assert first["checks"][0]["found"] == "spark1 stopped, spark2 running"
    assert first["incident"] == {"id": "I"}
    assert systemd.calls == ["daemon-reload", "enable", "restart"]
    assert TOKEN not in json.dumps(first)
    token = tmp_path / "etc/gb10-ring/group.token"
    assert (token.read_text().strip(), stat.S_IMODE(token.stat().st_mode)) == (TOKEN, 0o600)
    assert stat.S_IMODE((tmp_path / "usr/sbin/gb10-ring-group").stat().st_mode) == 0o755
    assert len(files(tmp_path)) == len(group_call.PROGRAM) + 4
    again = call(tmp_path, capsys)
    assert (again["changed"], again["token_print"]) == (False, first["token_print"])
    gone = call(tmp_path, capsys, state="absent")
    assert gone["changed"]
    assert files(tmp_path) == []
    assert not (tmp_path / "usr/lib/gb10-ring").exists()
    assert not call(tmp_path, capsys, state="absent")["changed"]


def test_what_is_installed_runs_without_ansible(systemd, tmp_path, capsys):
    call(tmp_path, capsys, token=TOKEN)
    settings = json.loads((tmp_path / "etc/gb10-ring/group.json").read_text())
    assert settings["peers"] == {"spark2": {"rank": 1, "address": "192.0.2.12"}}
    program = (
        "import json, sys; from engine_group.engine import group_service; "
        "one = group_service.Supervisor(json.load(open(sys.argv[1]))); one.round(); "
        "print(one.me.rank, sorted(one.others), [name for name in sys.modules if name.startswith('ansible')])"
    )
    done = subprocess.run(
        [sys.executable, "-EsSB", "-c", program, str(tmp_path / "etc/gb10-ring/group.json")],
        cwd=tmp_path / "usr/lib/gb10-ring",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0 ['spark2'] []", "")
    status = json.loads((tmp_path / "run/gb10-ring-group/status.json").read_text())
    assert status["digest"] == settings["digest"]
    command = subprocess.run(
        [str(tmp_path / "usr/sbin/gb10-ring-group"), "--help"], capture_output=True, text=True, check=False
    )
    assert "{status,stop,start}" in command.stdout, command.stderr


def test_the_unit_is_up_before_the_engine_and_confined(systemd, tmp_path, capsys):
    call(tmp_path, capsys, token=TOKEN)
    lines = (tmp_path / f"etc/systemd/system/{UNIT}").read_text().splitlines()
    for line in (
        "Before=gb10-ring-engine.service",
        "WantedBy=multi-user.target gb10-ring-engine.service",
        "Restart=always",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "NoNewPrivileges=true",
        "RuntimeDirectoryPreserve=yes",
        "StateDirectory=gb10-ring/incidents",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda systemd: setattr(systemd, "active", False), f"{UNIT} does not run"),
        (lambda systemd: systemd.say(at=0.0), "it has not said anything for a while"),
        (lambda systemd: (setattr(systemd, "other", "unknown"), systemd.say()), "it does not hear spark2"),
    ],
)
def test_what_the_check_finds(systemd, tmp_path, capsys, make, found):
    call(tmp_path, capsys, token=TOKEN)
    make(systemd)
    check = call(tmp_path, capsys, check=True, wait_s=0)["checks"][0]
    assert (check["id"], check["ok"], check["found"]) == ("engine.group", False, found)


def test_a_supervisor_of_other_files_is_said_and_started_anew(systemd, tmp_path, capsys):
    call(tmp_path, capsys, token=TOKEN)
    systemd.calls.clear()
    check = call(tmp_path, capsys, check=True, silence_s=60)
    assert check["checks"][0]["found"] == "it runs from other files than the wanted ones"
    assert call(tmp_path, capsys, silence_s=60)["checks"][0]["ok"]
    assert systemd.calls == ["restart"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ranks": {"spark1": 0, "spark2": 2}}, "ranks are [0, 2], expected 0 to 1"),
        ({"ranks": {"spark1": "x"}}, "expected a whole number for each node"),
        ({"node": "spark9"}, "expected the nodes of the group, spark9 too"),
        (
            {"addresses": {"spark1": "192.0.2.11", "spark2": "x"}},
            "addresses gives 'x' for spark2, expected an IPv4 address",
        ),
        ({"addresses": {"spark1": "192.0.2.11", "spark2": "192.0.2.11"}}, "gives two nodes the same address"),
        ({"token": "short"}, "token is not of 32 or more ASCII characters"),
        ({"silence_s": 1}, "silence_s is 1, expected 5 to 3600"),
        ({"port": 0, "stop_s": 0}, "port is 0, expected 1 to 65535; stop_s is 0, expected 1 to 600"),
    ],
)
def test_refusals_change_nothing(systemd, tmp_path, capsys, options, says):
    result = call(tmp_path, capsys, **options)
    assert result["failed"]
    assert says in result["msg"]
    assert files(tmp_path) == []


def test_a_supervisor_that_does_not_start_says_why(systemd, tmp_path, capsys):
    systemd.broken = True
    result = call(tmp_path, capsys, token=TOKEN)
    assert result["msg"].startswith(
        f"spark1: {UNIT} does not start: systemctl restart: exit 1. Its last lines:\nImportError"
    )
