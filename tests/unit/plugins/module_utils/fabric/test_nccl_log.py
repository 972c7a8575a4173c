# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NCCL's log must and must not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import nccl_log
from ansible_collections.gb10.ring.tests.unit.fixtures import nccl_logs as logs


def judged(log, shape="ring", wanted=tuple(logs.DEVICES)):
    return {
        check.id.removeprefix("fabric.allreduce_"): check for check in nccl_log.checks("spark1", shape, log, wanted)
    }


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
    assert found["transport"].found == "no NET/IB line; channels over NET/Socket"
    assert "NCCL works over sockets" in found["log"].found
    assert "NCCL found no RDMA device" in found["log"].found
    assert "/dev/infiniband" in found["log"].cure


def test_a_real_log_of_nccl_over_sockets():
    """NCCL 2.28.9 on a machine without RDMA devices: two GPUs that were kept from NVLink and shared memory."""
    log = Path(__file__).parents[3] / "fixtures" / "nccl-2.28.9-socket.log"
    found = judged(log.read_text(encoding="utf-8"))
    assert not any(check.ok for check in found.values())
    assert found["transport"].found == "no NET/IB line; channels over NET/Socket"
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
