# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engram rows on the lab: each node holds its rows and nothing else, and only what it lacks leaves the store.

Runs inside the controller namespace of a freshly booted lab. The tests build on each other's lab, in file order. The whole matrix of
ranks, rules, layouts and placements is in tests/unit/plugins/modules/engram_rows, on loopback.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import fault_proxy
from engram_reader import WIDTHS, Tables, tile
from fault_proxy import FaultProxy
from restage_run import stop
from site_run import CHECKOUT, NODES, on, play

BASE = "/var/lib/gb10-ring/checkpoints"
ROOT = f"{BASE}/DeepSeek-V4.1-Flash-EXL3-lab"
SERVER, PORT = "198.18.0.254", 8446
SOURCE = CHECKOUT / ".lab" / "checkpoint-1"
STAGE = ("--tags", "checkpoint")
CHUNK = 16 << 20
#: Shards with tables, and what rows follow from beside them.
SHARDS = ("model-00047-of-00048.safetensors", "model-00048-of-00048.safetensors")
SMALL = ("config.json", "model.safetensors.index.json")
#: Rows by SGLang's rule are refused for the lab's engine, which is a vLLM.
NO_ENGINE = {"checkpoint_engine": {}}
SHARD = {"checkpoint_engram_rule": "vllm", "checkpoint_engram_placement": "shard"}
#: The reader, sent to a node: what its record says, a digest of the rows that it owns, and whether all else is a hole.
SCRIPT = (
    Path(__file__).with_name("engram_reader.py").read_text(encoding="utf-8")
    + """
import hashlib, sys
tables = Tables(sys.argv[1])
print(json.dumps({
    "record": tables.record,
    "rows": {f"{layer} {part}": hashlib.sha256(tables.owned_bytes(layer, part)).hexdigest()
             for layer in tables.layers for part in WIDTHS},
    "holes": all(tables.others_are_holes(layer, part) for layer in tables.layers for part in WIDTHS),
}))
"""
)


def proxy(faults=lambda _asked: None):
    return FaultProxy(SERVER, PORT, f"{SERVER}:8333", faults)


def stage(*tags, **variables):
    given = {"checkpoint_endpoint_url": f"http://{SERVER}:{PORT}", **variables}
    return play(*tags, "-e", json.dumps(given))


def look(node, directory):
    script = base64.b64encode(SCRIPT.encode()).decode()
    return json.loads(on(node, f"echo {script} | base64 -d >/tmp/reader.py; python3 /tmp/reader.py {directory}"))


def owned_of(source, record):
    """What the reader on a node has to find, from the whole shards."""
    tables, found = Tables(source, whole=True), {}
    for layer in tables.layers:
        for part in WIDTHS:
            rows = tables.bytes(layer, part, *record["layers"][str(layer)])
            found[f"{layer} {part}"] = hashlib.sha256(rows).hexdigest()
    return found


def sound(directory, source=SOURCE, nodes=NODES):
    """The records of all nodes, after a look at every row of both tables on each."""
    found = {node: look(node, directory) for node in nodes}
    for node, seen in found.items():
        assert seen["holes"], node
        assert seen["rows"] == owned_of(source, seen["record"]), node
    return {node: seen["record"] for node, seen in found.items()}


def counts(source=SOURCE):
    tables = Tables(source, whole=True)
    return {layer: tables.table(layer, "weight")[3] for layer in tables.layers}


def sent_of_shards(between):
    """Bytes of the shards with tables that the store sent to each node."""
    sums = Counter()
    for (node, file), sent in between.sent.items():
        if file in SHARDS and node != SERVER:
            sums[node] += sent
    return +sums


def length(spans):
    return sum(end - first for first, end in spans)


def without(spans, others):
    """What of these runs of bytes is in none of the others; both in order."""
    found = []
    for first, end in spans:
        at = first
        for low, high in others:
            if low < end and at < high:
                found += [(at, low)] if at < low else []
                at = high
        found += [(at, end)] if at < end else []
    return found


def sent_in_bounds(between, node, source, missing):
    """The store sent a node the runs of bytes that it lacked, and of each what is left of the published chunk at its ends; no more.

    missing: runs by shard. Returns what was sent of all of them.
    """
    total = 0
    for name, spans in missing.items():
        size, sent = (source / name).stat().st_size, between.sent[ADDRESS[node], name]
        touched = {chunk for first, end in spans for chunk in range(first // CHUNK, -(-end // CHUNK))}
        assert length(spans) <= sent <= length(spans) + 2 * CHUNK * len(spans), (node, name)
        assert sent <= sum(min(size, (chunk + 1) * CHUNK) - chunk * CHUNK for chunk in touched), (node, name)
        total += sent
    return total


def coverage(between, node):
    """By shard with tables: how often each run of bytes was asked for by a node, as (first, end, times)."""
    edges = {}
    for one in between.seen:
        if one.range and one.file.startswith(("model-00047", "model-00048")) and one.node == ADDRESS[node]:
            first, last = map(int, one.range.removeprefix("bytes=").split("-"))
            edges.setdefault(one.file, Counter()).update({first: 1})
            edges[one.file].subtract({last + 1: 1})
    return {name: _runs(found) for name, found in edges.items()}


def _runs(edges):
    runs, times, since = [], 0, 0
    for at, change in sorted(edges.items()):
        if change:
            runs += [(since, at, times)] if times else []
            times, since = times + change, at
    return runs


def seen_times(spans, times):
    return [(first, end, times) for first, end in spans]


def fresh_rows(before, after):
    """Rows of a rank that it did not have, over both tables."""
    total = 0
    for layer, (low, high) in after["layers"].items():
        was_low, was_high = before["layers"][layer]
        total += (high - low) - max(0, min(high, was_high) - max(low, was_low))
    return total


ADDRESS = {f"spark{number}": f"198.18.0.{number}" for number in range(1, 5)}


def test_a_site_serves_from_slices_in_the_revision():
    with proxy() as between:
        code, output = stage(**SHARD)
    assert code == 0, output[-4000:]
    records = sound(f"{ROOT}/current/")
    assert tile(records.values(), counts())
    assert [(record["rank"], record["tp_size"], record["rule"]) for record in records.values()] == [
        (rank, 3, "vllm") for rank in range(3)
    ]
    tables = Tables(SOURCE, whole=True)
    for node, record in records.items():
        # Nobody published checksums of chunks: rows, the shards' other tensors and headers, each byte twice.
        owned = tables.owned_spans(record["layers"])
        assert coverage(between, node) == {name: seen_times(spans, 2) for name, spans in owned.items()}, node
        assert {name: between.sent[ADDRESS[node], name] for name in owned} == {
            name: 2 * length(spans) for name, spans in owned.items()
        }
        log = on(node, "journalctl -u gb10-ring-engine --no-pager -o cat | grep 'Engram' || true")
        assert log.count("read from node-local") == 2 and "WARNING" not in log, log


def test_another_number_of_ranks_reads_the_difference_twice_where_nobody_published():
    before = {node: look(node, f"{ROOT}/current/")["record"] for node in NODES}
    stop()  # rows of a running engine stay as they are
    with proxy() as between:
        code, output = stage(*STAGE, **SHARD, checkpoint_engram_tensor_parallel=4)
    assert code == 0, output[-4000:]
    records = sound(f"{ROOT}/current/")
    sent = sent_of_shards(between)
    # Fetched, and read a second time; what stays is neither.
    assert {node: sent[ADDRESS[node]] for node in NODES} == {
        node: 2 * 264 * fresh_rows(before[node], records[node]) for node in NODES
    }
    assert {record["tp_size"] for record in records.values()} == {4}


# --- the official layout, published with checksums of chunks ------------------------------------------------------------


@pytest.fixture(scope="module")
def official():
    """The layout of the official and the EXL3 checkpoint, published; the variables that name those files that rows follow from."""
    where = {"checkpoint_prefix": "lab/official", "checkpoint_name": "official", "checkpoint_files": []}
    given = {**where, "checkpoint_publish_source": str(SOURCE), "checkpoint_s3_profile": "admin"}
    code, output = play("-e", json.dumps(given), playbook="publish.yml")
    assert code == 0, output[-3000:]
    return {**where, **SHARD, "checkpoint_files": [*SMALL, *SHARDS]}


def test_published_rows_are_sent_once_and_of_other_ranks_the_difference(official):
    directory, tables, held = f"{BASE}/official/current/", Tables(SOURCE, whole=True), {}
    for ranks in (3, 4, 3):
        with proxy() as between:
            code, output = stage(*STAGE, **official, checkpoint_engram_tensor_parallel=ranks)
        assert code == 0, output[-4000:]
        records = sound(directory)
        assert {record["tp_size"] for record in records.values()} == {ranks}
        for node, record in records.items():
            owned, had = tables.owned_spans(record["layers"]), held.get(node, {})
            missing = {name: without(spans, had.get(name, [])) for name, spans in owned.items()}
            sent = sent_in_bounds(between, node, SOURCE, missing)
            wanted = sum(length(spans) for spans in missing.values())
            print(f"{node}, {ranks} ranks: {wanted} bytes lacking, {sent} sent")
            held[node] = owned


def test_rows_that_rotted_are_found_by_reading_and_fetched_alone(official):
    """Size and time as they were, on one node: the other rows of the file are not sent again, nor anything to others."""
    directory, given = f"{BASE}/official/current", {**official, "checkpoint_engram_tensor_parallel": 3}
    record = look("spark2", directory + "/")["record"]
    name, spans = next(iter(Tables(SOURCE, whole=True).row_spans(record["layers"]).items()))
    path, (first, end) = f"{directory}/{name}", spans[1]  # behind the header
    rot = f"printf damage | dd of={path} bs=1 seek={first + 1000} conv=notrunc status=none"
    on("spark2", f"touch -r {path} /tmp/was; {rot}; touch -r /tmp/was {path}")
    with proxy() as between:
        code, output = stage(*STAGE, **given)
        assert code == 0 and not sent_of_shards(between), output[-4000:]
        code, output = stage(*STAGE, **given, checkpoint_verify="full")
    assert code == 0 and set(sent_of_shards(between)) == {ADDRESS["spark2"]}, output[-4000:]
    sent_in_bounds(between, "spark2", SOURCE, {name: [(first, end)]})
    sound(directory + "/")


def test_rows_in_a_directory_come_from_the_store_where_no_shard_is_whole(official):
    given = {"ranks": 3, "checkpoint_prefix": official["checkpoint_prefix"]}
    with proxy() as between:
        endpoint = {"checkpoint_endpoint_url": f"http://{SERVER}:{PORT}"}
        code, output = play("-e", json.dumps({**given, **endpoint}), playbook="../tests/lab/playbooks/engram_rows.yml")
    assert code == 0, output[-4000:]
    record = sound(f"{BASE}/rows/engram", nodes=["spark1"])["spark1"]
    assert (record["placement"], record["rank"], record["tp_size"]) == ("directory", 1, 3)
    # Of the shards' other tensors a directory has none.
    sent_in_bounds(between, "spark1", SOURCE, Tables(SOURCE, whole=True).row_spans(record["layers"]))


def test_rows_come_from_a_neighbour_that_has_the_shards_whole(official):
    """The first node fetches whole shards; the others, without a slice, take their rows from its server over the fabric."""
    for node in ("spark2", "spark3"):
        on(node, f"rm -f {BASE}/official/revisions/*/model-0004[78]* {BASE}/official/revisions/*/engram-local.json")
    first = "{{ (inventory_hostname == 'spark1') | ternary('full', 'shard') }}"
    with proxy() as between:
        given = {**official, "checkpoint_engram_placement": first, "checkpoint_fanout": True}
        code, output = stage(*STAGE, **given)
    assert code == 0, output[-4000:]
    assert sent_of_shards(between) == {ADDRESS["spark1"]: sum((SOURCE / name).stat().st_size for name in SHARDS)}
    records = sound(f"{BASE}/official/current/", nodes=["spark2", "spark3"])
    assert [(record["rank"], record["tp_size"]) for record in records.values()] == [(1, 3), (2, 3)]


# --- the other layout, published with checksums of chunks --------------------------------------------------------------


@pytest.fixture(scope="module")
def nvfp4(tmp_path_factory):
    """A checkpoint in the layout of the NVFP4 pack, published; and the variables that name it."""
    directory = tmp_path_factory.mktemp("nvfp4")
    made = [sys.executable, "lab/checkpoint.py", "generate", "--layout", "nvfp4", "--total-mib", "120"]
    subprocess.run([*made, "--out", str(directory / "files")], cwd=CHECKOUT, check=True, capture_output=True)
    where = {"checkpoint_prefix": "lab/nvfp4", "checkpoint_name": "nvfp4", "checkpoint_files": []}
    given = {**where, "checkpoint_publish_source": str(directory / "files"), "checkpoint_s3_profile": "admin"}
    code, output = play("-e", json.dumps(given), playbook="publish.yml")
    assert code == 0, output[-3000:]
    ranks = {"checkpoint_engram_tensor_parallel": 2, "checkpoint_engram_rank": "{{ ring_rank | int % 2 }}"}
    rows = {"checkpoint_engram_rule": "sglang", "checkpoint_engram_placement": "directory", **ranks, **NO_ENGINE}
    return directory / "files", {**where, **rows, "checkpoint_tensor_parallel": 0}


def test_a_flipped_bit_in_a_row_never_gets_a_record(nvfp4):
    """Into slices of a revision, so that rows come from the store: every answer with bytes of that shard is wrong for one node."""
    _source, given = nvfp4
    victim = "model-00048-of-00048.safetensors"
    with proxy(lambda asked: fault_proxy.flip if (asked.file, asked.node) == (victim, ADDRESS["spark2"]) else None):
        code, output = stage(*STAGE, **{**given, "checkpoint_engram_placement": "shard"})
    assert code != 0 and victim in output and "expected crc64nvme" in output, output[-3000:]
    assert on("spark2", f"ls {BASE}/nvfp4/revisions/*/engram-local.json 2>/dev/null || true") == ""
    assert on("spark2", f"ls {BASE}/nvfp4/current 2>/dev/null || true") == ""
    with proxy() as between:
        code, output = stage(*STAGE, **{**given, "checkpoint_engram_placement": "shard"})
    assert code == 0, output[-3000:]
    assert set(sent_of_shards(between)) == {ADDRESS["spark2"]}


def test_rows_in_a_directory_come_from_whole_shards_of_the_node(nvfp4):
    source, given = nvfp4
    code, output = stage_directly(given)
    assert code == 0, output[-4000:]
    records = sound(f"{BASE}/nvfp4/engram", source)
    assert tile([records["spark1"], records["spark2"]], counts(source))
    assert records["spark1"]["layers"] == records["spark3"]["layers"]
    code, output = stage_directly(given, "--check")
    assert code == 0 and set(re.findall(r"changed=(\d+)", output)) == {"0"}, output[-3000:]


def stage_directly(given, *flags):
    return play(*STAGE, *flags, "-e", json.dumps(given))
