# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ten kills of the controller at random moments of a re-staging, each followed by one whole run (`make restage-full`).

Runs inside the controller namespace of a freshly booted lab. The moments are drawn from a seed that is printed.
"""

from __future__ import annotations

import os
import random
import shlex
import time

import pytest

from restage_run import ROOT, Controller, active, everywhere, publish, record, restage, serve, serve_all, whole
from site_run import NODES

SEED = int(os.environ.get("RESTAGE_SEED", "6"))
KINDS = ("small", "shard")


#: Runs on a node: files that are not there, or not of their size, of revisions that count as complete.
LOST = """
import json, pathlib, sys
root = pathlib.Path(sys.argv[1])
for receipt in (root / "receipts").glob("*.json"):
    for file in json.loads((root / "manifests" / receipt.name).read_text())["files"]:
        path = root / "revisions" / receipt.stem / file["path"]
        if path.name != "config.json" and not (path.is_file() and path.stat().st_size == file["size"]):
            print(receipt.stem, file["path"])
"""


@pytest.fixture(scope="module")
def seconds() -> float:
    """How long a whole update takes. All nodes serve its state."""
    if "yes" not in everywhere(f"test -e {ROOT}/switch.json && echo yes || true"):
        serve(str(publish("same")["revision"]))
    publish("shard")
    run = restage()
    assert run.code == 0, run.output[-4000:]
    print(f"seed {SEED}; a whole run takes {run.seconds:.1f} s")
    return run.seconds


def receipts() -> list[set[str]]:
    return [set(text.split()) for text in everywhere(f"ls {ROOT}/receipts")]


@pytest.mark.parametrize("number", range(10))
def test_a_kill_at_a_random_moment(seconds, number):
    wanted = publish(KINDS[number % 2])
    revision = str(wanted["revision"])
    moment = random.Random(SEED + number).uniform(1.0, seconds)
    with Controller() as controller:
        time.sleep(moment)
        controller.kill()
    states = [(name, record(node)["target"]) for name, node in zip(active(), NODES, strict=True)]
    # Their bytes are looked at after the next run.
    assert everywhere(f"python3 -c {shlex.quote(LOST)} {ROOT}") == [""] * 3
    run = restage()
    print(f"killed after {moment:.1f} s: {states}; the next run took {run.seconds:.1f} s")
    assert run.code == 0, run.output[-4000:]
    assert serve_all(revision) and all(whole(revision, node, wanted) for node in NODES)
    assert [record(node)["target"] for node in NODES] == [""] * 3
    (before,) = {f"{record(node)['previous']}.json" for node in NODES}
    assert all(before in found for found in receipts())
