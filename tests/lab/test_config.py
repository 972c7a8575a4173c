# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""config.json on the lab: fitted to three ranks, put back, fitted again after it was staged again, refused when it is somebody else's.

Runs inside the controller namespace of a lab that has the checkpoint in its store. The tests build on each other, in file order.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess

import pytest

from site_run import CHECKOUT, NODES, on, play

ROOT = "/var/lib/gb10-ring/checkpoints/DeepSeek-V4.1-Flash-EXL3-lab"
SOURCE = CHECKOUT / ".lab" / "checkpoint-1" / "config.json"
ORIGINAL = hashlib.sha256(SOURCE.read_bytes()).hexdigest() if SOURCE.exists() else ""


def stage(*more, ranks=3):
    """Changed tasks of each node, and everything that was said."""
    code, output = play("--tags", "checkpoint", "-e", json.dumps({"checkpoint_tensor_parallel": ranks}), *more)
    assert code == 0, output
    return {node: int(re.search(rf"^{node} .*changed=(\d+)", output, re.MULTILINE)[1]) for node in NODES}, output


def seen(node):
    """Digest of config.json, its heads, and what the receipts say."""
    digest = on(node, f"sha256sum {ROOT}/current/config.json").split()[0]
    text = json.loads(on(node, f"cat {ROOT}/current/config.json"))["text_config"]
    return digest, text["num_attention_heads"], on(node, f"sha256sum {ROOT}/receipts/*.json")


@pytest.fixture(scope="module")
def staged():
    """After the first run: what is seen on each node."""
    stage()
    return {node: seen(node) for node in NODES}


def test_it_is_fitted_and_its_original_kept(staged):
    assert {(digest, heads) for digest, heads, _receipts in staged.values()} == {(staged[NODES[0]][0], 72)}
    for node in NODES:
        assert on(node, f"sha256sum {ROOT}/config/originals/{ORIGINAL}.json").split()[0] == ORIGINAL


def test_a_second_run_changes_nothing(staged):
    changed, _output = stage()
    assert changed == dict.fromkeys(NODES, 0)


def test_without_ranks_the_original_comes_back_without_a_transfer(staged):
    dry, told = stage("--check", "--diff", ranks=0)
    assert told.count('-    "num_attention_heads": 72') + told.count('-  "num_attention_heads": 72') >= len(NODES)
    changed, _output = stage(ranks=0)
    assert dry == changed == dict.fromkeys(NODES, 1)
    assert {node: seen(node) for node in NODES} == {
        node: (ORIGINAL, 64, receipts) for node, (_digest, _heads, receipts) in staged.items()
    }
    assert stage(ranks=0)[0] == dict.fromkeys(NODES, 0)
    assert stage()[0] == dict.fromkeys(NODES, 1)
    assert {node: seen(node) for node in NODES} == staged


def test_a_file_that_somebody_changed_is_staged_and_fitted_again(staged):
    on("spark2", f"sed -i 's/72/71/' {ROOT}/current/config.json")
    changed, output = stage("--diff")
    assert changed == {"spark1": 0, "spark2": 2, "spark3": 0}
    assert "config.json" in output and "bytes instead of" in output
    assert {node: seen(node) for node in NODES} == staged


def test_what_is_neither_original_nor_ours_is_refused(staged):
    """The module by itself, without the staging before it that would bring the file back."""
    on("spark3", f"cp -p {ROOT}/current/config.json /root/config.json; sed -i 's/72/71/' {ROOT}/current/config.json")
    revision = on("spark3", f"readlink {ROOT}/current").removeprefix("revisions/")
    task = (
        f"root=/var/lib/gb10-ring/checkpoints name=DeepSeek-V4.1-Flash-EXL3-lab revision={revision} tensor_parallel=4"
    )
    code, output = play_one("spark3", "gb10.ring.checkpoint_config", task)
    assert code != 0 and "neither the file that was staged nor an edit of ours" in output
    assert seen("spark3")[1] == 71
    on("spark3", f"cp -p /root/config.json {ROOT}/current/config.json; rm /root/config.json")
    assert stage()[0] == dict.fromkeys(NODES, 0)


def play_one(node, module, arguments):
    """One task on one node."""
    done = subprocess.run(
        ["ansible", node, "-i", "inventories/lab/ring.yml", "-m", module, "-a", arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, done.stdout + done.stderr
