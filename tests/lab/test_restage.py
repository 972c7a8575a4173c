# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model updates on the lab: what they cost in bytes and downtime, what a bad one costs, nodes that die, disks that are too small.

Runs inside the controller namespace of a freshly booted lab (`make restage`). The tests build on each other's lab, in file order.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time

import pytest

from restage_run import (
    CHUNK,
    LARGE,
    ROOT,
    Health,
    States,
    active,
    everywhere,
    record,
    restage,
    serve,
    serve_all,
)
from site_run import CHECKOUT, NODES, ctl, on

SMALL = {"quantization_config.json", "tokenizer.json", "tokenizer_config.json"}
FAULTS = "/run/gb10-lab/engine-faults"
SHARD = "model-00043-of-00048.safetensors"
STATES = States()
#: Load at which the processors are free again, of the minute that has passed.
SETTLED = 2.0
#: Seconds by state, as a client saw them.
DOWNTIMES: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def serving():
    """The first state of the checkpoint, served by all nodes."""
    serve(STATES.publish("same"))


def nothing_to_do() -> float:
    """Seconds of a run without anything to do."""
    run = restage()
    assert run.code == 0, run.output[-3000:]
    assert set(re.findall(r"changed=(\d+)", run.output)) == {"0"}
    assert "nothing to do" in run.output and run.total == 0
    print(f"no-op: {run.seconds:.1f} s")
    return run.seconds


def test_nothing_changed_moves_nothing():
    assert nothing_to_do() > 0


@pytest.mark.full  # on a machine that does nothing else
def test_a_run_with_nothing_to_do_takes_less_than_15_s():
    """Bringing the first state up has made a load, which is let settle for two minutes at most."""
    until = time.monotonic() + 120
    while os.getloadavg()[0] > SETTLED and time.monotonic() < until:
        time.sleep(1)
    assert nothing_to_do() < 15


def test_three_small_files_cost_those_files_and_no_staging_time():
    new = STATES.publish("small")
    with Health() as health:
        run = restage(checkpoint_restage_rate_limit=100_000)
    assert run.code == 0, run.output[-4000:]
    assert serve_all(new) and STATES.whole("small")
    wanted = {name: STATES.size("small", name) for name in SMALL}
    assert run.moved == {node: wanted for node in NODES}
    told = re.search(r"is active on all nodes; out of service for ([\d.]+) s", run.output)
    assert told, run.output[-3000:]
    print(f"downtime: told {told[1]} s, a client saw {health.downtime:.1f} s, the run took {run.seconds:.1f} s")
    assert abs(float(told[1]) - health.downtime) < 1.0
    # Staging, which the limit makes slow, has no part in it: all of it was over on each node before the API went.
    staged = everywhere(f"stat -c %.Y {ROOT}/receipts/{new}.json")
    assert max(map(float, staged)) < health.went
    DOWNTIMES["small"] = health.downtime
    assert record("spark1")["previous"] == STATES.revision("same") and record("spark1")["downtime_s"]


def test_roll_back_needs_no_store_and_moves_nothing():
    old = STATES.revision("same")
    with Health() as health:
        run = restage(playbook="rollback.yml", checkpoint_endpoint_url="http://198.18.0.254:9")
    assert run.code == 0, run.output[-3000:]
    assert run.total == 0 and serve_all(old)
    print(f"downtime of the way back: {health.downtime:.1f} s, the run took {run.seconds:.1f} s")
    # Stop, switch and start are the same on both ways, and all that a roll back does.
    assert health.downtime < run.seconds and DOWNTIMES["small"] < run.seconds


def test_one_shard_and_a_chunk_of_another_leave_the_store_once_for_all_with_fanout():
    new = STATES.publish("shards")
    run = restage(checkpoint_fanout=True)
    assert run.code == 0, run.output[-3000:]
    assert run.by_file == {SHARD: STATES.size("shards", SHARD), LARGE: CHUNK}
    assert serve_all(new) and STATES.whole("shards")
    # checkpoint_keep is 2: the oldest has gone, the one before the active one has not.
    assert everywhere(f"ls {ROOT}/revisions | wc -l") == ["2"] * 3
    assert record("spark1")["previous"] == STATES.revision("same")


def test_a_revision_that_the_engine_refuses_leaves_the_old_one_serving():
    old, new = active()[0], STATES.publish("refused")
    run = restage()
    assert run.code != 0
    assert f"the switch to revision {new} failed" in run.output
    assert "no tensor layers.0.lab.refused.weight" in run.output
    assert f"All nodes are back at revision {old} and were accepted with it" in run.output
    assert serve_all(old)
    assert [record(node)["target"] for node in NODES] == [""] * 3


def test_a_revision_that_serves_and_answers_wrongly_is_not_kept():
    """The fault is there as long as the new revision is active: it is healthy, and its streams show words of each other."""
    old, new = active()[0], STATES.publish("small")
    there = f"test $(readlink {ROOT}/current) = revisions/{new}"
    heal = f"until {there}; do sleep 0.1; done; while {there}; do sleep 0.1; done; rm {FAULTS}"
    on("spark1", f"echo mixed-streams >{FAULTS}; systemd-run -q --unit=heal sh -c '{heal}'")
    run = restage()
    assert run.code != 0
    assert re.search(r"acceptance: 1 of \d+ checks", run.output), run.output[-3000:]
    assert "spark1: engine.acceptance_streams error" in run.output
    assert f"All nodes are back at revision {old} and were accepted with it" in run.output
    assert serve_all(old)


def test_a_node_that_dies_between_the_phases():
    """spark2 loses its power when it is prepared and the group is being stopped."""
    old, new = active()[0], STATES.publish("small")
    with Killer("spark2", f'grep -q \'"target": "{new}"\' {ROOT}/switch.json'):
        run = restage()
    assert run.code != 0 and "spark2: it does not answer" in run.output, run.output[-3000:]
    assert "spark2 did not answer. The group is stopped" in run.output
    for node in ("spark1", "spark3"):
        assert on(node, f"readlink {ROOT}/current") == f"revisions/{old}"
        assert record(node)["target"] == ""
    ctl("node", "start", "spark2")
    run = restage(playbook="verify.yml", verify_roles=["checkpoint"])
    assert f"the switch from {old} to {new} is prepared" in run.output
    run = restage()
    assert run.code == 0, run.output[-3000:]
    assert run.total == 0 and serve_all(new)


class Killer:
    """Cuts the power of a node as soon as a condition holds on it."""

    def __init__(self, node: str, condition: str) -> None:
        self.node, self.condition, self.done = node, condition, False
        self.thread = threading.Thread(target=self._wait)

    def _wait(self) -> None:
        script = f"until {self.condition}; do sleep 0.05; done"
        words = ["lab/ctl", "exec", self.node, "--", "timeout", "600", "sh", "-c", script]
        self.waiting = subprocess.Popen(words, cwd=CHECKOUT)
        if self.waiting.wait() == 0:
            ctl("node", "kill", self.node)
            self.done = True

    def __enter__(self) -> Killer:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.waiting.terminate()  # without effect where it has ended
        self.thread.join()
        assert self.done, f"{self.condition} was never seen on {self.node}"
