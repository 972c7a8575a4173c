# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ten kills of the controller at random moments of a re-staging, each followed by one whole run (`make restage-full`).

Runs inside the controller namespace of a freshly booted lab. Every run has shards to fetch, slowly enough that some of the kills come
amid them: the length of a run is cut in ten, and each kill has a tenth of its own. The seed is printed.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pytest

from restage_run import (
    CHUNK,
    ENGRAM_SHARDS,
    ROOT,
    Controller,
    active,
    everywhere,
    named,
    publish,
    record,
    restage,
    serve,
    serve_all,
    whole,
)
from site_run import NODES

SEED = int(os.environ.get("RESTAGE_SEED", "6"))
KILLS = 10
#: Of three states in turn, the next one is never there any more (checkpoint_keep is 2), and has shards that the other two lack.
KINDS = ("shard", "engram", "chunk")
SHARD = "model-00043-of-00048.safetensors"
#: How long fetching takes in a run that is to be killed, as a part of what a run takes otherwise: more than four tenths of all its time.
FETCHING = 0.8
#: Seconds that it takes at most. Of a file with chunks on the node all bytes count for whether it goes on without its controller for a
#: minute: so it is for two of the three states, and the next run waits for it.
SHORT = 45.0
TENTHS = random.Random(SEED).sample(range(KILLS), KILLS)
#: Manifests of all states that were published, by revision.
MANIFESTS: dict[str, dict[str, Any]] = {}
#: What each kill came upon.
PHASES: list[str] = []


class Turn:
    """The next state of the bucket, each time another one."""

    def __init__(self) -> None:
        self.kinds = cycle(KINDS)

    def publish(self) -> tuple[str, int]:
        """Its revision, and the bytes that are fetched for it."""
        kind = next(self.kinds)
        manifest = publish(kind)
        sizes = {str(file["path"]): int(file["size"]) for file in manifest["files"]}
        fetched = {"shard": sizes[SHARD] + CHUNK, "engram": sum(sizes[name] for name in ENGRAM_SHARDS), "chunk": CHUNK}
        MANIFESTS[str(manifest["revision"])] = manifest
        return str(manifest["revision"]), fetched[kind]


TURN = Turn()


@dataclass
class Pace:
    """How fast the machine is, by the last whole run. One that is to be killed takes `plain`, and its fetch."""

    plain: float

    @property
    def fetching(self) -> float:
        return min(FETCHING * self.plain, SHORT)

    @property
    def slow(self) -> float:
        return self.plain + self.fetching


@pytest.fixture(scope="module")
def pace() -> Pace:
    """All nodes serve one of the states then, and have another one as the revision before it."""
    if "yes" in everywhere(f"test -e {ROOT}/switch.json && echo yes || true"):
        updated()
    else:
        serve(TURN.publish()[0])
    found = Pace(updated())
    print(f"seed {SEED}; a whole run takes {found.plain:.1f} s")
    return found


def updated() -> float:
    """Seconds of the next run with something to fetch: a lab that served before may have a state already."""
    for _state in KINDS:
        TURN.publish()
        run = restage()
        assert run.code == 0, run.output[-4000:]
        if run.total:
            return run.seconds
    raise AssertionError("the nodes had all states")


def assert_whole(revisions: dict[str, set[str]]) -> None:
    """Whether each of these revisions, by node, has every file that its manifest names, by what the file holds."""
    pairs = [(name, node) for node, names in revisions.items() for name in sorted(names)]
    with ThreadPoolExecutor() as pool:
        assert all(pool.map(lambda pair: whole(*pair, MANIFESTS[pair[0]]), pairs))


def phase(revision: str) -> str:
    """How far the update to this revision is: none of it, amid the transfer of a shard, all there, amid the switch, or over."""
    records = [record(node) for node in NODES]
    if {now["target"] for now in records} != {""} or len(set(active())) > 1:
        return "switching"
    if active()[0] == revision:
        return "switched"
    if any(everywhere(f"ls {ROOT}/staging/{revision}/*.safetensors.partial 2>/dev/null || true")):
        return "staging"
    there = everywhere(f"test -e {ROOT}/receipts/{revision}.json && echo yes || true")
    return "staged" if all(there) else "not begun"


@dataclass(frozen=True)
class Killed:
    """A run to a revision that was killed so many seconds after its start. old, previous: what all nodes served, and the one before it."""

    revision: str
    moment: float
    old: str
    previous: str


def kill(number: int, pace: Pace) -> Killed:
    """Kill a run at the moment of this number. One that was quicker than that is followed by another one."""
    moment = (TENTHS[number] + random.Random(SEED + number).random()) * pace.slow / KILLS
    for _try in range(3):
        revision, size = TURN.publish()
        served, before = record(NODES[0])["active"], record(NODES[0])["previous"]
        with Controller(checkpoint_restage_rate_limit=int(size / pace.fetching)) as controller:
            time.sleep(moment)
            if controller.kill():
                return Killed(revision, moment, str(served), str(before))
        assert serve_all(revision)
        moment *= 0.9
    raise AssertionError(f"three runs were over before {moment / 0.9:.1f} s had passed, and none was killed")


@pytest.mark.parametrize("number", range(KILLS))
def test_a_kill_at_a_random_moment(pace, number):
    run = kill(number, pace)
    PHASES.append(phase(run.revision))
    left = named()
    print(f"killed after {run.moment:.1f} of about {pace.slow:.1f} s, {PHASES[-1]}")
    for node, names in left.items():
        over = record(node)["active"] == run.revision
        assert names >= ({run.old} if over else {run.old, run.previous}), node
    assert_whole(left)
    following = restage()
    print(f"the next run took {following.seconds:.1f} s and moved {following.total} bytes")
    assert following.code == 0, following.output[-4000:]
    if PHASES[-1] != "switched":  # or there was nothing to do
        pace.plain = following.seconds
    assert serve_all(run.revision)
    assert [record(node)["target"] for node in NODES] == [""] * 3
    assert named() == {node: {run.revision, run.old} for node in NODES}
    assert_whole(named())
    # What was before is deleted, also when that was what the kill interrupted.
    assert [set(text.split()) for text in everywhere(f"ls -A {ROOT}/revisions")] == [{run.revision, run.old}] * 3


def test_the_kills_came_amid_transfers_and_switches():
    found = Counter(PHASES)
    print(dict(found))
    assert sum(found.values()) == KILLS
    assert found["staging"] >= 3 and found["switching"] >= 1
