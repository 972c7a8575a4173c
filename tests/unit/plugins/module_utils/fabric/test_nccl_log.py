# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NCCL's log must and must not say."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.engine import gate_nccl
from ansible_collections.gb10.ring.plugins.module_utils.engine.gate_claims import Seen, Started
from ansible_collections.gb10.ring.plugins.module_utils.fabric import allreduce_engine, nccl_log
from ansible_collections.gb10.ring.tests.unit.fixtures import nccl_logs as logs

AWARE = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1"}


def judged(log, shape="ring", wanted=tuple(logs.DEVICES), env=None, crossed=None):
    env = (AWARE if shape == "ring" else {}) if env is None else env
    cabling = nccl_log.Cabling(shape, crossed)
    found = nccl_log.checks("spark1", cabling, log, wanted, {"NCCL_SOCKET_IFNAME": "=enP7s7", **env})
    return {check.id.removeprefix("fabric.allreduce_"): check for check in found}


def test_a_healthy_ring():
    found = judged(logs.RING)
    assert set(found) == {"transport", "routing", "log"}
    assert all(check.ok for check in found.values())
    assert (
        found["transport"].found
        == "NET/IB with rocep1s0f0, rocep1s0f1, roceP2p1s0f0, roceP2p1s0f1; channels over NET/IB"
    )


def test_the_fallback_to_sockets():
    found = judged(logs.FALLBACK)
    assert {name for name, check in found.items() if not check.ok} == {"transport", "routing", "log"}
    assert found["transport"].found == "no NET/IB line; channels over NET/Socket; no line «Using network IB»"
    assert "NCCL works over sockets" in found["log"].found
    assert "NCCL found no RDMA device" in found["log"].found
    assert "/dev/infiniband" in found["log"].cure


def test_a_real_log_of_nccl_over_sockets():
    """NCCL 2.28.9 on a machine without RDMA devices: two GPUs that were kept from NVLink and shared memory."""
    log = Path(__file__).parents[3] / "fixtures" / "nccl-2.28.9-socket.log"
    found = judged(log.read_text(encoding="utf-8"))
    assert not any(check.ok for check in found.values())
    said = "no NET/IB line; channels over NET/Socket; no line «Using network IB»; bootstrap over lo"
    assert found["transport"].found == said
    assert found["log"].found.startswith("NCCL works over sockets; NCCL found no RDMA device")


def test_one_device_is_not_used():
    log = logs.RING.replace(" [3]roceP2p1s0f1:1/RoCE", "")
    check = judged(log)["transport"]
    assert not check.ok
    assert "roceP2p1s0f1 is ACTIVE on spark1" in check.cure


def test_a_pair_needs_no_routing():
    wanted = ["rocep1s0f0", "roceP2p1s0f0"]
    found = judged(logs.RING.replace(logs.OVERRIDE, ""), shape="pair", wanted=wanted)
    assert set(found) == {"transport", "log"}
    assert all(check.ok for check in found.values())


def sglang():
    """NCCL's variables as the profile for a switch of four sets them, subnet-aware routing among them."""
    path = Path(__file__).parents[5] / "roles" / "engine" / "profiles" / "sglang-tp4-engram.yml"
    return allreduce_engine.settings(yaml.safe_load(path.read_text(encoding="utf-8")), {})


@pytest.mark.parametrize(
    ("shape", "crossed", "needed"),
    [
        ("switch", False, False),
        ("switch", True, False),
        ("pair", False, False),
        ("pair", True, True),  # devices of one number do not share the cable
        ("pair", None, True),
        ("ring", True, True),
    ],
)
@pytest.mark.parametrize("env", [AWARE, sglang()], ids=["fabric", "sglang-tp4-engram"])
def test_routing_is_needed_where_equal_devices_do_not_meet(shape, crossed, needed, env):
    assert env["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"
    silent = judged(logs.RING.replace(logs.OVERRIDE, ""), shape=shape, env=env, crossed=crossed)
    assert [name for name, check in silent.items() if not check.ok] == (["routing"] if needed else [])
    assert ("routing" in judged(logs.RING, shape=shape, env=env, crossed=crossed)) is needed
    gate = gate_nccl.routing(
        "spark1",
        Started(env={**env, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NET"}, shape=shape, crossed=crossed),
        Seen(),
    )
    assert bool(gate) is needed, "the engine's own gate asks for the same"


@pytest.mark.parametrize(
    ("log", "shape", "said"),
    [
        (logs.RING.replace(logs.NETWORK, ""), "ring", "no line «Using network IB»"),
        (logs.RING.replace(logs.NETWORK, "NCCL INFO Using network IBext_v8"), "ring", None),
        (logs.RING.replace(logs.CONNECTED, ""), "ring", "no line «Connected all rings»"),
        (logs.RING.replace("all rings", "all trees"), "ring", "no line «Connected all rings»"),
        (logs.RING.replace("all rings", "all trees"), "pair", None),
        (logs.RING.replace("OOB enP7s7:", "OOB enp1s0f0np0:"), "ring", "bootstrap over enp1s0f0np0"),
        (logs.RING.replace("OOB enP7s7:", "OOB enP7s7x:"), "ring", "bootstrap over enP7s7x"),
    ],
)
def test_lines_that_must_be_there(log, shape, said):
    check = judged(log, shape=shape, wanted=logs.DEVICES[:2])["transport"]
    assert check.ok is (said is None)
    assert (said or "") in check.found
    assert "NCCL_SOCKET_IFNAME=enP7s7" in check.cure


def test_a_ring_without_subnet_aware_routing():
    found = judged(logs.RING.replace(logs.OVERRIDE, ""))
    assert [name for name, check in found.items() if not check.ok] == ["routing"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (logs.SOCKET, "NCCL works over sockets"),
        (logs.SOCKET_CHANNEL, "NCCL works over sockets"),
        (logs.NO_DEVICE, "NCCL found no RDMA device"),
        ("NCCL INFO NET/IB : rocep1s0f0:1 GID table changed", "addresses changed during the run"),
        ("NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out", "share no cable"),
        ("NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "memory cannot be registered"),
        (
            "NCCL INFO NET/IB : Made virtual device [4] name=rocep1s0f0+rocep1s0f1 speed=400000 ndevs=2",
            "neighbours are merged",
        ),
    ],
)
def test_lines_that_must_not_be_there(line, said):
    check = judged(f"{logs.RING}\n{line}")["log"]
    assert not check.ok
    assert said in check.found
    assert check.cure


def test_merged_devices_are_a_ring_s_matter():
    line = "NCCL INFO NET/IB : Made virtual device [4] name=rocep1s0f0+roceP2p1s0f0 speed=400000 ndevs=2"
    assert judged(f"{logs.RING}\n{line}", shape="switch")["log"].ok
