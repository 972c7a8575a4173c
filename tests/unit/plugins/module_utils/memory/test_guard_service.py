# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service on a file tree: real files, real datagrams on loopback, systemctl written down instead of run."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
import time

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory import guard_machine, guard_service
from ansible_collections.gb10.ring.plugins.module_utils.memory.guard_profiles import RING

UNIT = "engine.service"
TOKEN = "t" * 48


def port() -> int:
    with guard_service.socket.socket(guard_service.socket.AF_INET, guard_service.socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Machine:
    """A node's files, and a guard on them."""

    def __init__(self, root, node: str, address: str, udp: int, peers: dict[str, str]) -> None:
        self.root = root
        (root / "units").mkdir(parents=True)
        self.paths = {
            name: str(root / name)
            for name in ("meminfo", "drop_caches", "cgroup_kill", "units", "token", "engine", "status", "last")
        }
        self.memory(10240)
        (root / "token").write_text(TOKEN + "\n")
        self.guard = guard_service.Guard(
            {
                "node": node,
                "unit": UNIT,
                "address": address,
                "port": udp,
                "peers": peers,
                "limits": RING._asdict(),
                "paths": self.paths,
                "digest": "d",
            }
        )

    def memory(self, free: int, cached: int = 100) -> None:
        values = {"MemFree": free, "MemAvailable": free + cached, "Cached": cached}
        beside = self.root / "meminfo.new"
        beside.write_text("".join(f"{name}: {mib * 1024} kB\n" for name, mib in values.items()))
        beside.replace(self.root / "meminfo")

    def engine(self, run: str) -> None:
        link = self.root / f"units/invocation:{UNIT}"
        link.unlink(missing_ok=True)
        if run:
            link.symlink_to(run)

    def rounds(self, condition, seconds: float = 5) -> None:
        """Let the guard work until the condition holds."""
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, self.status()
            self.guard.round()
            self.guard.wait(0.02)

    def status(self) -> dict:
        return json.loads((self.root / "status").read_text())


@pytest.fixture
def machine(tmp_path):
    one = Machine(tmp_path / "a", "spark1", "127.0.0.1", port(), {})
    yield one
    if one.guard.channel:
        one.guard.channel.close()


@pytest.fixture
def systemctl(monkeypatch):
    """What would have been run; the machine of the moment loses its engine's run with the second command."""
    calls: list[list[str]] = []

    def run(argv, **_more):
        calls.append(list(argv))
        if argv[1] == "kill" and run.machine:
            run.machine.engine("")
        return subprocess.CompletedProcess(argv, 0, "", "")

    run.machine = None
    monkeypatch.setattr(guard_machine.subprocess, "run", run)
    run.calls = calls
    return run


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
    assert len(said) == 2
    assert said[0].startswith("<3>stop: 700 MiB are left and ")
    assert said[1].startswith("<3>stop done (700 MiB are left")
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


@pytest.fixture
def two(tmp_path):
    udp = port()
    a = Machine(tmp_path / "a", "spark1", "127.0.0.1", udp, {"spark2": "127.0.0.2"})
    b = Machine(tmp_path / "b", "spark2", "127.0.0.2", udp, {"spark1": "127.0.0.1"})
    for one in (a, b):
        one.guard.open()
    yield a, b
    for one in (a, b):
        one.guard.channel.close()


def both(a, b, condition, seconds: float = 5) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, (a.status(), b.status())
        for one in (a, b):
            one.guard.round()
            one.guard.wait(0.02)


def test_neighbours_answer_and_a_stop_reaches_them(two, systemctl, capsys):
    a, b = two
    both(a, b, lambda: a.guard.teller.answered and b.guard.teller.answered)
    for one in two:
        one.engine("run")
        one.guard.round()
    a.memory(700, 0)
    both(a, b, lambda: b.guard.state.phase == "stopped" and not a.guard.teller.words)
    said = capsys.readouterr().out
    assert "<3>stop: spark1 says: 700 MiB are left and" in said
    assert "<6>spark2 (127.0.0.2) knows of the stop" in said
    for one in two:
        one.engine("")
    both(a, b, lambda: (a.root / "last").exists() and (b.root / "last").exists())
    assert json.loads((b.root / "last").read_text())["told"] is True


def test_a_guard_without_figures_does_what_its_neighbour_says(two, systemctl):
    a, b = two
    for one in two:
        one.engine("run")
        one.guard.round()
    (b.root / "meminfo").write_text("nothing\n")
    a.memory(700, 0)
    both(a, b, lambda: b.guard.state.phase == "stopped")
    assert ["systemctl", "kill", "--signal=KILL", UNIT] in systemctl.calls
    for one in two:
        one.engine("")
    both(a, b, lambda: (a.root / "last").exists() and (b.root / "last").exists())


def test_a_stop_where_no_engine_runs_is_told_and_nothing_else(two, systemctl, capsys):
    a, b = two
    a.engine("run")
    a.guard.round()
    a.memory(700, 0)
    both(a, b, lambda: "no engine runs here" in capsys.readouterr().out)
    assert b.guard.state.phase == "idle"
    assert "stop" not in b.guard.jobs
    a.engine("")
    both(a, b, (a.root / "last").exists)


def test_other_tokens_and_strangers_are_not_heard(two, systemctl):
    a, b = two
    (a.root / "token").write_text("u" * 48)
    b.engine("run")
    b.guard.round()
    a.engine("run")
    a.guard.round()
    a.memory(700, 0)
    limit = time.monotonic() + 1.5
    while time.monotonic() < limit:
        for one in two:
            one.guard.round()
            one.guard.wait(0.02)
    assert b.guard.state.phase == "loading"
    assert a.guard.teller.answered == {}
    a.engine("")
    both(a, b, (a.root / "last").exists)


def test_an_address_that_is_taken_is_told_once_and_the_node_is_guarded(two, tmp_path, capsys):
    a, _b = two
    late = Machine(tmp_path / "c", "spark3", *a.guard.place, {"spark2": "127.0.0.2"})
    for _attempt in range(2):
        late.guard.open()
    assert capsys.readouterr().out.count("neighbours cannot be told, nor tell: 127.0.0.1") == 1
    late.guard.round()
    assert late.status()["listening"] is False
    late.guard.wait(0.01)


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
