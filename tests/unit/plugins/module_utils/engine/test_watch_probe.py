# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe against a real server on loopback."""

from __future__ import annotations

import http.server
import json
import threading
import time

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import watch_probe
from ansible_collections.gb10.ring.plugins.module_utils.engine.watch import Limits, Probe
from ansible_collections.gb10.ring.plugins.module_utils.engine.watch_probe import Reply, Target, total, wrong_answer

LIMITS = Limits(health_timeout_s=0.4, probe_timeout_s=0.4)
METRICS = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m } 1"} 120.0
vllm:generation_tokens_total{engine="1",model_name="m"} 5.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.5e+03
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:generation_tokens_created{engine="0"} 1.7e9
vllm:num_requests_swapped nonsense
"""


def completion(content):
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]})


@pytest.fixture
def api():
    """A server whose answers a test sets: path to (status, body, seconds that it takes)."""
    answers = {
        "/health": (200, "", 0.0),
        "/v1/chat/completions": (200, completion("ok"), 0.0),
        "/metrics": (200, METRICS, 0.0),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body, seconds = answers[self.path]
            time.sleep(seconds)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, format, *arguments):
            return None

        def handle(self):
            try:
                super().handle()
            except OSError:
                return

    asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield answers, asked, Target("127.0.0.1", server.server_port, "/health", "m")
    server.shutdown()
    server.server_close()


def test_a_full_pass(api):
    _answers, asked, where = api
    probe = watch_probe.look(where, LIMITS)
    assert probe.passed
    assert (probe.tokens, probe.queued) == (1625.0, 3.0)
    assert asked[0]["model"] == "m" and asked[0]["max_tokens"] == 3
    assert "chat_template_kwargs" not in asked[0]
    watch_probe.look(where._replace(quiet={"thinking": False}), LIMITS)
    assert asked[1]["chat_template_kwargs"] == {"thinking": False}


@pytest.mark.parametrize(
    ("change", "probe"),
    [
        ({"/health": (200, "", 1.0)}, Probe("/health: no answer within 0.4 s", "", False, 1625.0, 3.0)),
        ({"/health": (503, "", 0.0)}, Probe("/health: status 503", "", False, 1625.0, 3.0)),
        (
            {"/v1/chat/completions": (200, completion("ok"), 1.0)},
            Probe("", "a completion: no answer within 0.4 s", True, 1625.0, 3.0),
        ),
        (
            {"/v1/chat/completions": (500, '{"error":\n "EngineDeadError"}', 0.0), "/metrics": (404, METRICS, 0.0)},
            Probe("", 'a completion: status 500 {"error": "EngineDeadError"}', False, None, None),
        ),
    ],
)
def test_what_is_wrong(api, change, probe):
    answers, _asked, where = api
    answers.update(change)
    assert watch_probe.look(where, LIMITS) == probe


def test_nobody_there(api):
    where = api[2]._replace(port=1)
    probe = watch_probe.look(where, LIMITS)
    assert (probe.health, probe.answer, probe.slow) == (
        "/health: Connection refused",
        "a completion: Connection refused",
        False,
    )


@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        (Reply(200, completion("ok")), ""),
        (Reply(200, '{"choices": [{"message": {"content": null, "reasoning_content": "hm"}}]}'), ""),
        (Reply(200, '{"choices": [{"message": {"content": null, "reasoning": "hm"}}]}'), ""),
        (Reply(200, completion("")), "a completion: the answer is empty"),
        (Reply(200, '{"choices": []}'), "a completion: the answer is none"),
        (Reply(200, '{"choices": [{"message": "text"}]}'), "a completion: the answer is empty"),
        (Reply(200, "<html>"), "a completion: the answer is none"),
        (Reply(400, "nan"), "a completion: status 400 nan"),
        (Reply(error="no answer within 45 s", slow=True), "a completion: no answer within 45 s"),
    ],
)
def test_answers(reply, wrong):
    assert wrong_answer(reply) == wrong


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        (METRICS, ("vllm:generation_tokens_total",), 125.0),
        (METRICS, ("vllm:num_requests_swapped",), None),
        (METRICS, ("sglang:generation_tokens_total",), None),
        ("sglang:num_running_reqs 4\n", ("sglang:num_running_reqs",), 4.0),
        ("", ("x",), None),
    ],
)
def test_metrics(text, names, expected):
    assert total(text, names) == expected


def test_the_target_is_in_the_engines_record():
    record = {"url": "http://192.0.2.11:8000", "served_model_name": "m", "readiness": {"health": "/healthz"}}
    assert watch_probe.target(record) == Target("192.0.2.11", 8000, "/healthz", "m")
    thinks = {**record, "thinking": {"enable": {"a": 1}, "disable": {"a": 0}}}
    assert watch_probe.target(thinks).quiet == {"a": 0}
    assert watch_probe.target({**record, "thinking": None}).quiet == {}
    with pytest.raises(ValueError, match="names no url"):
        watch_probe.target({})
