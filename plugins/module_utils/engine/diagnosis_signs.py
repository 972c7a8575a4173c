# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signatures of failures between the ranks of a group: transport, rendezvous, and what only follows from another rank's end."""

from __future__ import annotations

from typing import NamedTuple

# How fundamental a cause is: what a lower level shows explains what is seen of a higher one.
MACHINE = 0  # the kernel, the driver or the disk ended it
SETUP = 1  # the engine cannot work as it is set up
LINK = 2  # the ranks cannot talk over the fabric
MEETING = 3  # the ranks do not find each other
SUSPECT = 4  # wrong or harmful, but an engine may live with it
GROUP = 5  # another rank's end


class Signature(NamedTuple):
    """One known cause. pattern: of one line. means: what it says about the node. source: where the fact is from."""

    id: str
    level: int
    pattern: str
    means: str
    cure: str
    source: str


TABLE: tuple[Signature, ...] = (
    Signature(
        "nccl-no-device",
        LINK,
        r"NET/IB : No device found",
        "NCCL found no RDMA device",
        "see that /dev/infiniband is there (in the container too) and that NCCL_IB_HCA names devices of this node: run verify, rdma.devices",
        "NCCL 2.28 log; LLMKube multi-node guide",
    ),
    Signature(
        "nccl-version-mismatch",
        LINK,
        r"Mismatched NCCL version",
        "the ranks run different versions of NCCL",
        "give every node the same image or environment: run the engine role on all nodes together",
        "NCCL 2.27 init.cc",
    ),
    Signature(
        "nccl-ring-pairing",
        LINK,
        r"ibv_modify_qp\w* .*failed|Call to ibv_modify_qp failed",
        "NCCL paired two devices that share no cable",
        "on a ring use NCCL 2.30.7 or newer with NCCL_IB_SUBNET_AWARE_ROUTING=1 and all four devices in NCCL_IB_HCA; then run verify, fabric.cabling",
        "LLMKube post on three Sparks; eugr/spark-vllm-docker#252",
    ),
    Signature(
        "nccl-memory-registration",
        SETUP,
        r"ibv_reg_mr\w* .*Cannot allocate memory",
        "memory cannot be registered for RDMA",
        "run preflight, which looks at kexec handover (kernel 7.0 needs kho=off on its command line: CmaFree is above CmaTotal without it); "
        "then see that limit_memlock of the profile is infinity",
        "MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259; NVIDIA/nccl-tests#206",
    ),
    Signature(
        "nccl-system-error",
        LINK,
        r"ncclSystemError|NCCL error.*unhandled system error",
        "NCCL's transport between the ranks failed at a system call",
        "on a ring: NCCL 2.30.7, NCCL_IB_SUBNET_AWARE_ROUTING=1, all four devices in NCCL_IB_HCA. Run verify for the fabric's cables, "
        "addresses and MTU; NCCL_DEBUG=INFO in the profile's env names the call",
        "LLMKube post on three Sparks",
    ),
    Signature(
        "gloo-mesh",
        MEETING,
        r"Gloo connectFullMesh failed",
        "Gloo cannot connect every rank with every other",
        "see that no firewall stands between the nodes on the management plane (Gloo takes many ports, not only the rendezvous), and that "
        "NetworkManager leaves its addresses alone",
        "measured with vLLM 0.32 on three nodes; masquerator-coder/dsv41-deploy-public PITFALLS",
    ),
    Signature(
        "stale-rendezvous",
        MEETING,
        r"server socket has failed to listen .*EADDRINUSE|EADDRINUSE.*rendezvous|waiting for clients\. \d+/\d+ clients joined",
        "the rendezvous is held by an earlier group, or a rank joined an earlier one",
        "restart the whole group (engine_state: restarted); a rank that is started alone meets the old group's store. If the port stays "
        "taken, `ss -ltnp` on the head says by whom",
        "tonyd2wild/DeepSeek-V4.1-Flash-vLLM-DGX-Spark; torch TCPStore",
    ),
    Signature(
        "head-not-reached",
        MEETING,
        r"TCP client failed to connect/validate to host|The client socket has (failed|timed out) .*trying to connect",
        "this rank does not reach the head's rendezvous",
        "look at the head's own log first: it listens only once it has started. Else see that ring_head_address is right and that no "
        "firewall stands before engine_rendezvous_port",
        "measured with vLLM 0.32: it retries for 30 minutes",
    ),
    Signature(
        "socket-transport",
        SUSPECT,
        r"NET/Socket : Using|Using network Socket|via NET/Socket",
        "NCCL runs over TCP on the management plane, which is slow",
        "see that /dev/infiniband reaches the engine, that NCCL_IB_HCA names this node's devices and NCCL_IB_MERGE_NICS is 0 on a ring; "
        "run verify, rdma.devices",
        "masquerator-coder/dsv41-deploy-public PITFALLS; NCCL 2.28 log",
    ),
    Signature(
        "gid-table-changed",
        SUSPECT,
        r"GID table change",
        "the fabric's addresses changed while the engine had them open",
        "find what configures the network at the same time (NVIDIA Sync, NetworkManager) and stop it, then restart the group. Alone it "
        "may be noise: some fleets log it all day and serve",
        "colonel-otto troubleshooting; NVIDIA/nccl#1819, #394",
    ),
    Signature(
        "link-retries",
        SUSPECT,
        r"Got completion .*(error 12|status=12|IBV_WC_RETRY_EXC_ERR)|IBV_WC_RETRY_EXC_ERR",
        "packets to a neighbour were not acknowledged: its engine ended, or the cable did",
        "look at the other ranks' logs; if none ended by itself run verify for the fabric (fabric.cabling, fabric.bandwidth)",
        "NVIDIA/nccl#394, #1071",
    ),
    Signature(
        "killed",
        SUSPECT,
        r"code=killed, status=9/KILL|exit code -9\b",
        "a process of the engine was killed from outside",
        "see who did it: `journalctl -k` (out of memory), `journalctl -u gb10-ring-guard` (the memory guard), or a person",
        "systemd.exec(5)",
    ),
    Signature(
        "rank-silent",
        GROUP,
        r"No available shared memory broadcast block found|Watchdog caught collective operation timeout",
        "another rank does not answer any more",
        "look for the rank whose log ends first or has another cause; restart the whole group",
        "eugr/spark-vllm-docker#352; torch ProcessGroupNCCL",
    ),
    Signature(
        "worker-ended",
        GROUP,
        r"Engine core initialization failed|WorkerProc initialization failed|Worker proc \S+ died unexpectedly",
        "a worker process of this rank ended",
        "the first error above that line, or another rank's log, says why",
        "vLLM 0.32 multiproc_executor",
    ),
    Signature(
        "peer-gone",
        GROUP,
        r"Connection closed by peer|Connection reset by peer|the group is broken|recvValue failed",
        "another rank went away",
        "look for the rank with another cause, or the one that ended first; the group has to be restarted as a whole",
        "measured with vLLM 0.32: rank 0 ends so when another is killed",
    ),
    Signature(
        "engine-dead",
        GROUP,
        r"EngineDeadError|EngineCore encountered an issue|EngineCore encountered a fatal error",
        "the engine's core ended",
        "the first error above that line, or another rank's log, says why",
        "vLLM 0.32",
    ),
)
