# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fabric_allreduce with a stand-in for the Python that has torch."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.fabric.allreduce import MARK
from ansible_collections.gb10.ring.plugins.modules import fabric_allreduce
from ansible_collections.gb10.ring.tests.unit.fixtures import nccl_logs
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

RESULT = {
    "rank": 0,
    "ranks": 3,
    "backend": "nccl",
    "torch": "2.11.0",
    "device": "NVIDIA GB10",
    "library": "2.30.7",
    "limit_bytes": 1 << 32,
    "left_out": [],
    "results": [
        {"bytes": 1 << 28, "seconds": 0.0154, "algorithm_gbytes_s": 17.4, "bus_gbytes_s": 23.2, "wrong_items": 0}
    ],
}


@pytest.fixture
def commands(tmp_path, monkeypatch):
    return Commands(tmp_path / "bin", monkeypatch)


def answer(commands, log, result):
    (commands.folder / "said").write_text(f"{log}\n{MARK}{json.dumps(result)}\n")
    commands.script("python-with-torch", f"cat >{commands.folder}/given; cat {commands.folder}/said")


@pytest.fixture
def run(commands, capsys):
    def call(**options):
        base = {
            "node": "spark1",
            "rank": 0,
            "size": 3,
            "shape": "ring",
            "ports": PORTS,
            "management_interface": "enP7s7",
            "head_address": "192.168.1.11",
            "program": "the program",
            "command": ["python-with-torch"],
        }
        with patch_module_args({**base, **options}), pytest.raises(SystemExit):
            fabric_allreduce.main()
        return json.loads(capsys.readouterr().out)

    return call


def failed(result):
    return {check["id"].removeprefix("fabric.") for check in result["checks"] if not check["ok"]}


def test_a_healthy_ring(commands, run):
    answer(commands, nccl_logs.RING, RESULT)
    result = run()
    assert failed(result) == set()
    assert len(result["checks"]) == 6
    assert result["allreduce"]["results"][0]["bus_gbytes_s"] == 23.2
    assert "log" not in result
    assert (commands.folder / "given").read_text() == "the program"
    call = commands.calls("python-with-torch")[0]
    assert "--env MASTER_ADDR=192.168.1.11" in call
    assert "--env NCCL_IB_HCA==rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1" in call
    assert "--env NCCL_IB_SUBNET_AWARE_ROUTING=1" in call


def test_sockets_are_seen_in_the_log_and_the_figure(commands, run):
    slow = {**RESULT["results"][0], "bus_gbytes_s": 7.9}
    answer(commands, nccl_logs.FALLBACK, {**RESULT, "results": [slow]})
    result = run()
    assert failed(result) == {"allreduce_bandwidth", "allreduce_transport", "allreduce_routing", "allreduce_log"}
    assert any("NET/Socket" in line for line in result["log"])


@pytest.mark.parametrize(
    ("shape", "straight", "wrong"),
    [("switch", False, set()), ("pair", True, set()), ("pair", False, {"allreduce_routing"})],
)
def test_routing_that_the_cabling_has_no_use_for_is_not_asked_for(commands, run, shape, straight, wrong):
    answer(commands, nccl_logs.RING.replace(nccl_logs.OVERRIDE, ""), RESULT)
    ports = [{**port, "peer_netdev": port["netdev"]} for port in PORTS] if straight else PORTS
    engine = {"env": {"NCCL_IB_SUBNET_AWARE_ROUTING": 1}}
    assert failed(run(shape=shape, ports=ports, engine=engine)) == wrong


def test_gloo_has_no_log_to_judge(commands, run):
    answer(commands, "", {**RESULT, "backend": "gloo", "library": "gloo", "device": "cpu"})
    result = run(backend="gloo")
    assert [check["id"] for check in result["checks"]] == [
        "fabric.allreduce",
        "fabric.allreduce_sum",
        "fabric.allreduce_bandwidth",
    ]
    assert "NCCL" not in commands.calls("python-with-torch")[0]


def test_the_engines_profile_gives_image_and_settings(commands, run):
    answer(commands, nccl_logs.RING, RESULT)
    commands.script("docker", f"cat {commands.folder}/said")
    engine = {
        "name": "mine",
        "renderer": "docker",
        "executable": "vllm",
        "image": "x:1",
        "image_id": "",
        "gpus": "all",
        "capabilities": [],
        "devices": ["/dev/infiniband"],
        "env": {"NCCL_PROTO": "^LL128", "NCCL_IB_HCA": "={rdma_devices}", "NCCL_DEBUG": "WARN", "HOME": "/cache"},
    }
    (commands.folder / "gb10-ring").mkdir()
    record = {"container": {"image": "sha256:00", "reference": "x:1"}}
    (commands.folder / "gb10-ring/engine.json").write_text(json.dumps(record))
    assert failed(run(command=[], engine=engine, etc_root=str(commands.folder))) == set()
    call = commands.calls("docker")[0]
    assert "--entrypoint sh sha256:00 -c" in call
    assert "--env NCCL_PROTO=^LL128" in call
    assert "--env NCCL_DEBUG=INFO" in call
    assert "--env NCCL_IB_HCA==rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1" in call
    assert "HOME" not in call
    assert failed(run(engine=engine)) == set()  # a command of the user's is used as it is
    found = run(command=[], engine={**engine, "renderer": "kubernetes"})["checks"]
    assert [(check["ok"], "set fabric_allreduce_command" in check["found"]) for check in found] == [(False, True)]


def test_nothing_is_run_without_the_whole_group(commands, run):
    """verify.yml --limit: the ranks of the others would be waited for until the timeout."""
    answer(commands, nccl_logs.RING, RESULT)
    (check,) = run(left_out=["spark2", "spark3"])["checks"]
    assert (check["id"], check["ok"], check["severity"]) == ("fabric.allreduce", False, "info")
    assert check["found"] == "not run without spark2, spark3, outside of this run"
    assert commands.calls("python-with-torch") == []


def test_a_command_that_is_not_there(run):
    result = run(command=["no-such-python"])
    assert failed(result) == {"allreduce"}
    assert result["checks"][0]["found"] == "no-such-python is not installed on this machine"


def test_only_active_devices_are_named(commands, run):
    answer(commands, nccl_logs.RING, RESULT)
    functions = [
        {"netdev": port["netdev"], "present": True, "rdma_device": port["rdma_device"], "rdma_state": "4: ACTIVE"}
        for port in PORTS
    ]
    functions[0]["rdma_state"] = "1: DOWN"
    run(functions=functions)
    hca = next(word for word in commands.calls("python-with-torch")[0].split() if word.startswith("NCCL_IB_HCA="))
    assert "rocep1s0f0" not in hca.split("==")[1].split(",")
    for function in functions:
        function["rdma_state"] = "1: DOWN"
    assert "no RDMA device of the fabric is ACTIVE" in run(functions=functions)["msg"]
