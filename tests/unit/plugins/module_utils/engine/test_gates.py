# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.gate_claims import Seen, Started, metric, started
from ansible_collections.gb10.ring.plugins.module_utils.engine.gate_memory import memory
from ansible_collections.gb10.ring.plugins.module_utils.engine.gates import checks
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

DEVICES = ("rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1")
ENV = {
    "NCCL_NET": "IB",
    "NCCL_IB_HCA": "=" + ",".join(DEVICES),
    "NCCL_IB_MERGE_NICS": "0",
    "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "DSV41_ENGRAM_DISK": "1",
}
ARGV = (
    "/opt/vllm",
    "serve",
    "/m",
    "--compilation-config",
    '{"cudagraph_mode": "FULL_AND_PIECEWISE"}',
    '--speculative-config={"method": "dspark", "num_speculative_tokens": 5}',
)
# As LLMKube's three-Spark lab page has the first two, and the TP3 lane's engram.py the third.
USING = (
    "dgx1:7:7 [0] NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [1]rocep1s0f1:1/RoCE [2]roceP2p1s0f0:1/RoCE "
    "[3]roceP2p1s0f1:1/RoCE [RO]; OOB enP7s7:192.168.1.28<0>"
)
OVERRIDING = "NCCL INFO NET/IB: Subnet-aware routing: overriding dev 1 with dev 0"
DISK = "Engram DISK mode: layer 1 rows [0, 128000880) read from /m/model-00047-of-00048.safetensors (off=4096)"
GRAPHS = "INFO 11-30 03:00:00 [gpu_model_runner.py:5000] Graph capturing finished in 41 secs, took 1.93 GiB"
LINES = (USING, OVERRIDING, DISK, DISK.replace("layer 1", "layer 14"), GRAPHS)


def counted(drafted, accepted, generated=0):
    label = 'engine="0",model_name="m"'
    names = {"spec_decode_num_draft": drafted, "spec_decode_num_accepted": accepted, "generation": generated}
    return "".join(f"# HELP x\nvllm:{name}_tokens_total{{{label}}} {count}\n" for name, count in names.items())


# Rows of rank 0 of three, from the published config.json.
TABLES = {"1": (0, 128000880), "14": (0, 128000880)}


def judged(*, env=None, argv=ARGV, lines=LINES, metrics="", rank=0, log_lines=(), **more):
    claims = Started(rank, tuple(argv), ENV if env is None else env, tuple(log_lines), **more)
    return {check.id: check for check in checks("spark1", claims, Seen(tuple(lines), metrics))}


def changed(**values):
    return {name: value for name, value in {**ENV, **values}.items() if value is not None}


def test_a_healthy_head_proves_every_claim():
    found = judged(metrics=counted(1000, 620))
    assert sorted(found) == [
        "engine.cuda_graphs",
        "engine.engram_rows",
        "engine.rdma_errors",
        "engine.speculation",
        "engine.subnet_routing",
        "engine.transport",
    ]
    assert [check.id for check in found.values() if not check.ok] == []
    assert found["engine.speculation"].found == "620 of 1000 draft tokens accepted (62 %)"
    assert found["engine.engram_rows"].found == "layers 1, 14 from the shards on disk"


def test_what_is_not_claimed_is_not_checked():
    assert judged(env={}, argv=("/opt/vllm", "serve", "/m")) == {}


def test_without_rdma_nothing_of_it_is_claimed():
    assert [
        name for name in judged(env=changed(NCCL_NET=None, NCCL_IB_DISABLE="1"), planned=DEVICES) if "cuda" not in name
    ] == [
        "engine.subnet_routing",
        "engine.engram_rows",
        "engine.speculation",
    ]


@pytest.mark.parametrize(
    ("env", "lines", "ok", "found"),
    [
        (ENV, [USING], True, "NET/IB : Using"),
        (ENV, [USING, "NCCL INFO NET/Socket : Using [0]enP7s7:192.0.2.11<0>"], False, "NET/Socket : Using [0]enP7s7"),
        (ENV, ["NCCL INFO NET/Socket : Using [0]enP7s7:192.0.2.11<0>"], False, "NET/Socket : Using"),
        (ENV, [USING.replace(" [3]roceP2p1s0f1:1/RoCE", "")], False, "(without roceP2p1s0f1)"),
        (ENV, [], False, "no line of NCCL"),
        # names are prefixes without the =, so no list of devices follows
        (changed(NCCL_IB_HCA="rocep1s0f0"), [USING], True, "NET/IB"),
        (changed(NCCL_IB_HCA=None), [USING], True, "NET/IB"),
        (changed(NCCL_DEBUG=None), [], False, "not proven: NCCL_NET=IB is set"),
        (changed(NCCL_DEBUG_SUBSYS="NET"), [], False, "not proven"),
        (
            changed(NCCL_DEBUG="WARN"),
            ["NCCL INFO NET/Socket : Using [0]enP7s7:192.0.2.11<0>"],
            False,
            "NET/Socket : Using",
        ),
    ],
)
def test_transport(env, lines, ok, found):
    check = judged(env=env, lines=lines)["engine.transport"]
    assert (check.ok, found in check.found) == (ok, True)
    assert check.severity == ("warning" if "not proven" in found else "error")


@pytest.mark.parametrize(
    ("line", "env", "ok"),
    [
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'rocep1s0f0'", ENV, True),
        ("NET/IB : No device found.", ENV, False),
        ("rocep1s0f0:1 GID table changed", ENV, False),
        ("ibv_modify_qp failed with 110 Connection timed out", ENV, False),
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0", ENV, False),
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0", ENV, True),
        ("Made virtual device [4] name=rocep1s0f0+rocep1s0f1 speed=400000 ndevs=2", ENV, False),
        # as two DGX Sparks with NCCL 2.30 print it for each device
        ("NET/IB : Made virtual device [1] name=roceP2p1s0f1 speed=200000 ndevs=1", ENV, True),
        ("Made virtual device [4] name=rocep1s0f0+rocep1s0f1", changed(NCCL_IB_MERGE_NICS=None), True),
    ],
)
def test_lines_that_must_not_be_there(line, env, ok):
    assert judged(env=env, lines=[*LINES, line])["engine.rdma_errors"].ok is ok


@pytest.mark.parametrize(
    ("hca", "found"),
    [
        ("=" + ",".join(DEVICES), "4 of 4 planned devices in NCCL_IB_HCA"),
        ("=" + ",".join(DEVICES[:3]), "3 of 4 planned devices in NCCL_IB_HCA, without roceP2p1s0f1"),
        # by other names than the plan has, as the node calls them
        ("=mlx5_0,mlx5_1,mlx5_2,mlx5_3", "4 of 4 planned devices in NCCL_IB_HCA"),
        ("=mlx5_0,mlx5_1", "2 of 4 planned devices in NCCL_IB_HCA"),
        ("rocep1s0f0", None),
        (None, None),
    ],
)
def test_a_device_that_was_down_when_the_unit_was_written_is_missed(hca, found):
    lines = [USING.replace(" [3]roceP2p1s0f1:1/RoCE", "") if hca and "P2p1s0f1" not in hca else USING]
    check = judged(env=changed(NCCL_IB_HCA=hca), planned=DEVICES, lines=lines).get("engine.devices")
    assert (check and check.found) == found
    assert check is None or check.ok is found.startswith("4 of 4")


def test_the_plan_comes_from_the_inventory():
    assert started({"shape": "ring"}, PORTS).planned == ("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1")
    assert started({}, PORTS).crossed is True
    assert started({}, [{**port, "peer_netdev": port["netdev"]} for port in PORTS]).crossed is False
    assert "engine.devices" not in judged()


@pytest.mark.parametrize(
    ("env", "lines", "more", "expected"),
    [
        (ENV, [OVERRIDING], {}, (True, "error")),
        (ENV, [], {}, (False, "error")),
        (ENV, [], {"shape": "ring", "crossed": True}, (False, "error")),
        (ENV, [], {"shape": "pair", "crossed": True}, (False, "error")),
        (ENV, [], {"shape": "pair"}, (False, "error")),
        (ENV, [], {"shape": "pair", "crossed": False}, None),
        (ENV, [], {"shape": "switch", "crossed": True}, None),
        (changed(NCCL_DEBUG_SUBSYS=None), [], {}, (False, "warning")),
        (changed(NCCL_DEBUG_SUBSYS="ALL"), [OVERRIDING], {}, (True, "error")),
    ],
)
def test_subnet_aware_routing(env, lines, more, expected):
    check = judged(env=env, lines=lines, **more).get("engine.subnet_routing")
    assert (check and (check.ok, check.severity)) == expected


LOCAL = "Engram layer 1 rows [0, 128000880) read from node-local /engram-local"
BOTH = [LOCAL, LOCAL.replace("layer 1 ", "layer 14 ")]
UNUSABLE = "WARNING DSV41_ENGRAM_DIR=/engram-local unusable for layer 14: KeyError"
SHORT = "WARNING /engram-local holds layer 14 rows [0, 9), this rank needs [0, 10); reading /m"


@pytest.mark.parametrize(
    ("directory", "lines", "tables", "found"),
    [
        ("", [DISK], {}, None),
        ("", [], {}, "no line that says where"),
        ("", LINES, TABLES, None),
        ("", [DISK], TABLES, "nothing is said of layer 14"),
        ("/engram-local", [LOCAL, DISK], {}, None),
        ("/engram-local", [*BOTH, DISK], TABLES, None),
        ("/engram-local/", [*BOTH, DISK], TABLES, None),
        ("/engram-local", [DISK], TABLES, "no line that says where"),
        ("/engram-local", [LOCAL], TABLES, "nothing is said of layer 14"),
        ("/engram-local", [LOCAL, DISK.replace("layer 1", "layer 14")], TABLES, "nothing is said of layer 14"),
        ("/elsewhere", BOTH, TABLES, "read from node-local /engram-local"),
        (
            "/engram-local",
            BOTH,
            {**TABLES, "14": (128000880, 256001810)},
            "layer 14 rows [0, 128000880], this rank's are [128000880, 256001810]",
        ),
        ("/engram-local", [LOCAL, UNUSABLE], {}, UNUSABLE),
        ("/engram-local", [UNUSABLE], TABLES, UNUSABLE),
        ("/engram-local", [LOCAL, SHORT], {}, SHORT),
    ],
)
def test_engram_rows(directory, lines, tables, found):
    """found: what is told of a failure; None: it holds."""
    check = judged(env=changed(DSV41_ENGRAM_DIR=directory or None), lines=lines, tables=tables)["engine.engram_rows"]
    assert check.ok is (found is None)
    assert (found or "layers 1") in check.found


def test_the_rank_s_rows_come_from_its_checkpoint():
    config = json.loads((Path(__file__).parents[3] / "fixtures/checkpoint/config-exl3-tp3.json").read_text())
    held = [started({"rank": rank, "size": 3, "engine": "vllm"}, (), config).tables for rank in range(3)]
    assert held[0]["1"] == (0, 128000880)
    assert held[0]["14"][1] == held[1]["14"][0]
    assert sorted(held[0]) == ["1", "14"]
    assert started({"rank": 0, "size": 3}, (), {"engram_layer_ids": []}).tables == {}
    assert started({"rank": 3, "size": 3}, (), config).tables == {}


@pytest.mark.parametrize(
    ("argv", "lines", "expected"),
    [
        (ARGV, LINES, True),
        (ARGV, (), False),
        ((*ARGV, "--enforce-eager"), (), None),
        (("--compilation-config", '{"cudagraph_mode": "NONE"}'), (), None),
        (("--compilation-config", "no json"), (), None),
        ((), (), None),
    ],
)
def test_cuda_graphs(argv, lines, expected):
    check = judged(argv=argv, lines=lines).get("engine.cuda_graphs")
    assert (check and check.ok) == expected
    assert check is None or check.severity == "warning"


@pytest.mark.parametrize(
    ("metrics", "rank", "expected"),
    [
        (counted(1000, 1), 0, (True, "error")),
        (counted(1000, 0), 0, (False, "error")),
        (counted(20, 0), 0, (False, "info")),
        (counted(20, 9), 0, (True, "info")),
        (counted(0, 0), 0, (False, "info")),
        (counted(0, 0, 100), 0, (False, "info")),
        (counted(0, 0, 101), 0, (False, "error")),
        (counted(20, 9, 101), 0, (True, "info")),
        ("", 0, (False, "error")),
        (None, 1, None),
    ],
)
def test_speculation(metrics, rank, expected):
    check = judged(metrics=metrics, rank=rank).get("engine.speculation")
    assert (check and (check.ok, check.severity)) == expected


def test_no_draft_in_all_that_was_generated_is_told_with_its_count():
    found = judged(metrics=counted(0, 0, 4000))["engine.speculation"].found
    assert found == "0 of 0 draft tokens accepted in 4000 generated tokens"


@pytest.mark.parametrize(
    ("want", "lines", "ok"),
    [("present", ["a b c"], True), ("present", [], False), ("absent", ["a b c"], False), ("absent", [], True)],
)
def test_lines_of_the_profile(want, lines, ok):
    wanted = {"text": "b c", "want": want, "means": "it is so"}
    check = judged(lines=lines, log_lines=[wanted])["engine.log_line"]
    assert check.ok is ok
    assert "it is so" in check.expected


def test_a_line_that_a_claim_judges_already_is_told_once():
    wanted = [
        {"text": "NET/Socket : Using", "want": "absent", "means": "x"},
        {"text": "Subnet-aware routing: overriding dev", "want": "present", "means": "y"},
    ]
    assert "engine.log_line" not in judged(lines=["NET/Socket : Using [0]"], log_lines=wanted)
    assert "engine.log_line" in judged(env={}, lines=[], log_lines=wanted)
    # Where nothing can be proven, a line that must not be there still fails.
    silent = changed(NCCL_DEBUG="WARN")
    found = judged(env=silent, lines=["NCCL INFO NET/Socket : Using [0]"], log_lines=wanted[:1])
    assert found["engine.transport"].severity == "error"
    assert "engine.log_line" not in found


def test_the_record_of_a_rank_is_what_it_was_started_with():
    line = {"text": "x", "want": "present", "means": "y"}
    record = {
        "rank": 2,
        "shape": "ring",
        "argv": ["a", 1],
        "env": {"A": 1},
        "expected": {"log_lines": [line]},
        "profile": "p",
    }
    assert started(json.loads(json.dumps(record))) == Started(2, ("a", "1"), {"A": "1"}, (line,), shape="ring")
    assert started({}) == Started()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x_total 3\n", 3),
        ('x_total{a="1"} 3.0\nx_total{a="2"} 4.5\nx_total_created 9\nyx_total 1\n', 7.5),
        ("# TYPE x_total counter\n", None),
        ("x_total nothing\n", None),
    ],
)
def test_metric(text, expected):
    assert metric(text, "x_total") == expected


def test_memory_is_what_kernel_and_engine_say():
    meminfo = "MemTotal:       127600000 kB\nMemFree: 1 kB\nMemAvailable:   12582912 kB\nHugePages_Total: 0\n"
    lines = ["x Model loading took 82.5 GiB memory and 190.1 seconds", "Available KV cache memory: 9.25 GiB"]
    gib = 1 << 30
    assert memory(meminfo, lines) == {
        "total": 127600000 * 1024,
        "available": 12 * gib,
        "weights": int(82.5 * gib),
        "kv": int(9.25 * gib),
    }
    assert memory("", ["Available KV cache memory: -1.29 GiB"]) == {
        "total": 0,
        "available": None,
        "weights": None,
        "kv": None,
    }
