# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils import own_service_host
from ansible_collections.gb10.ring.plugins.module_utils.engine.watch import Limits, State
from ansible_collections.gb10.ring.plugins.module_utils.engine.watch_unit import UNIT
from ansible_collections.gb10.ring.plugins.module_utils.host import Completed
from ansible_collections.gb10.ring.plugins.modules import engine_watch


class Systemd:
    """As much of systemctl as the module uses; a started watchdog writes its status."""

    def __init__(self, root) -> None:
        self.root, self.active, self.enabled = root, False, False
        self.calls: list[str] = []
        self.state = State(since=5.0)
        self.more: dict[str, object] = {}

    def run(self, argv, timeout=60.0, check=True):
        verb = argv[1]
        if verb == "show":
            said = f"ActiveState={'active' if self.active else 'inactive'}\n"
            return Completed(tuple(argv), 0, said + f"UnitFileState={'enabled' if self.enabled else ''}\n", "")
        self.calls.append(verb)
        if verb == "restart":
            self.active = True
            self.say()
        if verb == "enable":
            self.enabled = True
        if verb == "disable":
            self.active = self.enabled = False
            self.path.unlink()
        return Completed(tuple(argv), 0, "", "")

    @property
    def path(self):
        return self.root / "run/gb10-ring-watch/status.json"

    def say(self, **more) -> None:
        settings = json.loads((self.root / "etc/gb10-ring/watch.json").read_text())
        status = {
            "at": time.monotonic(),
            "digest": settings["digest"],
            "state": self.state._asdict(),
            "ages": [],
            **more,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(status))


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    one = Systemd(tmp_path)
    monkeypatch.setattr(own_service_host, "run", one.run)
    return one


def call(root, capsys, check=False, **options):
    roots = {f"{name}_root": str(root / name) for name in ("etc", "lib", "state", "run")}
    arguments = {"node": "spark1", **roots, "_ansible_check_mode": check, "_ansible_diff": True, **options}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        engine_watch.main()
    return json.loads(capsys.readouterr().out)


def only(result):
    return {check["id"]: check for check in result["checks"]}


def test_it_is_installed_once_and_watches(tmp_path, systemd, capsys):
    dry = call(tmp_path, capsys, check=True)
    assert dry["changed"] and not systemd.calls and not (tmp_path / "etc").exists()
    assert only(dry)["engine.watchdog"]["found"] == f"{UNIT} does not run"
    first = call(tmp_path, capsys)
    assert (first["changed"], first["diff"]) == (True, dry["diff"])
    assert systemd.calls == ["daemon-reload", "enable", "restart"]
    assert only(first)["engine.watchdog"]["ok"], first["checks"]
    assert first["limits"] == Limits()._asdict()
    second = call(tmp_path, capsys)
    assert not second["changed"] and len(systemd.calls) == 3


def test_other_limits_restart_it(tmp_path, systemd, capsys):
    call(tmp_path, capsys)
    systemd.calls.clear()
    changed = call(tmp_path, capsys, limits={"busy_grace_s": "1800", "relaunches": 5})
    assert changed["limits"]["busy_grace_s"] == 1800 and changed["limits"]["relaunches"] == 5
    assert systemd.calls == ["restart"]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"patience": 3}, "limits: unknown patience; there are interval_s, health_timeout_s"),
        ({"failures": "many"}, "limits: expected numbers"),
        ({"window_s": 0, "failures": 0.5}, "limits: failures, window_s: expected more than 0"),
    ],
)
def test_limits_that_are_wrong(tmp_path, systemd, capsys, limits, said):
    result = call(tmp_path, capsys, limits=limits)
    assert result["failed"] and result["msg"].startswith("spark1: ") and said in result["msg"]
    assert not systemd.calls


AGAIN = "2 within 21600 s, the last 5 s ago, it is starting; incident i1: spark2: no memory"


@pytest.mark.parametrize(
    ("wrote", "expected"),
    [
        (("armed", []), (True, None)),
        (("armed", [100]), (True, "1 within 21600 s, the last 100 s ago; incident i1: spark2: no memory")),
        (("starting", [5, 90]), (True, AGAIN)),
        (("armed", [30000]), (True, None)),
        (("gave-up", [5]), (False, None)),
    ],
)
def test_what_it_did_is_told(tmp_path, systemd, capsys, wrote, expected):
    call(tmp_path, capsys)
    systemd.state = State(wrote[0], why="failed 3 times")
    systemd.say(ages=wrote[1], reported="i1", cause="spark2: no memory")
    found = only(call(tmp_path, capsys))
    assert (found["engine.watchdog"]["ok"], (found.get("engine.relaunched") or {}).get("found")) == expected
    if not expected[0]:
        check = found["engine.watchdog"]
        assert check["found"] == "gave up, waiting for a person: failed 3 times; incident i1: spark2: no memory"
        assert "diagnosis.txt" in check["cure"]


def test_one_that_does_not_speak_any_more(tmp_path, systemd, capsys):
    call(tmp_path, capsys)
    systemd.say(at=time.monotonic() - 200)
    assert "has not said anything for more than 95 s" in only(call(tmp_path, capsys))["engine.watchdog"]["found"]
    systemd.enabled = False
    assert only(call(tmp_path, capsys, check=True))["engine.watchdog"]["found"] == f"{UNIT} is not started at boot"


def test_absent_leaves_nothing(tmp_path, systemd, capsys):
    call(tmp_path, capsys)
    (tmp_path / "etc/gb10-ring/watch-hold").touch()
    gone = call(tmp_path, capsys, state="absent")
    assert gone["changed"] and gone["checks"] == [] and "limits" not in gone
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not (tmp_path / "lib/gb10-ring").exists() and not (tmp_path / "etc/gb10-ring").exists()
    assert not call(tmp_path, capsys, state="absent")["changed"]


def test_the_installed_program_runs_without_ansible(tmp_path, systemd, capsys):
    call(tmp_path, capsys, limits={"interval_s": 0.1})
    program = "from engine_watch.engine import watch_service; watch_service.main()"
    running = subprocess.Popen(
        [sys.executable, "-EsSB", "-c", program, str(tmp_path / "etc/gb10-ring/watch.json")],
        cwd=tmp_path / "lib/gb10-ring",
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout.readline() == "<6>watching, waiting: no full pass yet\n"
    finally:
        running.kill()
        running.wait()


def test_the_unit_is_hardened_and_speaks_within_its_time(tmp_path, systemd, capsys):
    call(tmp_path, capsys)
    unit = (tmp_path / f"etc/systemd/system/{UNIT}").read_text()
    for line in ("NoNewPrivileges=true", "ProtectSystem=strict", "CapabilityBoundingSet=\n", "WatchdogSec=280\n"):
        assert line in unit
    assert (
        f'-EsSB -c "from engine_watch.engine import watch_service; watch_service.main()" {tmp_path}/etc/gb10-ring/watch.json'
        in unit
    )
