# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engram rows of two, three and four ranks on four nodes: both rules, both layouts, every placement; each row of each table is read.

Runs inside the controller namespace of a freshly booted lab of four nodes (`make engram-full`). The tests build on each other's lab.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from test_engram import ADDRESS, BASE, CHUNK, NO_ENGINE, PORT, SERVER, SOURCE, counts, coverage, proxy, sound

from engram_reader import INDEX, Tables, tile
from fanout_run import everywhere
from site_run import CHECKOUT, INVENTORY, on, play

NODES = ("spark1", "spark2", "spark3", "spark4")
RING4 = INVENTORY / "ring4.yml"
PATTERN = "model-0004[78]-of-00048.safetensors"


@pytest.fixture(scope="module")
def records():
    """What engram-local.json said on each node, by layout, ranks and rule."""
    return {}


@pytest.fixture(scope="module", params=["official", "nvfp4"])
def checkpoint(request, tmp_path_factory):
    """The whole shards of one layout, their directory on a node, and the variables that name them; published here with chunks."""
    name, source = request.param, SOURCE
    if name == "nvfp4":
        source = tmp_path_factory.mktemp("nvfp4") / "files"
        made = [sys.executable, "lab/checkpoint.py", "generate", "--layout", "nvfp4", "--total-mib", "120"]
        subprocess.run([*made, "--out", str(source)], cwd=CHECKOUT, check=True, capture_output=True)
    where = {"checkpoint_prefix": f"lab/{name}", "checkpoint_name": name, "checkpoint_files": []}
    given = {**where, "checkpoint_publish_source": str(source), "checkpoint_s3_profile": "admin"}
    code, output = play("-e", json.dumps(given), playbook="publish.yml", inventory=RING4)
    assert code == 0, output[-3000:]
    return source, f"{BASE}/{name}", where


@pytest.mark.parametrize("placement", ["directory", "shard", "full"])
@pytest.mark.parametrize("rule", ["vllm", "sglang"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_each_node_has_the_rows_of_its_rank(checkpoint, records, ranks, rule, placement):
    source, root, where = checkpoint
    group = {
        **NO_ENGINE,
        "checkpoint_engram_tensor_parallel": ranks,
        "checkpoint_engram_rank": f"{{{{ ring_rank | int % {ranks} }}}}",
    }
    wanted = {**where, **group, "checkpoint_engram_rule": rule, "checkpoint_engram_placement": placement}
    if placement == "shard":  # each case fetches all of its rows, and takes none from what was there before
        everywhere(f"rm -rf {root}/revisions/*/{PATTERN} {root}/revisions/*/engram-local.json", NODES)
    given = {**wanted, "checkpoint_tensor_parallel": 0, "checkpoint_endpoint_url": f"http://{SERVER}:{PORT}"}
    with proxy() as between:
        code, output = play("--tags", "checkpoint", "-vv", "-e", json.dumps(given), inventory=RING4)
    assert code == 0, output[-4000:]
    # The index is read once for each node's plan, and without a range for the list of files.
    plans = [one for one in between.seen if one.node == SERVER and one.file == INDEX and one.range]
    assert len(plans) == len(NODES), plans
    if placement == "full":
        whole_or_nothing(between, source)
        there(source, root, output, records[source, ranks, rule])
        return
    found = sound(f"{root}/engram" if placement == "directory" else f"{root}/current/", source, NODES)
    assert tile([found[node] for node in NODES[:ranks]], counts(source))
    assert {(record["tp_size"], record["rule"]) for record in found.values()} == {(ranks, rule)}
    records[source, ranks, rule] = found
    if placement == "directory":
        whole_or_nothing(between, source)
    for node in NODES if placement == "shard" else ():
        only_its_rows(between, node, Tables(source, whole=True), found[node])


def whole_or_nothing(between, source):
    """Whole shards that the revision lacked, once; rows come from these, and no byte of them from the store."""
    for path in source.glob(PATTERN):
        assert {between.sent[ADDRESS[node], path.name] for node in NODES} in ({0}, {path.stat().st_size})


def only_its_rows(between, node, tables, record):
    """What the store sent to a node: its rows, headers and other tensors, and at most one chunk more at each end of a run."""
    seen = coverage(between, node)
    for name, spans in tables.owned_spans(record["layers"]).items():
        wanted, sent = sum(end - first for first, end in spans), between.sent[ADDRESS[node], name]
        assert {times for _first, _end, times in seen[name]} == {1}, (node, name)
        assert sent == sum(end - first for first, end, _times in seen[name])
        assert wanted <= sent <= wanted + 2 * CHUNK * len(spans)
        size = (tables.directory / name).stat().st_size
        chunks = {chunk for first, end in spans for chunk in range(first // CHUNK, -(-end // CHUNK))}
        assert sent == sum(min(size, (chunk + 1) * CHUNK) - chunk * CHUNK for chunk in chunks)


def there(source, root, output, found):
    """Whole shards on every node, and the text for engines that read their rows of them."""
    sums = subprocess.run(f"sha256sum {PATTERN}", shell=True, cwd=source, capture_output=True, text=True, check=True)
    for node in NODES:
        assert on(node, f"cd {root}/current/ && sha256sum {PATTERN}") == sums.stdout.strip()
    told = set(re.findall(r"rows_text: ['\"]?([0-9:,]+)", output))
    assert told == {
        ",".join(
            f"{layer}:{low}:{high}"
            for layer, (low, high) in sorted(record["layers"].items(), key=lambda one: int(one[0]))
        )
        for record in found.values()
    }
