# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service on a file tree: real files, systemctl written down instead of run. What neighbours tell is in test_guard_neighbours.py."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory import guard_machine, guard_service
from ansible_collections.gb10.ring.plugins.module_utils.memory.guard_profiles import RING
from ansible_collections.gb10.ring.tests.unit.fixtures.guarded_machine import UNIT, Machine, port


def test_a_drop_is_done_in_the_background_and_told_with_before_and_after(machine, capsys, monkeypatch):
    monkeypatch.setattr(guard_machine.os, "sync", lambda: None)
    machine.guard.round()
    machine.engine("a")
    machine.rounds((machine.root / "drop_caches").exists)
    machine.memory(12000)
    machine.rounds(lambda: "drop done" in capsys.readouterr().out or not machine.guard.jobs)
    assert (machine.root / "drop_caches").read_text() == "3\n"
    assert machine.status()["phase"] == "loading"


def test_what_a_drop_came_to_is_one_line(machine, capsys, monkeypatch):
    monkeypatch.setattr(guard_machine.os, "sync", lambda: machine.memory(12000))
    machine.guard.round()
    machine.engine("a")
    machine.guard.round()
    machine.rounds(lambda: "drop" not in machine.guard.jobs)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "<6>engine loading: MemFree 10240, MemAvailable 10340, page cache 100 MiB"
    assert said[1].startswith(
        "<6>drop done (the engine starts): MemFree 10240 -> 12000, MemAvailable 10340 -> 12100, page cache 100 -> 100 MiB in "
    )


def test_a_drop_that_fails_says_so(machine, capsys):
    machine.paths["drop_caches"] = str(machine.root / "no/where")
    machine.guard.round()
    machine.engine("a")
    machine.guard.round()
    machine.rounds(lambda: not machine.guard.jobs)
    assert "<3>drop failed: [Errno 2] No such file or directory" in capsys.readouterr().out


def test_a_stop_kills_and_keeps_systemd_from_restarting_and_leaves_a_record(machine, systemctl, capsys):
    systemctl.machine = machine
    machine.engine("a")
    machine.guard.round()
    machine.memory(700, 0)
    machine.rounds((machine.root / "last").exists)
    assert systemctl.calls == [
        ["systemctl", "stop", "--no-block", UNIT],
        ["systemctl", "kill", "--signal=KILL", UNIT],
    ]
    assert (machine.root / "cgroup_kill").read_text() == "1\n"
    said = [line for line in capsys.readouterr().out.splitlines() if "stop" in line]
    assert len(said) == 1
    assert said[0].startswith("<3>stop: 700 MiB are left and ")
    assert "; MemFree 700 -> 700, MemAvailable 700 -> 700, page cache 0 -> 0 MiB in " in said[0]
    last = json.loads((machine.root / "last").read_text())
    assert (last["run"], last["told"], last["problem"]) == ("a", False, "")
    assert "MemFree 700 -> 700, MemAvailable 700 -> 700" in last["figures"]
    machine.rounds(lambda: machine.status()["phase"] == "idle")
    machine.engine("b")
    machine.rounds(lambda: machine.status()["phase"] == "loading")


def test_an_engine_that_will_not_die_is_told(machine, systemctl, capsys, monkeypatch):
    monkeypatch.setattr(guard_machine, "STOP_WAIT_S", 0.01)
    machine.engine("a")
    machine.guard.round()
    machine.memory(700, 0)
    machine.rounds((machine.root / "last").exists)
    assert len(systemctl.calls) == 2 * guard_machine.STOP_TRIES
    assert f"stop failed: {UNIT} still runs after 5 tries: systemctl says nothing" in capsys.readouterr().out
    assert machine.status()["phase"] == "stopped"


def test_systemctl_that_cannot_be_run_is_told(machine, capsys, monkeypatch):
    def broken(argv, **_more):
        raise OSError("out of memory")

    monkeypatch.setattr(guard_machine, "STOP_WAIT_S", 0.01)
    monkeypatch.setattr(guard_machine.subprocess, "run", broken)
    assert "out of memory; out of memory" in guard_machine.stop(UNIT, machine.paths, lambda: False)


@pytest.mark.parametrize(
    ("record", "between"),
    [({}, []), ({"renderer": "venv"}, []), ({"renderer": "docker"}, [["docker", "kill", "engine"]])],
)
def test_a_container_of_docker_is_killed_by_docker(record, between):
    assert guard_machine.stop_commands(UNIT, record) == [
        ["systemctl", "stop", "--no-block", UNIT],
        *between,
        ["systemctl", "kill", "--signal=KILL", UNIT],
    ]


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_an_engine_without_a_record_is_stopped_all_the_same(machine, systemctl, text):
    systemctl.machine = machine
    machine.engine("a")
    if text is not None:
        (machine.root / "engine").write_text(text)
    assert guard_machine.stop(UNIT, machine.paths, lambda: True) == ""
    assert len(systemctl.calls) == 2


def test_a_memory_file_that_cannot_be_read_is_told_once_and_guards_nothing(machine, capsys):
    (machine.root / "meminfo").write_text("nothing\n")
    for _attempt in range(3):
        assert machine.guard.round() == RING.interval_s
    said = capsys.readouterr().out
    assert said.count("so that nothing is guarded: no MemFree, MemAvailable, Cached in it") == 1
    assert "nothing is guarded" in machine.status()["problem"]
    machine.memory(10240)
    machine.guard.round()
    assert "can be read again" in capsys.readouterr().out


class Health(http.server.BaseHTTPRequestHandler):
    answer = 503

    def do_GET(self):
        assert self.path == "/health"
        self.send_response(self.answer)
        self.end_headers()

    def log_message(self, *_args):
        pass


@pytest.fixture
def api():
    server = http.server.HTTPServer(("127.0.0.1", 0), Health)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_the_engine_serves_once_its_api_says_so(machine, api, monkeypatch):
    monkeypatch.setattr(guard_service, "HEALTH_EVERY_S", 0.05)
    monkeypatch.setattr(guard_machine.os, "sync", lambda: None)
    url = f"http://127.0.0.1:{api.server_address[1]}"
    (machine.root / "engine").write_text(json.dumps({"url": url}))
    assert guard_machine.healthy(machine.paths["engine"]) == "answered [b'HTTP/1.0', b'503']"
    machine.engine("a")
    machine.guard.round()
    machine.rounds(lambda: machine.guard.health[0] > 0)
    assert machine.status()["phase"] == "loading"
    monkeypatch.setattr(Health, "answer", 200)
    machine.rounds(lambda: machine.guard.state.phase == "serving")
    machine.engine("b")
    machine.guard.round()
    assert machine.guard.state.phase == "loading"


def test_an_address_that_is_not_there_yet_can_be_bound(tmp_path):
    early = Machine(tmp_path / "a", "spark1", "192.0.2.77", port(), {})
    early.guard.open()
    assert early.guard.channel is not None
    early.guard.channel.close()


def test_systemd_is_told_that_it_is_ready(tmp_path, monkeypatch):
    address = str(tmp_path / "notify")
    with guard_service.socket.socket(guard_service.socket.AF_UNIX, guard_service.socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        guard_machine.notify("READY=1")
        assert systemd.recv(100) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    guard_machine.notify("READY=1")


def test_it_arms_before_it_says_so(machine, monkeypatch, tmp_path, capsys):
    """main, ended at its second look."""
    told = []

    class EndedError(Exception):
        pass

    def notify(text):
        told.append((text, machine.status()["phase"]))
        if text == "WATCHDOG=1":
            raise EndedError

    settings = tmp_path / "settings.json"
    settings.write_text(
        json.dumps(
            {
                "node": "spark1",
                "unit": UNIT,
                "address": "127.0.0.1",
                "port": port(),
                "peers": {},
                "limits": RING._asdict(),
                "paths": machine.paths,
                "digest": "d",
            }
        )
    )
    monkeypatch.setattr(guard_service, "notify", notify)
    monkeypatch.setattr(guard_machine, "lock_memory", lambda: None)  # it would lock the tests' own pages
    monkeypatch.setattr(guard_service.sys, "argv", ["-c", str(settings)])
    (machine.root / "meminfo").rename(machine.root / "away")
    with pytest.raises(FileNotFoundError):
        guard_service.main()
    assert told == []
    (machine.root / "away").rename(machine.root / "meminfo")
    with pytest.raises(EndedError):
        guard_service.main()
    assert told == [("READY=1", "idle"), ("WATCHDOG=1", "idle")]
    assert f"<6>armed for {UNIT}, engine idle: MemFree 10240" in capsys.readouterr().out
