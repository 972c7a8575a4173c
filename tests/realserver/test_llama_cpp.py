# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Acceptance and benchmark against llama.cpp's server, which nobody here wrote, with a model of random weights.

What is of the wire passes (health, models, log probabilities, streams that end with usage, parity of greedy answers); what needs a
model that knows something fails, as it must. Run by `make real-server-test`, which installs the server beside the project.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.modules import engine_acceptance, engine_benchmark

HERE = Path(__file__).resolve().parent
PYTHON = Path(os.environ.get("REAL_SERVER_PYTHON", HERE.parents[1] / ".cache" / "real-server" / "bin" / "python"))


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    model = tmp_path_factory.mktemp("model") / "tiny.gguf"
    subprocess.run([PYTHON, HERE / "tiny_model.py", model], check=True, timeout=60)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [PYTHON, HERE / "serve.py", model, str(port)]
    log = model.with_name("log")
    with (
        log.open("w") as errors,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        try:
            lines = iter(server.stdout.readline, "")
            listening = next((line for line in lines if line.startswith("http")), None)
            assert listening, log.read_text(errors="replace")
            yield listening.strip()
        finally:
            server.kill()


@pytest.fixture
def call(url, capsys):
    def run(module, **options):
        base = {"node": "here", "url": url, "served_model_name": "tiny", "timeout_s": 60}
        with patch_module_args({**base, **options}), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


def test_the_wire_holds_and_nonsense_is_called_so(call):
    result = call(engine_acceptance, max_tokens=48, needle_lengths=[300], streams=4)
    found = {one["name"]: one for one in result["results"]}
    assert result["not_asked"] == []
    assert all(found[name]["ok"] for name in ("health", "models", "logprobs"))
    assert "finite" in found["logprobs"]["answered"]
    # the streams came whole, with usage: what is wrong is what they say
    assert "shows it 0 times" in found["streams"]["answered"]
    assert not any(word in found["streams"]["answered"] for word in ("broke off", "without usage", "status"))
    for name in ("arithmetic", "count", "tools", "nonce", "needle_300"):
        assert not found[name]["ok"]
        assert "status" not in found[name]["answered"]
    assert {check["id"] for check in result["checks"] if check["ok"]} >= {"engine.acceptance_health"}


def test_greedy_answers_are_equal_to_their_reference(call, tmp_path):
    chosen = {"probes": ["health", "models", "logprobs", "parity"], "reference": str(tmp_path / "reference.json")}
    assert call(engine_acceptance, **chosen, record=True)["reference_written"] is True
    result = call(engine_acceptance, **chosen)
    assert all(check["ok"] for check in result["checks"]), result["results"][-1]
    held = json.loads((tmp_path / "reference.json").read_text())
    steps = [token for prompt in held["prompts"] for token in prompt["tokens"]]
    assert all(step["gap"] is not None for step in steps)
    assert sum(bool(step["runner_up"]) for step in steps) > len(steps) / 2  # a piece of a character has no text
    # another model, as if the reference were of one: a clear difference is no near tie
    held["prompts"][0]["tokens"][0] = {"token": "Z", "runner_up": "Y", "gap": 3.0}
    (tmp_path / "reference.json").write_text(json.dumps(held))
    assert not call(engine_acceptance, **chosen)["checks"][-1]["ok"]


def test_the_benchmark_counts_what_the_server_counts(call):
    result = call(
        engine_benchmark,
        prefill_lengths=[400, 1600],
        decode_tokens=40,
        decode_tasks=["prose"],
        concurrency=[1, 2],
        repeats=2,
    )
    rows = result["document"]["rows"]
    assert [row["kind"] for row in rows] == ["prefill", "prefill", "decode, prose", "decode, prose"]
    assert all(row["median"] and row["samples"] == 2 for row in rows), rows
    assert abs(rows[1]["tokens"] - 1600) < 160
    assert result["document"]["cache_told_by"] == "usage"


def test_another_name_is_not_asked_further(call):
    result = call(engine_acceptance, served_model_name="other")
    assert [one["name"] for one in result["results"]] == ["health", "models"]
    assert not result["checks"][1]["ok"]
