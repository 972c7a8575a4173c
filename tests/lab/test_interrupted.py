# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A staging whose controller goes away: what runs on the nodes ends by itself, nothing of it is left, and the next run goes on.

Runs inside the controller namespace of a freshly booted lab (`make staging`, `make staging-full`). The tests build on each other's lab, in file order.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from fanout_run import ROOT, everywhere, forget, run, size, staging_runs
from site_run import CHECKOUT, INVENTORY, NODES

pytestmark = pytest.mark.full

SLOWLY = {"checkpoint_tensor_parallel": 0, "checkpoint_part_mib": 8}
#: Seconds: the lease of a node, the time of grace, and some for a busy machine.
LEASE, MARGIN = 60, 40
#: Async wrappers and the modules that they started; brackets keep a search from finding itself.
PROCESSES = "pgrep -f '[a]sync_wrapper|[A]nsiballZ_checkpoint_stage' || true"
ADDRESSES = (
    "grep -rlsE 'X-Amz-Signatur[e]=' /root /home /tmp /var/tmp /var/lib/gb10-ring /var/log /run /dev/shm || true"
)


@contextlib.contextmanager
def playing(**variables: object) -> Iterator[subprocess.Popen[bytes]]:
    """A staging in a session of its own, that is under way on all nodes."""
    argv = [
        "ansible-playbook",
        "playbooks/site.yml",
        "-i",
        str(INVENTORY / "ring.yml"),
        "--tags",
        "preflight,checkpoint",
    ]
    argv += ["-e", json.dumps({**SLOWLY, **variables})]
    process = subprocess.Popen(
        argv, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until = time.monotonic() + 120
        begun = f"ls {ROOT}/staging/*/*.safetensors 2>/dev/null | head -1"
        while not (all(everywhere(begun).values()) and all(staging_runs(node) for node in NODES)):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.5)
        yield process
    finally:
        process.kill()
        process.wait()


def ended_after(limit: float) -> float:
    """Seconds until no staging process is left on any node."""
    began = time.monotonic()
    while any(staging_runs(node) for node in NODES) or any(everywhere(PROCESSES).values()):
        assert time.monotonic() - began < limit, everywhere(PROCESSES)
        time.sleep(0.5)
    return time.monotonic() - began


def parts() -> dict[str, int]:
    """Bytes that each node has by its journal."""
    text = everywhere(f"cat {ROOT}/staging/*.journal")
    rows = {node: [json.loads(line) for line in said.splitlines() if line] for node, said in text.items()}
    return {node: sum(row["length"] for row in found if row["line"] == "part") for node, found in rows.items()}


def left() -> dict[str, str]:
    return everywhere(
        f"{ADDRESSES}; ls {ROOT}/staging | grep -E '[.](lease|progress)' || true; ls -d /tmp/ansible_* 2>/dev/null || true"
    )


def children(pid: int) -> list[int]:
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def test_ctrl_c_while_nodes_transfer_by_themselves():
    # At this rate all would take more than two minutes.
    forget()
    with playing(checkpoint_progress="on", checkpoint_rate_limit=2_000_000) as process:
        os.kill(process.pid, signal.SIGINT)
        process.wait(timeout=30)
        assert all(everywhere(PROCESSES).values())  # they run by themselves, or this would show nothing
        seconds = ended_after(LEASE + MARGIN)
    print(f"nodes ended {seconds:.0f} s after the controller")
    assert left() == dict.fromkeys(NODES, "")
    assert everywhere(f"ls {ROOT}/revisions 2>/dev/null || true") == dict.fromkeys(NODES, "")


def test_a_controller_that_dies_while_it_waits_for_nodes():
    # Less than 256 MiB are left of the test before, at a rate that would take more than half a minute.
    with playing(checkpoint_progress="off", checkpoint_rate_limit=4_000_000) as process:
        assert not any(everywhere(PROCESSES).values())
        # As when the machine goes: ansible-playbook, its workers, and their connections.
        for group in (process.pid, *children(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        seconds = ended_after(12)
    print(f"nodes ended {seconds:.0f} s after the controller")
    assert left() == dict.fromkeys(NODES, "")


def test_the_next_run_fetches_only_the_rest():
    had = parts()
    assert all(had.values())
    code, output, sent = run("--tags", "preflight,checkpoint", checkpoint_tensor_parallel=0, checkpoint_part_mib=8)
    assert code == 0, output
    # Parts that were in flight count for nothing: eight connections with 8 MiB each at most.
    missing = len(NODES) * size() - sum(had.values())
    assert sent < missing + len(NODES) * (8 * (8 << 20)) + (1 << 20)
    assert sent < 0.95 * len(NODES) * size()
