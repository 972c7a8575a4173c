# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of the files of a served revision on the lab: damage, a disk that holds no second one, what is pruned.

Runs inside the controller namespace (`make restage-full`), on a fresh lab or after test_restage.py. The tests build on each other's lab, in file order.
"""

from __future__ import annotations

import contextlib
import re

import pytest

from restage_run import (
    ENGRAM_SHARDS,
    ROOT,
    Controller,
    Fullness,
    Run,
    States,
    active,
    disk,
    end_stagings,
    everywhere,
    restage,
    serve,
    serve_all,
    wait_everywhere,
)
from site_run import NODES, on

STATES = States()


@pytest.fixture(scope="module", autouse=True)
def serving():
    """Two revisions on every node, which share all but four files; the newer one is served."""
    if "yes" not in everywhere(f"test -e {ROOT}/switch.json && echo yes || true"):
        serve(STATES.publish("same"))
    for kind in ("chunk", "small"):
        revision = STATES.publish(kind)
        run = restage()
        assert run.code == 0, run.output[-4000:]
    assert serve_all(revision)


def test_drift_is_found_and_costs_that_file_alone():
    revision, victim = active()[0], "model-00021-of-00048.safetensors"
    on("spark2", f"printf damage | dd of={ROOT}/current/{victim} bs=1 seek=4000 conv=notrunc status=none")
    assert re.search(rf"spark2: checkpoint.files error: found 1 file wrong \({victim}", verify().output)
    run = restage()
    assert run.code == 0, run.output[-3000:]
    assert run.moved == {"spark1": {}, "spark3": {}, "spark2": {victim: STATES.size("small", victim)}}
    # The same again with the time as it was: only reading everything finds it.
    path = f"{ROOT}/current/{victim}"
    on(
        "spark3",
        f"touch -r {path} /tmp/t; printf damage | dd of={path} bs=1 seek=4000 conv=notrunc status=none; touch -r /tmp/t {path}",
    )
    assert restage().total == 0
    run = restage(checkpoint_verify="full")
    assert run.code == 0, run.output[-3000:]
    assert run.moved == {"spark1": {}, "spark2": {}, "spark3": {victim: STATES.size("small", victim)}}
    assert serve_all(revision) and STATES.whole("small")


def test_too_little_disk_is_refused_and_done_in_place_with_consent():
    """The controller is killed half-way, and the next run goes on."""
    old, new = active()[0], STATES.publish("engram")
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
    with contextlib.ExitStack() as watched:
        disks = [watched.enter_context(Fullness(node)) for node in NODES]
        # Slow enough for a look at all nodes before the first one is done.
        with Controller(**options, checkpoint_restage_rate_limit=4 << 20) as controller:
            wait_everywhere(half_way(new))
            controller.kill()
            end_stagings()
        assert everywhere(f"{half_way(new)} && echo yes || true") == ["yes"] * 3, "the run was not killed half-way"
        assert f"revision {old} (54 files) is being replaced in place by {new}" in verify().output
        run = restage(**options)
    assert run.code == 0, run.output[-3000:]
    assert f"of revision {old} are replaced (" in run.output
    assert f"the manifest is kept as {ROOT}/manifests/{old}.json" in run.output
    assert run.files <= set(ENGRAM_SHARDS) and run.total < 3 * sum(
        STATES.size("engram", name) for name in ENGRAM_SHARDS
    )
    assert serve_all(new) and STATES.whole("engram")
    for seen in disks:
        allowed = seen.size * ceiling // 100
        print(
            f"in place: {seen.node} held {seen.peak >> 20} MiB at most of {allowed >> 20}, looked at {seen.samples} times"
        )
        assert seen.samples > 100 and seen.peak <= allowed
    assert (
        everywhere(f"ls {ROOT}/manifests/{old}.json; test -e {ROOT}/replacing.json || echo over")
        == [f"{ROOT}/manifests/{old}.json\nover"] * 3
    )


def verify() -> Run:
    """What verify.yml says of the checkpoint."""
    return restage(playbook="verify.yml", verify_roles=["checkpoint"])


def half_way(new: str) -> str:
    """The condition that a part of a large file has come on a node, and the file has not."""
    part = f"grep -q .line....part. {ROOT}/staging/{new}.journal"  # in quotes already, so none here
    return f"test -e {ROOT}/replacing.json && ls {ROOT}/staging/{new}/*.partial >/dev/null 2>&1 && {part}"


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
