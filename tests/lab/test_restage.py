# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model updates on the lab: what they cost in bytes and downtime, what a bad one costs, nodes that die, disks that are too small.

Runs inside the controller namespace of a freshly booted lab (`make restage`). The tests build on each other's lab, in file order.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest

from restage_run import (
    ENGRAM_SHARDS,
    ROOT,
    Controller,
    Fullness,
    Health,
    active,
    disk,
    end_stagings,
    everywhere,
    publish,
    record,
    restage,
    serve_all,
    whole,
)
from site_run import NODES, ctl, on, play

SMALL = {"quantization_config.json", "tokenizer.json", "tokenizer_config.json"}
SHARD = "model-00043-of-00048.safetensors"
LARGE = "model-00048-of-00048.safetensors"
CHUNK = 16 << 20
#: Revisions by the state of the bucket they were published in, filled as the tests go on.
KNOWN: dict[str, dict[str, Any]] = {}


def published(kind: str) -> str:
    """The revision of this state of the bucket, which is brought there."""
    KNOWN[kind] = publish(kind)
    return str(KNOWN[kind]["revision"])


def size(kind: str, name: str) -> int:
    return next(int(file["size"]) for file in KNOWN[kind]["files"] if file["path"] == name)


@pytest.fixture(scope="module", autouse=True)
def serving():
    """The first state of the checkpoint, served by all nodes."""
    revision = published("same")
    code, output = play()
    assert code == 0, output[-4000:]
    assert serve_all(revision)


def test_nothing_changed_moves_nothing_and_is_quick():
    restage()  # accepts what site.yml left; connections are open from here on
    run = restage()
    assert run.code == 0, run.output[-3000:]
    assert set(re.findall(r"changed=(\d+)", run.output)) == {"0"}
    assert "nothing to do" in run.output and run.total == 0
    print(f"no-op: {run.seconds:.1f} s")
    assert run.seconds < 15


def test_three_small_files_cost_those_files_and_no_staging_time():
    new = published("small")
    with Health() as health:
        # Slow staging must not show in the downtime.
        run = restage("-v", checkpoint_restage_rate_limit=20_000)
    assert run.code == 0, run.output[-4000:]
    assert serve_all(new) and all(whole(new, node, KNOWN["small"]) for node in NODES)
    wanted = {name: size("small", name) for name in SMALL}
    assert run.moved == {node: wanted for node in NODES}
    told = re.search(r"is served by all nodes; out of service for ([\d.]+) s", run.output)
    assert told, run.output[-3000:]
    print(f"downtime: told {told[1]} s, a client saw {health.downtime:.1f} s, the run took {run.seconds:.1f} s")
    assert abs(float(told[1]) - health.downtime) < 1.0
    assert health.downtime < 20
    assert record("spark1")["previous"] == KNOWN["same"]["revision"] and record("spark1")["downtime_s"]


def test_roll_back_needs_no_store_and_moves_nothing():
    old = str(KNOWN["same"]["revision"])
    run = restage(playbook="rollback.yml", checkpoint_endpoint_url="http://198.18.0.254:9")
    assert run.code == 0, run.output[-3000:]
    assert run.total == 0 and serve_all(old)


def test_one_shard_costs_that_shard_once_for_all_with_fanout():
    new = published("shard")
    run = restage(checkpoint_fanout=True)
    assert run.code == 0, run.output[-3000:]
    assert run.files == {SHARD} and run.total == size("shard", SHARD)
    assert serve_all(new) and all(whole(new, node, KNOWN["shard"]) for node in NODES)


def test_one_chunk_costs_that_chunk():
    new = published("chunk")
    run = restage()
    assert run.code == 0, run.output[-3000:]
    # SHARD is as at first again: a link to the revision before.
    assert run.moved == {node: {LARGE: CHUNK} for node in NODES}
    assert serve_all(new) and all(whole(new, node, KNOWN["chunk"]) for node in NODES)
    # checkpoint_keep is 2: the oldest has gone, the one before the active one has not.
    assert everywhere(f"ls {ROOT}/revisions | wc -l") == ["2"] * 3


def test_a_revision_that_the_engine_refuses_leaves_the_old_one_serving():
    old, new = active()[0], published("refused")
    run = restage()
    assert run.code != 0
    assert f"the switch to revision {new} failed" in run.output
    assert "no tensor layers.0.lab.refused.weight" in run.output
    assert f"All nodes are back at revision {old} and were accepted with it" in run.output
    assert serve_all(old)
    assert [record(node)["target"] for node in NODES] == [""] * 3


def test_a_node_that_dies_between_the_phases():
    """spark2 loses its power when it is prepared and the group is being stopped."""
    old, new = active()[0], published("small")
    with Killer("spark2", f'grep -q \'"target": "{new}"\' {ROOT}/switch.json'):
        run = restage()
    assert run.code != 0 and "spark2: it does not answer" in run.output, run.output[-3000:]
    for node in ("spark1", "spark3"):
        assert on(node, f"readlink {ROOT}/current") == f"revisions/{old}"
        assert record(node)["target"] == ""
    ctl("node", "start", "spark2")
    run = restage(playbook="verify.yml")
    assert f"the switch from {old} to {new} is prepared" in run.output
    run = restage()
    assert run.code == 0, run.output[-3000:]
    assert run.total == 0 and serve_all(new)


class Killer:
    """Cuts the power of a node as soon as a condition holds on it."""

    def __init__(self, node: str, condition: str) -> None:
        self.node, self.condition, self.done = node, condition, False
        self.end = threading.Event()
        self.thread = threading.Thread(target=self._wait)

    def _wait(self) -> None:
        while not self.end.wait(0.05):
            if on(self.node, f"{self.condition} && echo yes || true") == "yes":
                ctl("node", "kill", self.node)
                self.done = True
                return

    def __enter__(self) -> Killer:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end.set()
        self.thread.join()
        assert self.done, f"{self.condition} was never seen on {self.node}"


def test_drift_is_found_and_costs_that_file_alone():
    revision, victim = active()[0], "model-00021-of-00048.safetensors"
    on("spark2", f"printf damage | dd of={ROOT}/current/{victim} bs=1 seek=4000 conv=notrunc status=none")
    assert re.search(
        rf"spark2: checkpoint.files error: found 1 file wrong \({victim}", restage(playbook="verify.yml").output
    )
    run = restage()
    assert run.code == 0, run.output[-3000:]
    assert run.moved == {"spark1": {}, "spark3": {}, "spark2": {victim: size("small", victim)}}
    # The same again with the time as it was: only reading everything finds it.
    path = f"{ROOT}/current/{victim}"
    on(
        "spark3",
        f"touch -r {path} /tmp/t; printf damage | dd of={path} bs=1 seek=4000 conv=notrunc status=none; touch -r /tmp/t {path}",
    )
    assert restage().total == 0
    run = restage(checkpoint_verify="full")
    assert run.code == 0, run.output[-3000:]
    assert run.moved == {"spark1": {}, "spark2": {}, "spark3": {victim: size("small", victim)}}
    assert serve_all(revision) and all(whole(revision, node, KNOWN["small"]) for node in NODES)


def test_too_little_disk_is_refused_and_done_in_place_with_consent():
    """The controller is killed half-way, and the next run goes on."""
    old, new = active()[0], published("engram")
    before = everywhere(f"ls -la --time-style=full-iso {ROOT}/revisions/{old}")
    used, whole_disk = max(disk(node) for node in NODES)
    ceiling = (used + (30 << 20)) * 100 // whole_disk + 1
    run = restage(checkpoint_disk_ceiling_percent=ceiling)
    assert run.code != 0 and run.total == 0
    assert re.search(rf"checkpoint.budget error: found .* to come = .*, expected at most {ceiling} %", run.output)
    # The revision before shares one of the two large files, whose room would stay taken.
    text = r"restage.yml with checkpoint_in_place: true: revision \w+ is deleted first; \d files of revision \w+ are replaced one by one"
    assert re.search(text, run.output), run.output[-3000:]
    assert everywhere(f"ls -la --time-style=full-iso {ROOT}/revisions/{old}") == before and serve_all(old)
    options = {"checkpoint_disk_ceiling_percent": ceiling, "checkpoint_in_place": True}
    with Fullness("spark1") as fullness:
        with Controller(**options, checkpoint_restage_rate_limit=12 << 20) as controller:
            until = time.monotonic() + 90
            while time.monotonic() < until and not half_way(new):
                time.sleep(0.2)
            controller.kill()
            end_stagings()
        assert half_way(new), "the run was not killed half-way"
        assert f"revision {old} (54 files) is being replaced in place by {new}" in restage(playbook="verify.yml").output
        run = restage(**options)
    assert run.code == 0, run.output[-3000:]
    assert run.files <= set(ENGRAM_SHARDS) and run.total < 3 * sum(size("engram", name) for name in ENGRAM_SHARDS)
    assert serve_all(new) and all(whole(new, node, KNOWN["engram"]) for node in NODES)
    print(
        f"in place: at most {fullness.peak >> 20} MiB of {fullness.size * ceiling // 100 >> 20}, {fullness.samples} samples"
    )
    assert fullness.samples > 100 and fullness.peak <= fullness.size * ceiling // 100
    assert (
        everywhere(f"ls {ROOT}/manifests/{old}.json; test -e {ROOT}/replacing.json || echo over")
        == [f"{ROOT}/manifests/{old}.json\nover"] * 3
    )


def half_way(new: str) -> bool:
    """Whether a large file has begun to come on every node."""
    begun = f"test -e {ROOT}/replacing.json && ls {ROOT}/staging/{new}/*.partial >/dev/null 2>&1 && echo yes || true"
    return everywhere(begun) == ["yes"] * 3


def test_pruning_says_what_goes_and_what_stays():
    on(
        "spark1",
        "mkdir -p /var/tmp/engram-local/OLD-TP3; head -c 3000000 /dev/zero >/var/tmp/engram-local/OLD-TP3/shard",
    )
    on(
        "spark1",
        f"mkdir -p {ROOT}/staging/0123456789abcdef; head -c 2000000 /dev/zero >{ROOT}/staging/0123456789abcdef/x.partial",
    )
    run = restage("--check", "--diff", playbook="prune.yml", checkpoint_prune_unfinished=True)
    assert run.code == 0, run.output[-3000:]
    assert re.search(r"spark1 +foreign +/var/tmp/engram-local/OLD-TP3 +3.0 MB +no", run.output)
    assert re.search(r"spark1 +unfinished staging +0123456789abcdef +2.0 MB +yes", run.output)
    assert re.search(rf"spark2 +revision +{active()[1]} +\S+ \wB +no +active", run.output)
    assert on("spark1", f"ls {ROOT}/staging") == "0123456789abcdef"
    run = restage(playbook="prune.yml", checkpoint_prune_unfinished=True)
    assert run.code == 0 and on("spark1", f"ls {ROOT}/staging; ls /var/tmp/engram-local") == "OLD-TP3"
