from __future__ import annotations

import errno
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory import machine, serving
from ansible_collections.gb10.ring.plugins.module_utils.memory.serving_unit import ServingPlaces, files

VALUES = {"vm.min_free_kbytes": "1048576", "vm.watermark_scale_factor": "200"}


@pytest.fixture
def node(tmp_path):
    """A node's settings file, as the module writes it, over a tree."""
    vm = tmp_path / "sys/vm"
    vm.mkdir(parents=True)
    (vm / "min_free_kbytes").write_text("45056\n")
    (vm / "watermark_scale_factor").write_text("10\n")
    places = ServingPlaces(
        program=str(tmp_path / "memory_serving.py"),
        settings=str(tmp_path / "settings.json"),
        engine_record=str(tmp_path / "engine.json"),
        proc_sys=str(tmp_path / "sys"),
        run=str(tmp_path / "run"),
        interval_s=0.05,
    )
    for path, text in files(VALUES, machine.program(), places).items():
        if not path.startswith("/etc"):
            (tmp_path / path.rsplit("/", 1)[1]).write_text(text)
    return tmp_path


def values(node):
    return [(node / "sys/vm" / name).read_text().strip() for name in ("min_free_kbytes", "watermark_scale_factor")]


BEFORE, RAISED = ["45056", "10"], ["1048576", "200"]


def settings(node):
    return json.loads((node / "settings.json").read_text())


def until(condition):
    limit = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_values_are_raised_when_the_engine_is_ready_and_put_back_when_it_stops(node):
    ready, stopped = threading.Event(), threading.Event()
    thread = threading.Thread(target=serving.serve, args=(settings(node), ready.is_set, stopped))
    thread.start()
    try:
        time.sleep(0.2)
        assert values(node) == BEFORE
        ready.set()
        until(lambda: values(node) == RAISED)
    finally:
        stopped.set()
        thread.join(10)
    assert values(node) == BEFORE
    assert list((node / "run").iterdir()) == []


def test_an_engine_that_stops_before_it_is_ready_changes_nothing(node):
    stopped = threading.Event()
    stopped.set()
    serving.serve(settings(node), lambda: False, stopped)
    assert values(node) == BEFORE
    assert not (node / "run").exists()


def test_a_value_that_somebody_else_set_meanwhile_stays(node):
    given = settings(node)
    serving.raise_values(given["values"], node / "sys", node / "run/memory-serving.json")
    (node / "sys/vm/min_free_kbytes").write_text("90112\n")
    assert serving.put_back(node / "sys", node / "run/memory-serving.json") == {"vm.watermark_scale_factor": "10"}
    assert values(node) == ["90112", "10"]


@pytest.fixture
def kernel(monkeypatch):
    """Takes numbers only, and none above 500 for the scale factor."""
    write = Path.write_text

    def taken(path, text, **options):
        if path.parent.name == "vm" and not text.strip().isdecimal():
            raise OSError(errno.EINVAL, "Invalid argument")
        clamped = f"{min(int(text), 500)}\n" if path.name == "watermark_scale_factor" else text
        return write(path, clamped, **options)

    monkeypatch.setattr(Path, "write_text", taken)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            {"vm.min_free_kbytes": "bad"},
            "vm.min_free_kbytes = bad: the kernel refused it: Invalid argument (it was 45056)",
        ),
        (
            {"vm.watermark_scale_factor": "900"},
            "vm.watermark_scale_factor = 900: it reads 500 after the write (it was 10)",
        ),
    ],
)
def test_a_value_that_does_not_take_leaves_all_as_they_were(node, kernel, bad, said):
    with pytest.raises(serving.RefusedError, match=re.escape(said)) as refused:
        serving.raise_values({**VALUES, **bad}, node / "sys", node / "run/memory-serving.json")
    assert str(refused.value).endswith("Now the earlier values are in force; correct memory_serving_sysctls")
    assert values(node) == BEFORE
    assert list((node / "run").iterdir()) == []


def test_the_unit_ends_once_with_one_clear_line(node, kernel, monkeypatch, capsys):
    given = settings(node)
    (node / "settings.json").write_text(json.dumps({**given, "values": {"vm.min_free_kbytes": "bad"}}))
    monkeypatch.setattr(serving, "answers", lambda _record: True)
    monkeypatch.setattr(signal, "signal", lambda *_given: None)
    with pytest.raises(SystemExit) as ended:
        serving.main(["memory_serving.py", str(node / "settings.json")])
    assert ended.value.code == 78
    assert capsys.readouterr().out.startswith("nothing was set: vm.min_free_kbytes = bad: the kernel refused it")
    assert "RestartPreventExitStatus=78\n" in files(VALUES, "x", ServingPlaces())[ServingPlaces().unit]


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format, *args):
        """Quiet."""


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_the_installed_program_with_a_real_head(node, killed):
    head = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    threading.Thread(target=head.serve_forever, daemon=True).start()
    argv = [sys.executable, "-B", str(node / "memory_serving.py"), str(node / "settings.json")]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(0.3)
        assert values(node) == BEFORE  # there is no record of the engine yet
        (node / "engine.json").write_text(json.dumps({"url": f"http://127.0.0.1:{head.server_port}"}))
        until(lambda: values(node) == RAISED)
        os.kill(process.pid, signal.SIGKILL if killed else signal.SIGTERM)
        said = process.communicate(timeout=10)[0]
    finally:
        process.kill()
        head.shutdown()
        head.server_close()
    assert "the engine serves: vm.min_free_kbytes = 1048576" in said
    if killed:
        assert values(node) == RAISED
        said = subprocess.run([*argv, "restore"], capture_output=True, text=True, check=True).stdout
    assert values(node) == BEFORE
    assert "vm.min_free_kbytes = 45056" in said


def test_a_head_that_does_not_answer_is_not_ready(tmp_path):
    record = tmp_path / "engine.json"
    assert serving.answers(record) is False
    record.write_text('{"url": "http://127.0.0.1:9"}')
    assert serving.answers(record) is False


def test_nothing_to_set_means_no_files():
    assert set(files({}, "x", ServingPlaces()).values()) == {""}
