# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module engine_gates from options to result, with systemctl and journalctl of the test."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.engine import gates_look
from ansible_collections.gb10.ring.plugins.module_utils.engine.gate_versions import versions
from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError
from ansible_collections.gb10.ring.plugins.modules import engine_gates
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

RECORD = {
    "rank": 0,
    "argv": ["vllm", "--speculative-config", '{"method": "dspark"}'],
    "env": {"NCCL_NET": "IB", "NCCL_DEBUG": "INFO"},
}
WRITTEN = json.dumps(RECORD)
INVOCATION = "0123456789abcdef0123456789abcdef"


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self):
        metrics = b"vllm:spec_decode_num_draft_tokens_total 100\nvllm:spec_decode_num_accepted_tokens_total 70\n"
        pages = {"/metrics": metrics, "/version": b'{"version": "0.32.0"}'}
        body = pages.get(self.path, b"")
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):
        pass


@pytest.fixture
def url():
    server = HTTPServer(("127.0.0.1", 0), Metrics)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _pattern(argv):
    return next((word.partition("=")[2] for word in argv if word.startswith("--grep=")), None)


def journal(argv, lines):
    """What journalctl shows of these lines: the oldest, the newest, or those that match, the newest first."""
    count = argv[argv.index("-n") + 1]
    number = int(count.lstrip("+"))
    if _pattern(argv) is None:
        return lines[:number] if count.startswith("+") else lines[-number:]
    assert {"--reverse", "--case-sensitive=yes"} < set(argv)
    return [line for line in reversed(lines) if re.search(_pattern(argv), line)][:number]


@pytest.fixture
def run(monkeypatch, tmp_path, capsys, url):
    (tmp_path / "meminfo").write_text("MemTotal: 1024 kB\nMemAvailable: 512 kB\n")
    asked = []

    def call(record=WRITTEN, state="active", lines=(), grep=None, **options):
        """grep: how `journalctl --grep` fails, an exception or what it says on stderr."""
        path = tmp_path / "engine.json"
        path.unlink(missing_ok=True)
        if record is not None:
            path.write_text(record if isinstance(record, str) else json.dumps(record))

        def answer(argv, **_more):
            asked.append(argv)
            if argv[0] == "systemctl":
                return Completed(tuple(argv), 0, f"ActiveState={state}\nInvocationID={INVOCATION}\n", "")
            if isinstance(grep, Exception) and _pattern(argv):
                raise grep
            if grep and _pattern(argv):
                return Completed(tuple(argv), 1, "", grep)
            chosen = journal(argv, lines)
            return Completed(tuple(argv), 0 if chosen else 1, "".join(f"{line}\n" for line in chosen), "")

        monkeypatch.setattr(gates_look, "run", answer)
        arguments = {
            "node": "spark1",
            "url": url,
            "ports": PORTS,
            "record_path": str(path),
            "proc_root": str(tmp_path),
            **options,
        }
        with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
            engine_gates.main()
        return ended.value.code, json.loads(capsys.readouterr().out)

    call.asked = asked
    return call


def test_a_running_rank(run):
    said = [
        "NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]",
        "NCCL version 2.30.7+cuda13.0",
        "Model loading took 2 GiB memory",
    ]
    code, result = run(lines=said)
    assert code == 0
    assert result["changed"] is False
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [
        ("engine.transport", True),
        ("engine.rdma_errors", True),
        ("engine.speculation", True),
    ]
    assert result["memory"] == {"total": 1 << 20, "available": 1 << 19, "weights": 2 << 30, "kv": None}
    assert result["versions"] == {"engine": "0.32.0", "nccl": "2.30.7"}
    assert run.asked[-1][-1] == f"_SYSTEMD_INVOCATION_ID={INVOCATION}"


@pytest.mark.parametrize(
    ("lines", "answer", "expected"),
    [
        ([], "", ("", "")),
        ([], '{"version": "0.32.0"}', ("0.32.0", "")),
        ([], "[]", ("", "")),
        ([], "<html>", ("", "")),
        (["INFO [core.py:96] Initializing a V1 LLM engine (v0.32.0) with config: model='/m'"], "", ("0.32.0", "")),
        (["INFO vLLM API server version 0.32.1", "INFO vLLM is using nccl==2.30.7"], "", ("0.32.1", "2.30.7")),
        (["spark2:71:71 [0] NCCL INFO NCCL version 2.28.9+cuda13.0"], "", ("", "2.28.9")),
    ],
)
def test_versions(lines, answer, expected):
    assert versions(lines, answer) == dict(zip(("engine", "nccl"), expected, strict=True))


def test_a_worker_does_not_ask_for_metrics(run):
    _code, result = run(record={**RECORD, "rank": 1}, url="http://127.0.0.1:1")
    assert "engine.speculation" not in [check["id"] for check in result["checks"]]


def test_a_head_without_metrics_is_a_failed_claim(run):
    _code, result = run(url="http://127.0.0.1:1")
    assert [check["ok"] for check in result["checks"] if check["id"] == "engine.speculation"] == [False]


@pytest.mark.parametrize(("record", "state"), [(None, "active"), (RECORD, "inactive"), (RECORD, "failed")])
def test_nothing_is_claimed_by_what_does_not_run(run, record, state):
    code, result = run(record=record, state=state)
    assert (code, result["checks"]) == (0, [])
    assert result["memory"]["total"] == 1 << 20


@pytest.mark.parametrize("record", ["{", "[]"])
def test_a_broken_record_is_named(run, record):
    code, result = run(record=record)
    assert code == 1
    assert result["msg"].startswith("spark1: ")
    assert "engine.json" in result["msg"]
    assert "Cure: run the engine role" in result["msg"]


def test_a_long_log_is_read_from_both_ends(run, monkeypatch):
    monkeypatch.setattr(gates_look, "OLDEST", 3)
    monkeypatch.setattr(gates_look, "NEWEST", 2)
    lines = ["NET/IB : Using [0]rocep1s0f0:1/RoCE", *("served" for _number in range(9)), "GID table changed"]
    _code, result = run(lines=lines)
    found = {check["id"]: check["ok"] for check in result["checks"]}
    assert found["engine.transport"] is True
    assert found["engine.rdma_errors"] is False


@pytest.fixture
def short(monkeypatch):
    for name, number in (("OLDEST", 3), ("NEWEST", 2), ("MOST", 4)):
        monkeypatch.setattr(gates_look, name, number)


SERVED = ["served"] * 5
LONG = ["NET/IB : Using [0]rocep1s0f0:1/RoCE", *SERVED]
ABSENT = {"text": "cost (in) $", "want": "absent", "means": "it costs"}
STRICT = {
    "rank": 1,
    "env": {"NCCL_NET": "IB", "NCCL_DEBUG": "INFO", "NCCL_IB_MERGE_NICS": "0", "DSV41_ENGRAM_DISK": "1"},
    "expected": {"log_lines": [ABSENT]},
}


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        ("NCCL WARN NET/IB: GID table changed (event)", "engine.rdma_errors"),
        ("NET/IB : Made virtual device [4] name=rocep1s0f0+rocep1s0f1 speed=400000 ndevs=2", "engine.rdma_errors"),
        ("NCCL INFO NET/Socket : Using [0]enP7s7:192.0.2.11<0>", "engine.transport"),
        ("DSV41_ENGRAM_DIR=/e unusable for layer 1 (no file)", "engine.engram_rows"),
        ("rows: cost (in) $ per token", "engine.log_line"),
        ("NET/IB : Made virtual device [0] name=rocep1s0f0 speed=200000 ndevs=1", None),
        ("rows: COST (in) $", None),
    ],
)
def test_a_line_in_the_middle_of_a_long_log_is_found(run, short, line, failed):
    started = [LONG[0], "Engram DISK mode: layer 1 rows [0, 9) read from /m/x (off=4096)", "up"]
    _code, result = run(record=STRICT, lines=[*started, *SERVED, line, *SERVED])
    found = {check["id"]: check["found"] for check in result["checks"] if not check["ok"]}
    assert found == ({failed: line} if failed else {})


def test_lines_are_counted_once_whatever_part_of_the_log_they_are_in(run, short):
    bad = "GID table changed"
    _code, result = run(lines=[LONG[0], bad, *SERVED, bad, *SERVED, bad])
    (found,) = [check["found"] for check in result["checks"] if check["id"] == "engine.rdma_errors"]
    assert found == f"{bad} (and 2 more)"


def test_many_lines_of_one_text_hide_none_of_another(run, short):
    _code, result = run(record=STRICT, lines=[*LONG, "GID table changed", *["cost (in) $"] * 9, *SERVED])
    failed = {check["id"] for check in result["checks"] if not check["ok"]}
    assert {"engine.rdma_errors", "engine.log_line"} <= failed


@pytest.mark.parametrize(
    ("grep", "says"),
    [
        ("Compiled without pattern matching support\n", "journalctl --grep: Compiled without pattern matching support"),
        (HostError("it took long"), "journalctl --grep did not end within 15 s"),
    ],
)
def test_a_long_log_that_cannot_be_searched_is_told(run, short, grep, says):
    code, result = run(lines=[*LONG, "GID table changed", *SERVED], grep=grep)
    told = [check for check in result["checks"] if check["id"] == "engine.log_search"]
    assert code == 0
    assert [(check["ok"], check["severity"]) for check in told] == [(False, "warning")]
    assert told[0]["found"].endswith(says)


@pytest.mark.parametrize(("record", "lines"), [(RECORD, LONG[:2]), ({"rank": 1}, LONG)])
def test_what_was_read_whole_or_has_no_such_lines_is_not_searched(run, short, record, lines):
    _code, result = run(record=record, lines=lines, grep="must not be asked")
    assert not [argv for argv in run.asked if _pattern(argv)]
    assert "engine.log_search" not in [check["id"] for check in result["checks"]]


def test_the_rank_s_rows_and_devices_are_those_of_its_plan(run, tmp_path):
    """One device was down when the unit was written; of two Engram tables one is told, with another rank's rows."""
    fixture = Path(__file__).parents[2] / "fixtures" / "checkpoint" / "config-exl3-tp3.json"
    (tmp_path / "config.json").write_text(fixture.read_text())
    record = {
        "rank": 1,
        "size": 3,
        "engine": "vllm",
        "model": {"path": str(tmp_path)},
        "env": {"NCCL_IB_HCA": "=rocep1s0f0,rocep1s0f1,roceP2p1s0f0", "DSV41_ENGRAM_DISK": "1"},
    }
    disk = "Engram DISK mode: layer 1 rows [0, 128000880) read from /m/model-00047-of-00048.safetensors (off=4096)"
    _code, result = run(record=record, lines=[disk])
    found = {check["id"]: check["found"] for check in result["checks"] if not check["ok"]}
    assert found["engine.devices"].endswith("without roceP2p1s0f1")
    assert found["engine.engram_rows"].startswith("layer 1 rows [0, 128000880], this rank's are [128000880, ")
    assert found["engine.engram_rows"].endswith("nothing is said of layer 14")


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_config_that_cannot_be_read_compares_no_rows(run, tmp_path, text):
    (tmp_path / "config.json").unlink(missing_ok=True)
    if text:
        (tmp_path / "config.json").write_text(text)
    record = {"size": 3, "model": {"path": str(tmp_path)}, "env": {"DSV41_ENGRAM_DISK": "1"}}
    _code, result = run(record=record, lines=["Engram DISK mode: layer 1 rows [0, 9) read from /m/x (off=4096)"])
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [("engine.engram_rows", True)]
