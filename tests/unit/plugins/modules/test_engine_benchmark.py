# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module engine_benchmark against the lab's stand-in engine."""

from __future__ import annotations

import csv
import io
import json
import threading

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.engine import bench, bench_run
from ansible_collections.gb10.ring.plugins.modules import engine_benchmark
from lab.engine.standin.api import Api


@pytest.fixture
def url():
    server = Api(("127.0.0.1", 0), ["m"], "/model", 131072, speculative={"method": "dspark"})
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(url, capsys):
    def call(**options):
        base = {
            "node": "spark3",
            "url": url,
            "served_model_name": "m",
            "prefill_lengths": [300, 1500],
            "decode_tokens": 60,
        }
        with patch_module_args({**base, "timeout_s": 10, "repeats": 2, **options}), pytest.raises(SystemExit):
            engine_benchmark.main()
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return call


def test_a_whole_benchmark(run, tmp_path):
    (tmp_path / "engine.json").write_text('{"hash": "h", "argv": ["vllm"], "unit": "u"}')
    result = run(concurrency=[1, 3], conditions={"firmware": "f"}, record=str(tmp_path / "engine.json"))
    rows = result["document"]["rows"]
    assert [(row["kind"], row["concurrency"]) for row in rows] == [
        ("prefill", 1),
        ("prefill", 1),
        ("decode, prose", 1),
        ("decode, code", 1),
        ("decode, prose", 3),
        ("decode, code", 3),
    ]
    assert all(row["median"] > 0 and row["samples"] == 2 and not row["note"] for row in rows)
    assert all(row["low"] <= row["median"] <= row["high"] for row in rows)
    assert abs(rows[0]["tokens"] - 300) < 30
    assert abs(rows[1]["tokens"] - 1500) < 60
    assert result["document"]["cache_told_by"] == "usage"
    assert result["document"]["speculation"]["rate"] == 0.5
    assert result["document"]["server"]["version"].startswith("0.32.0")
    conditions = result["document"]["conditions"]
    assert conditions.pop("client_kernel")
    thought = {"thinking": "off", "chat_template_kwargs": {}}
    assert conditions == {"firmware": "f", **thought, "engine_hash": "h", "engine_argv": ["vllm"]}
    assert all(check["ok"] for check in result["checks"])
    assert len(list(csv.DictReader(io.StringIO(result["csv"])))) == 6


DEEPSEEK = {"enable": {"thinking": True}, "disable": {"thinking": False}, "default": True}
ALOUD = {"chat_template_kwargs": {"thinking": True}}


@pytest.mark.parametrize(
    ("options", "word", "sent"),
    [
        ({"thinking": DEEPSEEK}, "off", {"thinking": False}),
        ({"thinking": DEEPSEEK, "extra": ALOUD}, "on", {"thinking": True}),
        ({"thinking": {"default": True}}, "on", {}),
    ],
)
def test_a_model_that_thinks_is_measured_without_and_it_is_stated(run, monkeypatch, options, word, sent):
    bodies = []
    real = bench_run.Client.send

    def send(client, request):
        bodies.append(request.body)
        return real(client, request)

    monkeypatch.setattr(bench_run.Client, "send", send)
    conditions = run(decode_tasks=["prose"], prefill_lengths=[300], concurrency=[1], **options)["document"][
        "conditions"
    ]
    assert (conditions["thinking"], conditions["chat_template_kwargs"]) == (word, sent)
    assert {json.dumps(body.get("chat_template_kwargs", {})) for body in bodies if body} == {json.dumps(sent)}


def test_prompts_that_repeat_are_no_measurement(run, monkeypatch):
    real = bench.requests
    monkeypatch.setattr(
        bench_run.bench,
        "requests",
        lambda case, settings, asking, number, per_line: real(case, settings, asking, 0, per_line),
    )
    result = run(decode_tasks=[], prefill_lengths=[1500])
    (row,) = result["document"]["rows"]
    assert row["median"] is None
    assert "prefix cache hit" in row["note"]
    assert not result["checks"][0]["ok"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurrency": [0]}, "allowed are 1 to 64"),
        ({"url": "http://127.0.0.1:1"}, "Connection refused"),
        ({"served_model_name": "other"}, "The model `other` does not exist"),
    ],
)
def test_what_cannot_be_measured(run, options, says):
    assert says in run(**options)["msg"]
