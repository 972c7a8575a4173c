# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.filter.engram_tiles import engram_tiles
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


@pytest.mark.parametrize(
    ("damage", "verify", "found"),
    [
        (lambda directory: (directory / "engram-local.json").unlink(), "recorded", "there is no engram-local.json"),
        (lambda directory: (directory / SECOND).unlink(), "recorded", f"{SECOND} is missing"),
        (lambda directory: (directory / SECOND).write_bytes(b"x"), "recorded", "has 1 bytes instead of"),
        (lambda directory: flip(directory, False), "recorded", "was modified since it was verified"),
        (lambda directory: flip(directory, True), "full", "digest crc64nvme:"),
        (lambda directory: (directory / INDEX).unlink(), "recorded", f"{INDEX} is missing"),
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
