# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real vLLM on the three nodes of the lab: what it answers, another model, the death of each rank (`make test-real-engine`).

Runs inside the controller namespace of a freshly booted lab. The tests build on each other, in file order.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
import urllib.request

import pytest

from site_run import CHECKOUT, NODES, ctl, on, play
from vllm_run import inside_vllm

# The watchdog looks often and does not wait long; three deaths are no reason for it to give up.
LIMITS = {"interval_s": 5, "settle_s": 5, "relaunches": 5}
SETTINGS = {"engine_restart_allowed": True, "engine_watch_limits": LIMITS, "engine_ready_timeout_s": 900}
VARIABLES = ("-e", "@tests/lab/vllm_cpu_vars.yml", "-e", json.dumps(SETTINGS))
WATCH_STATUS = "/run/gb10-ring-watch/status.json"
API = "http://198.18.0.1:8000"
UNIT = "gb10-ring-engine.service"
PROMPTS = ["The ring of three nodes", "data: 0 1 2 3", "a"]
TOKENS = 12
START_S = 900  # measured: 150 s on two idle cores
END_S = 30


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of two models by seed, and what a single rank answers with each."""
    found = {}
    for seed in (1, 2):
        folder = tmp_path_factory.mktemp("tiny") / "model"
        subprocess.run(
            [sys.executable, "lab/vllm_cpu/model.py", str(folder), "--seed", str(seed)], cwd=CHECKOUT, check=True
        )
        given = {"model": str(folder), "prompts": PROMPTS, "tokens": TOKENS}
        found[seed] = (folder, inside_vllm("tests/lab/vllm_single.py", given))
    return found


def ask(path: str, body: dict | None = None, timeout: float = 60) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(API + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def answers() -> list[dict]:
    """What the group makes of the prompts, as the single rank's program says it."""
    settings = {"model": "tiny", "max_tokens": TOKENS, "temperature": 0, "logprobs": 0, "ignore_eos": True}
    choices = [ask("/v1/completions", {**settings, "prompt": prompt})["choices"][0] for prompt in PROMPTS]
    return [{"text": choice["text"], "logprobs": choice["logprobs"]["token_logprobs"]} for choice in choices]


def assert_same(found: list[dict], wanted: list[dict]) -> None:
    assert [answer["text"] for answer in found] == [answer["text"] for answer in wanted]
    for answer, expected in zip(found, wanted, strict=True):
        assert len(answer["logprobs"]) == TOKENS and all(map(math.isfinite, answer["logprobs"]))
        assert answer["logprobs"] == pytest.approx(expected["logprobs"], abs=1e-3)


def serve(folder, *more: str) -> str:
    """Put the model into the store in place of the one that is there, and run the site's playbook."""
    ctl("s3", "upload", str(folder), "lab/tiny-llama")
    began = time.monotonic()
    code, output = play(*VARIABLES, *more, timeout=1200)
    print(f"site run: {time.monotonic() - began:.0f} s")
    assert code == 0, output[-8000:]
    return output


def processes(node: str) -> list[str]:
    """Ids of what runs in the engine's unit, as the node counts them."""
    group = on(node, f"systemctl show -p ControlGroup --value {UNIT}")
    return on(node, f"cat /sys/fs/cgroup{group}/cgroup.procs").split() if group else []


def alive(node: str, ids: list[str]) -> list[str]:
    return on(node, f"for id in {' '.join(ids)}; do [ ! -d /proc/$id ] || echo $id; done").split()


def test_three_ranks_answer_as_one(models):
    folder, single = models[1]
    serve(folder)
    assert all(processes(node) for node in NODES)
    assert_same(answers(), single)


def test_another_model_changes_the_answers(models):
    folder, single = models[2]
    before = answers()
    serve(folder, "--tags", "checkpoint,engine")
    after = answers()
    assert_same(after, single)
    assert all(old["text"] != new["text"] for old, new in zip(before, after, strict=True))


def until(what, timeout: float, says: str) -> float:
    """Seconds until the condition holds."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < timeout, f"{says}: not within {timeout} s\n{logs()}"
        time.sleep(0.5)
    return time.monotonic() - began


def logs() -> str:
    return "\n".join(f"--- {node}\n" + on(node, "journalctl -q -o cat -n 30 -u 'gb10-ring-*'") for node in NODES)


def armed() -> bool:
    """Whether the watchdog has seen the group serve, since its last start."""
    return json.loads(on(NODES[0], f"cat {WATCH_STATUS}"))["state"]["phase"] == "armed"


@pytest.mark.parametrize("victim", NODES)
def test_the_death_of_a_rank_ends_all_and_the_watchdog_brings_them_back(models, victim):
    until(armed, 120, "the watchdog is armed")
    before = {node: processes(node) for node in NODES}
    assert all(before.values())
    main = on(victim, f"systemctl show -p MainPID --value {UNIT}")
    on(victim, f"kill -9 {main}")
    gone = until(lambda: not any(alive(node, before[node]) for node in NODES), END_S, "all ranks ended")
    until(lambda: not armed(), 60, "the watchdog is at work")
    back = until(armed, START_S, "the group serves again")
    print(f"{victim} killed: all ended after {gone:.1f} s, served again {back:.0f} s later")
    assert_same(answers(), models[2][1])
