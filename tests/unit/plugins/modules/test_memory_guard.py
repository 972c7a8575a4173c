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

from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory import guard_install
from ansible_collections.gb10.ring.plugins.module_utils.memory.guard_notice import token_print
from ansible_collections.gb10.ring.plugins.modules import memory_guard

TOKEN, OTHER = "a" * 48, "b" * 48
UNIT = "gb10-ring-guard.service"


class Systemd:
    """As much of systemctl as the module uses; a started guard writes its status."""

    def __init__(self, root) -> None:
        self.root, self.active, self.enabled, self.broken = root, False, False, False
        self.calls: list[str] = []

    def run(self, argv, timeout=60.0, check=True):
        verb = argv[1] if argv[0] == "systemctl" else argv[0]
        if verb == "show":
            said = f"ActiveState={'active' if self.active else 'inactive'}\n"
            return Completed(tuple(argv), 0, said + f"UnitFileState={'enabled' if self.enabled else ''}\n", "")
        self.calls.append(verb)
        if verb == "journalctl":
            return Completed(tuple(argv), 0, "ImportError\n", "")
        if verb == "restart":
            if self.broken:
                raise HostError("systemctl restart: exit 1")
            self.active = True
            self.say()
        if verb == "enable":
            self.enabled = True
        if verb == "disable":
            self.active = self.enabled = False
            (self.root / "run/gb10-ring-guard/status.json").unlink()
        return Completed(tuple(argv), 0, "", "")

    def say(self) -> None:
        settings = json.loads((self.root / "etc/gb10-ring/memory-guard.json").read_text())
        status = {
            "phase": "idle",
            "run": "",
            "at": time.monotonic(),
            "armed_since": time.time(),
            "memory": {},
            "answered": {"spark2": time.monotonic()},
            "digest": settings["digest"],
        }
        path = self.root / "run/gb10-ring-guard/status.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(status))


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    one = Systemd(tmp_path)
    monkeypatch.setattr(guard_install, "run", one.run)
    return one


def call(root, capsys, check=False, **options):
    arguments = {
        "node": "spark1",
        "addresses": {"spark1": "192.0.2.11", "spark2": "192.0.2.12"},
        "etc_root": str(root / "etc"),
        "lib_root": str(root / "lib"),
        "state_root": str(root / "state"),
        "run_root": str(root / "run"),
        "_ansible_check_mode": check,
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        memory_guard.main()
    return json.loads(capsys.readouterr().out)


def files(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_check_mode_shows_all_of_it_and_changes_nothing(systemd, tmp_path, capsys):
    result = call(tmp_path, capsys, check=True, token=TOKEN)
    assert result["changed"]
    assert files(tmp_path) == []
    assert systemd.calls == []
    headers = [entry["before_header"].removeprefix(f"{tmp_path}/") for entry in result["diff"]]
    assert headers == [
        "lib/gb10-ring/memory_guard/guard.py",
        "lib/gb10-ring/memory_guard/guard_machine.py",
        "lib/gb10-ring/memory_guard/guard_notice.py",
        "lib/gb10-ring/memory_guard/guard_service.py",
        "etc/systemd/system/gb10guard.slice",
        f"etc/systemd/system/{UNIT}",
        "etc/gb10-ring/memory-guard.json",
        "etc/gb10-ring/memory-guard.token",
        f"{UNIT} at boot",
        UNIT,
    ]
    assert not result["checks"][0]["ok"]


def test_it_does_what_it_showed_and_the_second_run_nothing(systemd, tmp_path, capsys):
    shown = call(tmp_path, capsys, check=True, token=TOKEN)
    done = call(tmp_path, capsys, token=TOKEN)
    assert done["changed"]
    assert done["diff"] == shown["diff"]
    assert systemd.calls == ["daemon-reload", "enable", "restart"]
    assert all(check["ok"] for check in done["checks"])
    systemd.calls.clear()
    again = call(tmp_path, capsys, token=TOKEN)
    assert not again["changed"]
    assert again["diff"] == []
    assert systemd.calls == []


def test_the_token_is_for_root_and_never_shown(systemd, tmp_path, capsys):
    done = call(tmp_path, capsys, token=TOKEN)
    token = tmp_path / "etc/gb10-ring/memory-guard.token"
    assert token.read_text() == TOKEN + "\n"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert TOKEN not in json.dumps({**done, "invocation": None})
    assert done["token_print"] == token_print(TOKEN)
    systemd.calls.clear()
    other = call(tmp_path, capsys, token=OTHER)
    assert [entry["before_header"] for entry in other["diff"]] == [str(token)]
    assert systemd.calls == []  # it reads the file again each time
    assert OTHER not in json.dumps({**other, "invocation": None})
    kept = call(tmp_path, capsys)
    assert not kept["changed"]
    assert kept["token_print"] == token_print(OTHER)


@pytest.mark.parametrize(
    ("drift", "calls"),
    [
        ("lib/gb10-ring/memory_guard/guard.py", []),
        ("etc/gb10-ring/memory-guard.json", []),
        (f"etc/systemd/system/{UNIT}", ["daemon-reload"]),
    ],
)
def test_drift_of_a_file_is_repaired(systemd, tmp_path, capsys, drift, calls):
    call(tmp_path, capsys)
    good = (tmp_path / drift).read_text()
    (tmp_path / drift).write_text("# other\n")
    systemd.calls.clear()
    assert call(tmp_path, capsys)["changed"]
    assert (tmp_path / drift).read_text() == good
    assert systemd.calls == calls


def test_a_stopped_guard_is_armed_again_and_a_new_limit_restarts_it(systemd, tmp_path, capsys):
    call(tmp_path, capsys)
    systemd.active = False
    systemd.calls.clear()
    assert call(tmp_path, capsys)["changed"]
    assert call(tmp_path, capsys, limits={"stop_free_mib": 2048})["limits"]["stop_free_mib"] == 2048
    assert systemd.calls == ["restart", "restart"]


def test_a_guard_that_does_not_start_fails_the_call_with_its_last_words(systemd, tmp_path, capsys):
    systemd.broken = True
    result = call(tmp_path, capsys)
    assert result["failed"]
    assert result["msg"] == (
        "spark1: the memory guard does not start: systemctl restart: exit 1. Its last lines:\nImportError"
    )


def test_absent_leaves_nothing(systemd, tmp_path, capsys):
    (tmp_path / "etc/gb10-ring").mkdir(parents=True)
    (tmp_path / "etc/gb10-ring/engine.json").write_text("{}")
    call(tmp_path, capsys, token=TOKEN)
    (tmp_path / "state/memory-guard-last.json").write_text("{}")
    shown = call(tmp_path, capsys, check=True, state="absent")
    done = call(tmp_path, capsys, state="absent")
    assert shown["diff"] == done["diff"]
    assert done["changed"]
    assert done["checks"] == []
    assert TOKEN not in json.dumps(done)
    assert files(tmp_path) == ["etc/gb10-ring/engine.json"]
    assert not (tmp_path / "lib/gb10-ring").exists()
    assert not (tmp_path / "state").exists()
    assert not call(tmp_path, capsys, state="absent")["changed"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"addresses": {"spark2": "192.0.2.12"}}, "addresses has no entry for spark1"),
        (
            {"addresses": {"spark1": "here", "spark2": ""}},
            "addresses gives 'here' for spark1, expected an IPv4 address; ",
        ),
        ({"addresses": {"spark1": "192.0.2.1", "spark2": "192.0.2.1"}}, "gives two nodes the same address"),
        ({"port": 0, "limits": {"floor_mib": -1}}, "port is 0, expected 1 to 65535; limits: floor_mib is -1"),
        ({"token": "short"}, "token is not of 32 or more ASCII characters"),
    ],
)
def test_bad_options_are_told_all_at_once_and_change_nothing(systemd, tmp_path, capsys, options, said):
    result = call(tmp_path, capsys, **options)
    assert result["failed"]
    assert said in result["msg"]
    assert files(tmp_path) == []


def test_what_is_installed_runs_without_the_collection(systemd, tmp_path, capsys):
    """The unit's own command, up to the first look."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemFree: 1048576 kB\nMemAvailable: 1048576 kB\nCached: 0 kB\n")
    call(tmp_path, capsys, meminfo_path=str(meminfo), addresses={"spark1": "127.0.0.1"}, port=17872)
    unit = (tmp_path / f"etc/systemd/system/{UNIT}").read_text()
    command = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    assert command.startswith(f"ExecStart={sys.executable} -EsSB -c ")
    settings = tmp_path / "etc/gb10-ring/memory-guard.json"
    code = (
        "import sys; sys.modules['_hashlib'] = None; from memory_guard import guard_service; "
        "one = guard_service.Guard(__import__('json').load(open(sys.argv[-1]))); one.round()"
    )
    assert code.split("guard_service;", maxsplit=1)[0] in command
    done = subprocess.run(
        [sys.executable, "-EsSB", "-c", code, str(settings)],
        cwd=tmp_path / "lib/gb10-ring",
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status = json.loads((tmp_path / "run/gb10-ring-guard/status.json").read_text())
    assert status["memory"] == {"free": 1024, "available": 1024, "cached": 0}
