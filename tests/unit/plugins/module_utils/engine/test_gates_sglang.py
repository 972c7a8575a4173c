# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang's settings claim, proven by SGLang's own lines and metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.gate_claims import Seen, started
from ansible_collections.gb10.ring.plugins.module_utils.engine.gate_memory import memory
from ansible_collections.gb10.ring.plugins.module_utils.engine.gates import checks

RECORD = json.loads(
    (Path(__file__).parents[3] / "fixtures/engine/golden/sglang-tp4-engram/rank0/engine.json").read_text(
        encoding="utf-8"
    )
)
USING = "spark1:9:9 [0] NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB enp1s0f1np1:10.100.0.1<0>"
ROWS = [
    "engram layer 1: rank 0/4 owns rows [0, 96001542)",
    "engram layer 14: rank 0/4 owns rows [0, 96004170)",
]
GRAPHS = (
    "[2026-09-28 08:40:32 TP0] Capture cuda graph end. Time elapsed: 54.61 s. mem usage=1.93 GB. avail mem=8.16 GB."
)
DECODE = (
    "[2026-09-28 08:45:00 TP0] Decode batch, #running-req: 1, #token: 512, token usage: 0.00, accept len: {}, accept rate: 0.40, "
    "cuda graph: True, gen throughput (token/s): 40.1, #queue-req: 0"
)
HOOKS = ["overlay: 8 import hooks armed", "RoCE collectives on: world=4", "DSV4 memory calculation full_token=4200000"]
SERVING = ["Engram local layer=1 gather_us_per_call=1010", "The server is fired up and ready to roll!"]
LINES = (USING, *HOOKS, *ROWS, GRAPHS, *SERVING, DECODE.format("3.20"))


def judged(*, lines=LINES, metrics="", env=None, argv=None, rank=0):
    record = {**RECORD, "rank": rank, "env": {**RECORD["env"], **(env or {})}, "argv": argv or RECORD["argv"]}
    record["env"] = {name: value for name, value in record["env"].items() if value is not None}
    found = checks("spark1", started(record), Seen(tuple(lines), metrics if rank == 0 else None))
    return {f"{check.id} {check.expected}" if check.id == "engine.log_line" else check.id: check for check in found}


def failed(found):
    return [(name.split()[0], check.severity) for name, check in found.items() if not check.ok]


def test_a_healthy_head_proves_every_claim():
    found = judged()
    assert failed(found) == []
    assert {"engine.transport", "engine.engram_rows", "engine.cuda_graphs", "engine.speculation"} <= set(found)
    assert "engine.subnet_routing" not in found  # on a switch equal device numbers share a subnet
    assert not any("owns rows" in name for name in found)  # engine.engram_rows says more of them
    assert found["engine.speculation"].found == "3.20 tokens a step, 3.20 at best"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], "no line that says where"),
        (ROWS[:1], "nothing is said of layer 14"),
        ([ROWS[0], "engram layer 14: rank 0/4 owns rows [96004170, 192008340)"], "this rank's are [0, 96004170]"),
        ([ROWS[0], "engram layer 14: rank 0/4 owns rows"], None),
    ],
)
def test_engram_rows(lines, found):
    check = judged(lines=lines)["engine.engram_rows"]
    assert check.ok is (found is None)
    assert (found or "layers 1, 14") in check.found


def test_engram_rows_are_not_claimed_without_their_variables():
    env = {"SPARK_ENGRAM_MODE": None, "SPARK_ENGRAM_ROWS": None}
    assert "engine.engram_rows" not in judged(env=env)


@pytest.mark.parametrize(
    ("line", "ok"),
    [
        (GRAPHS, True),
        ("[TP0] Capture target decode CUDA graph end. elapsed=16.40 s", True),
        ("[TP0] Capture draft cuda graph end. Time elapsed: 1.00 s.", False),
        ("[TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=1.45 GB", False),
    ],
)
def test_cuda_graphs(line, ok):
    check = judged(lines=[line])["engine.cuda_graphs"]
    assert (check.ok, check.severity) == (ok, "warning")


def test_graphs_that_are_switched_off_are_not_claimed():
    assert "engine.cuda_graphs" not in judged(argv=[*RECORD["argv"], "--disable-cuda-graph"], lines=[])
    assert "engine.cuda_graphs" not in judged(argv=["python3", "-m", "sglang.launch_server"], lines=[])


GAUGE = 'sglang:spec_accept_length{{model_name="m",tp_rank="0"}} {}\n'


@pytest.mark.parametrize(
    ("metrics", "said", "expected"),
    [
        ("", ["1.00", "2.10", "1.00"], (True, "error")),
        ("", ["1.00", "1.00"], (False, "error")),
        ("", [], (False, "warning")),
        (GAUGE.format("2.9"), [], (True, "error")),
        (GAUGE.format("1.0"), ["3.00"], (False, "error")),
        (GAUGE.format("0.0"), [], (False, "warning")),
        (GAUGE.format("0.0"), ["3.00"], (True, "error")),
    ],
)
def test_speculation(metrics, said, expected):
    check = judged(metrics=metrics, lines=[DECODE.format(length) for length in said])["engine.speculation"]
    assert (check.ok, check.severity) == expected
    assert ("not proven" in check.found) is (expected == (False, "warning"))


def test_speculation_is_the_head_s_and_only_where_it_is_asked_for():
    assert "engine.speculation" not in judged(rank=1)
    assert "engine.speculation" not in judged(argv=["python3", "--speculative-algorithm", "NONE"])
    assert "engine.speculation" not in judged(argv=["python3"])


def test_memory():
    lines = [
        "[TP0] Load weight end. elapsed=90.1 s, type=DeepseekV4ForCausalLM, dtype=torch.bfloat16, avail mem=40.00 GB, mem usage=70.50 GB.",
        "[TP0] Memory pool end. avail mem=18.00 GB",
        "[TP0] Load weight end. elapsed=3.0 s, type=DSpark, dtype=torch.bfloat16, avail mem=15.00 GB, mem usage=3.00 GB.",
        "[TP0] Memory pool end. avail mem=14.50 GB",
    ]
    gib = 1 << 30
    found = memory("MemTotal: 4 kB\nMemAvailable: 2 kB\n", lines, "sglang")
    assert found == {"total": 4096, "available": 2048, "weights": int(73.5 * gib), "kv": int(22.5 * gib)}
    assert memory("", ["Model loading took 1 GiB"], "sglang") == {
        "total": 0,
        "available": None,
        "weights": None,
        "kv": None,
    }
