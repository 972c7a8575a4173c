# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.filter.engram_tiles import engram_tiles
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import receipt, row_inspection
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry
from ansible_collections.gb10.ring.plugins.modules import engram_info, engram_rows
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND


@pytest.fixture(scope="module")
def small():
    return engram_shards.small("nvfp4", vocabulary=40)


def call(capsys, module, arguments):
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


class Nodes:
    """Three nodes with their rows in a directory, in a root each."""

    def __init__(self, capsys, small, root):
        self.capsys, self.small, self.root = capsys, small, root

    def bring(self, rank, tp=3, rule="vllm", placement="directory"):
        rows = row_process.rows_of(
            self.small.config, self.small.files, tp=tp, rank=rank, rule=rule, placement=placement
        )
        root = self.root / str(rank)
        with object_server.serving(**self.small.files) as store:
            plan = row_process.plan_of(store, revision="one")
            (root / "tiny/revisions/one").mkdir(parents=True, exist_ok=True)
            (root / "tiny/revisions/one/config.json").write_bytes(self.small.files["config.json"])
            given = row_process.arguments(plan, rows, root, store.sources())
            assert not call(self.capsys, engram_rows, given).get("failed")
        return root / "tiny/engram"

    def look(self, rank, tp=3, rule="vllm", placement="directory", **more):
        given = {"root": str(self.root / str(rank)), "name": "tiny", "revision": "one", "node": f"n{rank}"}
        return call(
            self.capsys,
            engram_info,
            {**given, "tensor_parallel": tp, "rank": rank, "rule": rule, "placement": placement, **more},
        )


@pytest.fixture
def nodes(capsys, small, tmp_path):
    return Nodes(capsys, small, tmp_path)


def only(result):
    (check,) = result["checks"]
    assert check["id"] == "checkpoint.engram"
    return check


@pytest.mark.parametrize("verify", ["recorded", "full"])
def test_rows_as_they_were_verified(nodes, small, verify):
    nodes.bring(1)
    result = nodes.look(1, verify=verify)
    check, state = only(result), result["engram"]
    assert check["ok"] and check["node"] == "n1", check
    assert ("digests read again" in check["found"]) == (verify == "full")
    assert (state["rule"], state["tensor_parallel"], state["rank"], state["revision"]) == ("vllm", 3, 1, "one")
    assert state["tables"] == {str(layer): rows for layer, rows in small.rows.items()}
    assert state["verified_rows"] == sum(high - low for low, high in state["ranges"].values()) > 0
    assert state["allocated"] > 0 and not result["changed"]


def flip(directory, same_time):
    path = directory / SECOND
    stat = path.stat()
    record = json.loads((directory / "engram-local.json").read_text())
    low, _high = next(file["spans"] for file in record["files"] if file["path"] == SECOND)[-1]
    with path.open("r+b") as handle:
        handle.seek(low)
        byte = handle.read(1)[0]
        handle.seek(low)
        handle.write(bytes([byte ^ 1]))
    if same_time:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def hole(directory):
    path = directory / SECOND
    stat = path.stat()
    path.unlink()
    with path.open("wb") as handle:
        handle.truncate(stat.st_size)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def flip_index(directory):
    """As many bytes, and the time as it was."""
    path = directory / INDEX
    stat, body = path.stat(), bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def old_record(directory):
    """One from before the SHA-256 of the index was recorded."""
    path = directory / "engram-local.json"
    record = json.loads(path.read_text())
    del record["digests"][f"{INDEX}:content"]
    path.write_text(json.dumps(record))


def cut(path, left):
    path.write_bytes(path.read_bytes()[:left])


@pytest.mark.parametrize(
    ("damage", "verify", "found"),
    [
        (lambda directory: (directory / "engram-local.json").unlink(), "recorded", "there is no engram-local.json"),
        (lambda directory: (directory / SECOND).unlink(), "recorded", f"{SECOND} is missing"),
        (lambda directory: (directory / SECOND).write_bytes(b"x"), "recorded", "has 1 bytes instead of"),
        (lambda directory: flip(directory, False), "recorded", "was modified since it was verified"),
        (lambda directory: flip(directory, True), "full", "digest crc64nvme:"),
        (lambda directory: (directory / INDEX).unlink(), "recorded", f"{INDEX} is missing"),
        (lambda directory: cut(directory / INDEX, -1), "recorded", f"{INDEX}: digest sha256:"),
        (lambda directory: cut(directory / INDEX, 0), "full", f"{INDEX}: digest sha256:"),
        (flip_index, "recorded", f"{INDEX}: digest sha256:"),
        (lambda directory: os.truncate(directory / INDEX, 1 << 30), "recorded", f"{INDEX}: 1073741824 bytes, expected"),
        (lambda directory: old_record(directory) or flip_index(directory), "recorded", f"{INDEX}: digest crc64nvme:"),
        (hole, "recorded", "some of them are holes"),
        (lambda directory: (directory / "engram-local.json").write_text("{}"), "recorded", "was not written by gb10"),
    ],
)
def test_what_is_wrong_is_said(nodes, damage, verify, found):
    damage(nodes.bring(1))
    result = nodes.look(1, verify=verify)
    check = only(result)
    assert not check["ok"] and found in check["found"], check
    assert check["cure"] and result["engram"]["verified_rows"] == 0


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("library", [False, True])
def test_an_index_that_was_only_touched_is_as_it_was(nodes, monkeypatch, old, library):
    """Without awscrt nothing can be said against one of an older record."""
    directory = nodes.bring(1)
    os.utime(directory / INDEX, ns=(1, 1))
    if old:
        old_record(directory)
    if not library:
        monkeypatch.setattr(row_inspection, "load_crc64", lambda _path: None)
    assert only(nodes.look(1))["ok"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"tp": 4}, "tp_size 3, expected 4"),
        ({"rule": "sglang"}, "rule vllm, expected sglang"),
    ],
)
def test_rows_of_another_split(nodes, wanted, found):
    nodes.bring(1)
    check = only(nodes.look(1, **wanted))
    assert not check["ok"] and found in check["found"]


def test_rows_of_another_revision(nodes, tmp_path):
    nodes.bring(1)
    shutil.copytree(tmp_path / "1/tiny/revisions/one", tmp_path / "1/tiny/revisions/two")
    check = only(nodes.look(1, revision="two"))
    assert "engram-local.json says revision one, expected two" in check["found"]


class Receipts:
    """Receipts of revisions whose shards have these digests; what is not given is as the rows were taken from it."""

    def __init__(self, small, root):
        self.small, self.base = small, root / "tiny"

    def write(self, revision, **digests):
        record = json.loads((self.base / "engram/engram-local.json").read_text())
        known = {file["path"]: file["digest"] for file in record["files"]} | digests
        files = tuple(Entry(path, 1, digest, 1) for path, digest in known.items() if digest)
        target = self.base / "receipts" / f"{revision}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(receipt.render(receipt.Receipt("tiny", revision, "2026-01-01T00:00:00Z", files)))
        if revision != "one":
            shutil.copytree(self.base / "revisions/one", self.base / "revisions" / revision)


@pytest.mark.parametrize("verify", ["recorded", "full"])
def test_back_at_a_revision_with_the_same_shards(nodes, small, tmp_path, verify):
    """The record names the revision that was staged last; the group went back to one that has the same shards."""
    nodes.bring(1)
    Receipts(small, tmp_path / "1").write("before")
    result = nodes.look(1, revision="before", verify=verify)
    assert only(result)["ok"], only(result)
    assert result["engram"]["revision"] == "before" and result["engram"]["verified_rows"] > 0


@pytest.mark.parametrize("revision", ["before", "one"])
def test_rows_of_another_object_than_the_revision_has(nodes, small, tmp_path, revision):
    nodes.bring(1)
    Receipts(small, tmp_path / "1").write(revision, **{SECOND: "crc64nvme:00000000000000ff"})
    check = only(nodes.look(1, revision=revision))
    assert not check["ok"] and f"{SECOND} is a slice of another object than revision {revision} has" in check["found"]


def test_a_receipt_that_does_not_have_the_shard_says_nothing_of_it(nodes, small, tmp_path):
    nodes.bring(1)
    Receipts(small, tmp_path / "1").write("before", **{SECOND: ""})
    assert "engram-local.json says revision one, expected before" in only(nodes.look(1, revision="before"))["found"]


def test_nodes_whose_records_name_other_revisions_of_the_same_shards_tile(nodes, small, tmp_path):
    for rank in range(3):
        nodes.bring(rank)
        Receipts(small, tmp_path / str(rank)).write("before")
    path = tmp_path / "2/tiny/engram/engram-local.json"
    path.write_text(path.read_text().replace('"revision": "one"', '"revision": "before"'))
    check, _checks = together({rank: nodes.look(rank, revision="before") for rank in range(3)})
    assert check["ok"], check


@pytest.mark.parametrize("sparse", [True, False])
def test_whole_shards(nodes, small, tmp_path, sparse):
    revision = tmp_path / "1/tiny/revisions/one"
    revision.mkdir(parents=True)
    for path, body in small.files.items():
        (revision / path).write_bytes(body)
    if sparse:
        hole(revision)
    result = nodes.look(1, placement="full")
    assert only(result)["ok"] is not sparse
    assert (f"{SECOND} has holes" in only(result)["found"]) == sparse


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (Path.unlink, f"{SECOND} is missing"),
        (lambda path: cut(path, 0), f"{SECOND}: 0 bytes are too few for a safetensors file"),
        (lambda path: cut(path, -1), f"{SECOND}: "),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), f"{SECOND}: "),
    ],
)
def test_a_whole_shard_that_is_not_there_or_too_short_is_named(nodes, small, tmp_path, damage, found):
    revision = tmp_path / "1/tiny/revisions/one"
    revision.mkdir(parents=True)
    for path, body in small.files.items():
        (revision / path).write_bytes(body)
    damage(revision / SECOND)
    result = nodes.look(1, placement="full")
    assert not only(result)["ok"] and only(result)["found"].startswith(found), only(result)
    assert result["engram"]["verified_rows"] == 0 and result["engram"]["ranges"] == {}


def test_slices_that_no_engine_reads(nodes, small, tmp_path):
    nodes.bring(1)
    for path, body in small.files.items():
        (tmp_path / "1/tiny/revisions/one" / path).write_bytes(body)
    _rows, unused = nodes.look(1, placement="full")["checks"]
    assert (unused["id"], unused["ok"], unused["severity"]) == ("checkpoint.engram_unused", False, "warning")
    assert unused["cure"] == "prune.yml with checkpoint_prune_engram: true deletes them"


def test_without_an_active_revision(nodes):
    assert "no revision is active" in only(nodes.look(1, revision=None))["found"]


@pytest.mark.parametrize("name", ["../x", ""])
def test_names_stay_below_the_root(nodes, name):
    assert nodes.look(1, name=name)["failed"]


# --- all nodes together -----------------------------------------------------------------------------------------------


def together(looked, node=None):
    hosts = [f"n{rank}" for rank in looked]
    found = {host: {"checkpoint_engram_info": result} for host, result in zip(hosts, looked.values(), strict=True)}
    checks = engram_tiles(found, hosts, node=node)
    return next((check for check in checks if check["id"] == "checkpoint.engram_tiles"), None), checks


@pytest.mark.parametrize("rule", ["vllm", "sglang"])
def test_all_ranks_tile(nodes, rule):
    for rank in range(3):
        nodes.bring(rank, rule=rule)
    looked = {rank: nodes.look(rank, rule=rule) for rank in range(3)}
    check, checks = together(looked)
    assert check["ok"] and check["node"] == "n0" and len(checks) == 4, check
    assert together(looked, "n1")[0] is None and len(together(looked, "n1")[1]) == 1


def test_a_rank_that_has_anothers_rows(nodes):
    for rank in range(3):
        nodes.bring(rank)
    looked = {rank: nodes.look(rank) for rank in range(3)}
    looked[2]["engram"] = looked[1]["engram"]
    check, _checks = together(looked)
    assert not check["ok"] and "held twice" in check["found"] and check["cure"]


def test_a_node_that_preflight_could_not_reach_is_told_there_alone(nodes):
    nodes.bring(0)
    gone = {"preflight_checks": {"checks": [{"id": "preflight.reachable"}], "facts": {}}}
    found = {"n0": {"checkpoint_engram_info": nodes.look(0)}, "n1": gone}
    assert [check["id"] for check in engram_tiles(found, ["n0", "n1"])] == ["checkpoint.engram"]


def test_rows_of_some_nodes_alone_are_not_judged(nodes):
    """verify.yml --limit: what the others hold is not known."""
    for rank in range(3):
        nodes.bring(rank)
    found = {"n1": {"checkpoint_engram_info": nodes.look(1)}}
    own, tiles = engram_tiles(found, ["n1"], ring=["n0", "n1", "n2"])
    assert own["ok"] and own["id"] == "checkpoint.engram"
    assert (tiles["id"], tiles["ok"], tiles["severity"]) == ("checkpoint.engram_tiles", False, "info")
    assert "n0, n2" in tiles["found"] and "--limit" in tiles["cure"]


def test_nodes_of_two_rules_and_one_that_is_not_known(nodes):
    nodes.bring(0)
    nodes.bring(1, rule="sglang")
    looked = {0: nodes.look(0), 1: nodes.look(1, rule="sglang"), 2: None}
    check, _checks = together(looked)
    assert "nothing is known of n2" in check["found"] and "rule differs: n0 vllm, n1 sglang" in check["found"]


@pytest.mark.parametrize("placement", ["directory", "shard", "full"])
def test_nothing_is_known_of_any_table(nodes, placement):
    """No active revision: no node can say how many rows there are, so nobody has said that they are all there."""
    looked = {rank: nodes.look(rank, placement=placement, revision=None) for rank in range(3)}
    check, _checks = together(looked)
    assert not check["ok"] and check["found"] == "the sizes of the tables are not known of any node"


def test_no_node_can_read_its_config(nodes, tmp_path):
    for rank in range(3):
        nodes.bring(rank)
        (tmp_path / str(rank) / "tiny/revisions/one/config.json").write_text("{")
    check, _checks = together({rank: nodes.look(rank) for rank in range(3)})
    assert not check["ok"] and "sizes of the tables are not known of any node" in check["found"]
    looked = {rank: nodes.look(rank) for rank in range(3)}
    (tmp_path / "1/tiny/revisions/one/config.json").write_bytes(nodes.small.files["config.json"])
    looked[1] = nodes.look(1)
    check, _checks = together(looked)
    assert not check["ok"] and "nothing of it on rank 0, 2" in check["found"], check


def test_slices_in_a_directory_of_revisions_are_refused(nodes):
    nodes.bring(1)
    result = nodes.look(1, directory=str(nodes.root / "1/tiny/revisions/one"))
    assert result["failed"] and "allowed is a directory of its own" in result["msg"]
