# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ten kills of the controller at random moments of a re-staging, each followed by one whole run (`make restage-full`).

Runs inside the controller namespace of a freshly booted lab. The moments are drawn from a seed that is printed.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest

from restage_run import ROOT, Controller, active, everywhere, publish, record, restage, serve, serve_all, whole
from site_run import NODES, on

SEED = int(os.environ.get("RESTAGE_SEED", "6"))
KINDS = ("small", "shard")


@pytest.fixture(scope="module")
def served() -> dict[str, Any]:
    """A state that all nodes serve, and how long a whole update takes."""
    manifests = {}
    if "yes" not in everywhere(f"test -e {ROOT}/switch.json && echo yes || true"):
        manifests = _known(publish("same"))
        serve(*manifests)
    for kind in ("chunk", "shard"):
        manifests |= _known(publish(kind))
        run = restage()
        assert run.code == 0, run.output[-4000:]
    print(f"seed {SEED}; a whole run takes {run.seconds:.1f} s")
    return {"seconds": run.seconds, "manifests": manifests}


def _known(manifest: dict[str, Any]) -> dict[str, Any]:
    return {str(manifest["revision"]): manifest}


def receipts() -> set[str]:
    return {name.removesuffix(".json") for text in everywhere(f"ls {ROOT}/receipts") for name in text.split()}


@pytest.mark.parametrize("number", range(10))
def test_a_kill_at_a_random_moment(served, number):
    wanted = publish(KINDS[number % 2])
    revision, manifests = str(wanted["revision"]), served["manifests"]
    manifests[revision] = wanted
    moment = random.Random(SEED + number).uniform(1.0, served["seconds"])
    with Controller() as controller:
        time.sleep(moment)
        controller.kill()
    states = [(name, record(node)["target"]) for name, node in zip(active(), NODES, strict=True)]
    # No file that a receipt names is lost at that moment; sizes, as reading all of it would take minutes.
    for node, text in zip(
        NODES, everywhere(f"for r in {ROOT}/receipts/*.json; do basename $r .json; done"), strict=True
    ):
        assert all(complete(node, name, manifests[name]) for name in text.split())
    run = restage()
    print(f"killed after {moment:.1f} s: {states}; the next run took {run.seconds:.1f} s")
    assert run.code == 0, run.output[-4000:]
    assert serve_all(revision) and all(whole(revision, node, wanted) for node in NODES)
    assert [record(node)["target"] for node in NODES] == [""] * 3
    before = {str(record(node)["previous"]) for node in NODES}
    assert len(before) == 1 and before.pop() in receipts()


def complete(node: str, revision: str, manifest: dict[str, Any]) -> bool:
    rows = on(node, f"cd {ROOT}/revisions/{revision} && stat -c '%n %s' *").splitlines()
    found = {name: int(size) for name, size in (row.split() for row in rows)}
    wanted = {str(file["path"]): int(file["size"]) for file in manifest["files"]}
    found.pop("config.json"), wanted.pop("config.json")
    assert found == wanted
    return True
