# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ansible_collections.gb10.ring.plugins.module_utils import made
from ansible_collections.gb10.ring.plugins.module_utils.engine import machine
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import parse
from ansible_collections.gb10.ring.plugins.module_utils.engine.ready import Look, Reply
from ansible_collections.gb10.ring.plugins.module_utils.engine.service import UnitState
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures.fake_systemd import Systemd

UNIT = "x.service"


@pytest.fixture
def systemd(monkeypatch):
    fake = Systemd()
    monkeypatch.setattr(machine, "run", fake.run)
    monkeypatch.setattr(machine, "_POLL", 0.01)
    return fake


@pytest.mark.parametrize(
    ("wanted", "calls", "text"),
    [
        ("started", ["start"], "active (running)"),
        ("restarted", ["restart"], "active (running)"),
        ("stopped", ["stop"], "inactive (dead)"),
    ],
)
def test_change_state(systemd, wanted, calls, text):
    assert machine.change_state(UNIT, wanted, 5).text() == text
    assert systemd.calls == calls


def test_a_stop_leaves_no_failed_unit(systemd):
    systemd.stops_as = ("failed", "failed")
    assert machine.change_state(UNIT, "stopped", 5).text() == "inactive (dead)"
    assert systemd.calls == ["stop", "reset-failed"]


def test_a_start_that_fails_says_the_state_and_the_journal(systemd):
    systemd.starts_as = ("activating", "auto-restart")
    with pytest.raises(HostError) as error:
        machine.change_state(UNIT, "started", 5)
    assert str(error.value).startswith(
        "x.service is activating (auto-restart), exit-code, status 1, wanted started within 5 s"
    )
    assert "    last line" in str(error.value)


def test_a_stop_that_hangs_ends_at_the_timeout(systemd):
    systemd.stops_as = ("deactivating", "stop-sigterm")
    begin = time.monotonic()
    with pytest.raises(HostError, match=r"deactivating \(stop-sigterm\).*within 0.2 s"):
        machine.change_state(UNIT, "stopped", 0.2)
    assert time.monotonic() - begin < 2


def test_the_active_revision_is_read_from_the_link(tmp_path):
    (tmp_path / "revisions/r7").mkdir(parents=True)
    (tmp_path / "revisions/r7/config.json").write_text("{}")
    (tmp_path / "current").symlink_to("revisions/r7")
    found = machine.find_model(str(tmp_path), "", check_mode=False)
    assert found.path == f"{tmp_path}/revisions/r7"
    assert found.config_digest == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize(
    ("revision", "says"), [("", "no revision is active here"), ("r9", "revision r9 is not staged here")]
)
def test_no_model(tmp_path, revision, says):
    with pytest.raises(HostError, match=says):
        machine.find_model(str(tmp_path), revision, check_mode=False)


@pytest.mark.parametrize(("revision", "expected"), [("", "NOT-STAGED"), ("r9", "r9")])
def test_a_dry_run_takes_the_model_as_it_will_be(tmp_path, revision, expected):
    assert machine.find_model(str(tmp_path), revision, check_mode=True).revision == expected


@pytest.mark.parametrize("kind", ["absent", "directory", "plain file"])
def test_no_executable(tmp_path, kind):
    path = tmp_path / "engine"
    if kind == "directory":
        path.mkdir()
    elif kind == "plain file":
        path.write_text("x")
    with pytest.raises(HostError, match=r"is no executable file.*Cure: install the engine there"):
        machine.check_program(profile(path))


def profile(executable, **values):
    return parse(
        {"name": "x", "executable": str(executable), "served_model_name": "m", "tensor_parallel": 3, **values}, 3
    )


@pytest.mark.parametrize("renderer", ["docker", "podman"])
def test_no_container_runtime(tmp_path, monkeypatch, renderer):
    monkeypatch.setitem(machine.RUNTIMES, renderer, str(tmp_path / renderer))
    wanted = profile("vllm", renderer=renderer, image_id=f"sha256:{'0' * 64}")
    with pytest.raises(HostError, match=f"{renderer} is no executable file.*Cure: install {renderer}"):
        machine.check_program(wanted)
    (tmp_path / renderer).write_text("")
    (tmp_path / renderer).chmod(0o755)
    machine.check_program(wanted)


def test_pinned_versions_are_looked_for_in_the_engines_environment(tmp_path):
    site = tmp_path / "lib/python3.12/site-packages"
    for folder in ("flashinfer_python-0.6.17.dist-info", "nvidia_nccl_cu13-2.28.9.dist-info"):
        (site / folder).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/vllm").write_text("")
    (tmp_path / "bin/vllm").chmod(0o755)
    machine.check_program(profile(tmp_path / "bin/vllm", pins={"flashinfer-python": "0.6.17"}))
    pins = {"flashinfer-python": "0.6.17", "nvidia-nccl-cu13": "2.30.4", "cuda-python": "13.3.0"}
    with pytest.raises(HostError) as error:
        machine.check_program(profile(tmp_path / "bin/vllm", pins=pins))
    assert "lacks nvidia-nccl-cu13 2.30.4, cuda-python 13.3.0, which profile x pins" in str(error.value)
    assert "pip install --no-deps nvidia-nccl-cu13==2.30.4 cuda-python==13.3.0" in str(error.value)


def test_a_broken_config_json_is_told(tmp_path):
    (tmp_path / "revisions/r7").mkdir(parents=True)
    (tmp_path / "revisions/r7/config.json").write_text("{")
    with pytest.raises(HostError, match=r"config.json.*it is no JSON. Cure"):
        machine.find_model(str(tmp_path), "r7", check_mode=False)


@pytest.mark.parametrize(("noted", "expected"), [("00ff\n", "00ff"), (None, "")])
def test_a_process_without_our_environment_is_known_by_what_its_start_noted(
    systemd, tmp_path, monkeypatch, noted, expected
):
    if noted:
        (tmp_path / "hash").write_text(noted)
    monkeypatch.setattr(machine, "HASH_FILE", str(tmp_path / "hash"))
    monkeypatch.setattr(machine, "hash_in_environ", lambda environ: "")
    systemd.active, systemd.pid = "active", os.getpid()
    assert machine.unit_state(UNIT).hash == expected


def test_held_files_of_all_renderers(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").write_text("other renderer")
    files = machine.held({"/etc/a": "new"}, ["/etc/a", "/etc/b", "/etc/c"], str(tmp_path))
    assert files == {
        f"{tmp_path}/a": ("old", "new"),
        f"{tmp_path}/b": ("other renderer", None),
        f"{tmp_path}/c": (None, None),
    }


def test_another_renderers_unit_is_disabled_before_it_is_removed(systemd, tmp_path):
    unit, quadlet = tmp_path / "x.service", tmp_path / "x.container"
    unit.write_text("old")
    machine.apply_files({str(quadlet): (None, "new"), str(unit): ("old", None)}, enable=False, state=tmp_path)
    assert not unit.exists()
    assert quadlet.read_text() == "new"
    assert systemd.calls == ["disable", "daemon-reload"]
    machine.apply_files({str(unit): (None, "again"), str(quadlet): ("new", None)}, enable=True, state=tmp_path)
    assert not quadlet.exists()
    assert systemd.calls == ["disable", "daemon-reload", "daemon-reload", "enable"]


def test_a_directory_that_is_made_for_a_quadlet_is_on_record(systemd, tmp_path):
    state, quadlet = tmp_path / "gb10-ring", tmp_path / "containers/systemd/x.container"
    machine.apply_files({str(quadlet): (None, "new")}, enable=False, state=state)
    assert made.recorded(state) == [str(tmp_path / "containers"), str(quadlet.parent)]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(0.6)
            return
        self.send_response(503 if self.path == "/busy" else 200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_ask(url, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")
    monkeypatch.setattr(machine, "_REQUEST_TIMEOUT", 0.3)
    assert machine.ask(url, "/health") == Reply(200, "/health")
    assert machine.ask(url, "/busy") == Reply(503, "/busy")
    assert machine.ask(url, "/slow") == Reply(error="no answer within 0.3 s")
    assert machine.ask(url, "/x", {"a": 1}) == Reply(200, '{"a": 1}')


def test_chat_asks_under_the_served_name(url):
    asked = json.loads(machine.chat(url, "m", {"disable": {"thinking": False}}, {"top_k": 1}).body)
    assert asked["model"] == "m"
    assert "17*19" in asked["messages"][0]["content"]
    assert (asked["max_tokens"], asked["top_k"], asked["chat_template_kwargs"]) == (64, 1, {"thinking": False})
    assert json.loads(machine.chat(url, "m", {"default": True}, {}).body)["max_tokens"] == 4096


def test_nobody_there():
    assert machine.ask("http://127.0.0.1:9", "/health") == Reply(error="Connection refused")


@pytest.mark.parametrize(
    ("rank", "host", "asked"),
    [
        (0, "192.0.2.11", ["/health", "/v1/models"]),
        (1, "192.0.2.11", ["/health"]),
        (0, "127.0.0.1", ["/health", "/v1/models"]),
        (1, "127.0.0.1", []),
    ],
)
def test_who_asks_what(systemd, monkeypatch, rank, host, asked):
    paths = []
    monkeypatch.setattr(machine, "ask", lambda url, path: paths.append(path))
    machine.look(UNIT, rank, f"http://{host}:8000", "")
    assert paths == asked


RUNNING = UnitState("loaded", "active", "running")
ENDED = UnitState("loaded", "failed", "failed")


def test_wait_until_ready(systemd):
    looks = iter([Look(RUNNING, Reply(error="x")), Look(RUNNING, Reply(503)), Look(RUNNING, Reply(200))])
    seen = machine.wait(lambda: next(looks), 5, UNIT)
    assert seen.health == Reply(200)
    assert seen.journal == ()


def test_wait_ends_early_when_the_unit_ended(systemd):
    begin = time.monotonic()
    seen = machine.wait(lambda: Look(ENDED, Reply(error="x")), 30, UNIT)
    assert time.monotonic() - begin < 2
    assert seen.journal == ("first line", "last line")


@pytest.mark.parametrize(("timeout", "most"), [(0, 1), (0.1, 30)])
def test_wait_ends_at_the_timeout(systemd, timeout, most):
    count = []

    def see():
        count.append(1)
        return Look(RUNNING, Reply(error="x"))

    assert machine.wait(see, timeout, UNIT).journal
    assert 1 <= len(count) <= most


@pytest.mark.parametrize(
    ("answer", "lines"), [("323", ()), ("322", ("first line", "last line")), ("", ("first line", "last line"))]
)
def test_a_wrong_answer_comes_with_the_journal(systemd, answer, lines):
    body = json.dumps({"choices": [{"message": {"content": answer}}]})
    seen = machine.explained(Look(RUNNING, chat=Reply(200, body)), UNIT)
    assert seen.journal == lines
    assert machine.explained(Look(RUNNING), UNIT).journal == ()


def test_the_journal_has_no_secrets(systemd):
    systemd.lines = ["non-default args: {'api_key': 'swordfish'}", "Authorization: Bearer swordfish"]
    said = machine.journal(UNIT)
    assert len(said) == 2
    assert "swordfish" not in "".join(said)


@pytest.mark.parametrize(
    ("rank", "status", "line", "lined"),
    [
        (0, 200, "Application startup", True),
        (0, 200, "fired up", False),
        (0, 503, "Application startup", False),
        (1, 200, "x", False),
    ],
)
def test_the_log_is_read_on_the_head_once_the_api_answers(systemd, monkeypatch, *, rank, status, line, lined):
    reads = []

    def log(unit):
        reads.append(unit)
        return ["INFO: Application startup complete."]

    systemd.loaded, systemd.active, systemd.sub = True, "active", "running"
    monkeypatch.setattr(machine, "ask", lambda url, path: Reply(status))
    monkeypatch.setattr(machine, "log_of_run", log)
    seen = machine.look(UNIT, rank, "http://192.0.2.11:8000", "", line)
    assert (seen.line, seen.lined) == (line if rank == 0 else "", lined)
    assert reads == ([UNIT] if rank == 0 and status == 200 else [])
