# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One chunk of a hundred: what an update of 1 % of a shard costs, counted at the store.

A shard of the lab has five chunks of 16 MiB. So the collection is copied, with smaller chunks in its one constant, and run from there:
the largest shard then has a hundred, and everything else is as it is. Runs inside the controller namespace of a freshly booted lab
(`make restage-full`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import restage_run
from restage_run import LARGE, States, restage, serve, serve_all
from site_run import CHECKOUT, NODES

CHUNK = 172 << 12  # bytes; a multiple of a page, and a hundredth of the largest shard
CONSTANT = "CHUNK = 16 << 20"
PARTS = ("plugins", "roles", "playbooks", "meta", "lab")
FILES = ("plugins/module_utils/checkpoint/manifest.py", "lab/checkpoint_variants.py")


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory):
    """States of the bucket, published and staged with small chunks."""
    folder: Path = tmp_path_factory.mktemp("collections")
    copy = folder / "ansible_collections/gb10/ring"
    for part in PARTS:
        shutil.copytree(CHECKOUT / part, copy / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        text = (copy / name).read_text(encoding="utf-8")
        assert text.count(CONSTANT) == 1, name
        (copy / name).write_text(text.replace(CONSTANT, f"CHUNK = {CHUNK}"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_COLLECTIONS_PATH", str(folder))
        patch.setattr(restage_run, "CHECKOUT", copy)
        yield States()


def test_one_chunk_of_a_hundred_costs_that_chunk(states: States, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(states.publish("same"))
    new = states.publish("chunk")
    (shard,) = [file for file in states.known["chunk"]["files"] if file["path"] == LARGE]
    assert len(shard["chunks"]) == 100
    monkeypatch.setattr(
        restage_run, "CHECKOUT", CHECKOUT
    )  # playbooks and inventory of the checkout, roles and plugins of the copy
    run = restage()
    assert run.code == 0, run.output[-3000:]
    assert run.moved == {node: {LARGE: CHUNK} for node in NODES}
    assert run.total < 0.011 * shard["size"] * len(NODES)
    assert serve_all(new) and states.whole("chunk")
