# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a revision that was staged from a server on loopback."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils import host
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import config_machine, frontend, manifest
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import wrong_files
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.survey import read_receipt, receipts, tree
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.modules import checkpoint_config
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server

FIXTURES = Path(__file__).parents[2] / "fixtures/checkpoint"
ORIGINAL = (FIXTURES / "config-exl3.json").read_bytes()
PADDED = (FIXTURES / "config-exl3-tp3.json").read_bytes()
OFFICIAL = (FIXTURES / "config-official.json").read_bytes()
CHECK = {"_ansible_check_mode": True}


class Node:
    """A directory of checkpoints, what a store holds for it, and the two modules that work on it."""

    def __init__(self, root, store, capsys):
        self.root, self.store, self.capsys = root, store, capsys

    def request(self):
        files = [
            manifest.File(path, len(body), self.store.etag(path), f"crc64nvme:{checksums.crc64nvme(body):016x}")
            for path, body in self.store.objects.items()
        ]
        options = {"plan": manifest.make("tiny", "", files).to_dict(), "root": str(self.root), "phase": "stage"}
        options |= {"node": "n", "disk_ceiling_percent": 100, "workers": 2, "stall_timeout_s": 5, "part_mib": 8}
        options |= {"connect_timeout_s": 5, "read_timeout_s": 5, "rate_limit": 0, "python_path": "/nowhere"}
        options |= {"ca_pem": None, "sources_file": None, "supersedes": None}
        return replace(frontend.Request.from_options(options), sources=self.store.sources())

    def stage(self):
        request = self.request()
        self.layout, self.revision = request.layout, request.manifest.revision
        frontend.stage(request)
        return self

    @property
    def path(self):
        return self.layout.revision(self.revision) / "config.json"

    def staging_changes(self):
        return frontend.view(self.request()).staging.changed

    def fit(self, tp, **more):
        arguments = {"root": str(self.root), "name": "tiny", "revision": self.revision, "tensor_parallel": tp, **more}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            checkpoint_config.main()
        return json.loads(self.capsys.readouterr().out)

    def wrong(self):
        receipt = read_receipt(self.layout, self.revision)
        return wrong_files(receipt, tree(self.layout.revision(self.revision)))


@pytest.fixture
def node(tmp_path, capsys):
    with object_server.serving(**{"config.json": ORIGINAL, "shard": b"s" * 5000}) as store:
        yield Node(tmp_path, store, capsys).stage()


def test_four_steps(node):
    results = [node.fit(3, **CHECK), node.fit(3), node.fit(3, **CHECK), node.fit(3)]
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert node.path.read_bytes() == PADDED
    assert results[0]["diff"] == results[1]["diff"]
    assert results[0]["diff"][0]["before"].encode().rstrip() == ORIGINAL
    assert results[3]["rule"] == "tp3"
    assert Path(results[3]["original"]).read_bytes() == ORIGINAL
    assert Path(results[3]["original"]).name.startswith("66a773c913a1c726")


def test_the_edit_is_no_drift(node):
    before = node.layout.receipt(node.revision).read_bytes()
    node.fit(3)
    assert node.wrong() == {}
    assert not node.staging_changes()
    node.stage()
    assert node.path.read_bytes() == PADDED
    assert node.layout.receipt(node.revision).read_bytes() == before
    assert [receipt.derived["config.json"].rule for receipt in receipts(node.layout)] == ["tp3"]
    assert frontend.activation_of(node.layout, node.revision).refusal == ""


@pytest.mark.parametrize("tp", [0, 4])
def test_another_number_of_ranks_puts_the_original_back(node, tp):
    stat = node.path.stat()
    node.fit(3)
    count = len(node.store.seen)
    results = [node.fit(tp, **CHECK), node.fit(tp), node.fit(tp)]
    assert [result["changed"] for result in results] == [True, True, False]
    assert node.path.read_bytes() == ORIGINAL and node.path.stat().st_mtime_ns == stat.st_mtime_ns
    assert results[1]["rule"] == "" and results[1]["original"] == ""
    assert node.wrong() == {} and not node.staging_changes() and len(node.store.seen) == count
    node.fit(3)
    assert node.path.read_bytes() == PADDED


def test_a_file_that_was_staged_again_is_edited_again(node):
    node.fit(3)
    node.path.write_bytes(b"{}")
    assert node.wrong() == {"config.json": "2 bytes instead of 5974"} and node.staging_changes()
    node.stage()
    assert node.path.read_bytes() == ORIGINAL and node.wrong() == {}
    assert node.fit(3)["changed"]
    assert node.path.read_bytes() == PADDED and node.wrong() == {} and not node.staging_changes()


def test_a_new_revision_gets_an_edit_of_its_own(node):
    node.fit(3)
    node.store.objects["config.json"] = OFFICIAL
    old = node.path
    node.stage()
    assert node.path != old and node.path.read_bytes() == OFFICIAL
    assert node.fit(3)["original"].endswith("8be45ce0476004a3f529fd896115a4a2e800a129ad2d3ec05b16050f52e21879.json")
    assert json.loads(node.path.read_text())["text_config"]["num_attention_heads"] == 72
    assert old.read_bytes() == PADDED
    assert len(list((node.layout.base / "config/originals").iterdir())) == 2


def test_what_is_neither_original_nor_ours_is_refused(node):
    node.fit(3)
    node.path.write_bytes(PADDED.replace(b"72", b"71"))
    for tp in (0, 3, 4):
        result = node.fit(tp)
        assert result["failed"] and "neither the file that was staged nor an edit of ours" in result["msg"]
    assert b"71" in node.path.read_bytes()
    # A dry run tells what there would be to do when staging has brought the file back.
    assert node.fit(3, planned=ORIGINAL.decode(), **CHECK)["changed"]
    assert not node.fit(0, **CHECK)["changed"]


def test_the_same_bytes_with_another_time_are_not_taken_for_the_original(node):
    os.utime(node.path, ns=(5, 5))
    assert "neither the file that was staged" in node.fit(3)["msg"]
    assert node.staging_changes()


def test_bytes_that_changed_under_the_same_time_are_found_by_their_digest(node):
    stat = node.path.stat()
    node.path.write_bytes(ORIGINAL.replace(b"61440", b"61441") if b"61440" in ORIGINAL else ORIGINAL[:-2] + b" }")
    os.utime(node.path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    assert node.path.stat().st_size == len(ORIGINAL)
    assert "neither the file that was staged" in node.fit(3)["msg"]


def test_an_original_that_is_gone(node):
    original = node.fit(3)["original"]
    Path(original).unlink()
    assert not node.fit(3, **CHECK).get("changed") and "is gone" in node.fit(0)["msg"]
    node.path.unlink()
    node.stage()
    node.fit(3)
    assert Path(original).read_bytes() == ORIGINAL


def test_a_fresh_node(node):
    shutil.rmtree(node.layout.base)
    planned = node.fit(3, planned=ORIGINAL.decode(), **CHECK)
    assert planned["changed"] and planned["rule"] == "tp3" and not node.layout.base.exists()
    assert not node.fit(4, planned=ORIGINAL.decode(), **CHECK)["changed"]
    assert not node.fit(0, **CHECK)["changed"]
    assert "is not staged on this node" in node.fit(3)["msg"]
    node.stage()
    assert node.fit(3)["diff"] == planned["diff"]


def test_a_receipt_that_cannot_be_read(node):
    node.layout.receipt(node.revision).write_text("{}")
    assert "is not a receipt of gb10.ring" in node.fit(3)["msg"]


@pytest.mark.parametrize(
    ("tp", "name", "text"), [(-1, "r1", "tensor_parallel is -1"), (3, "../x", "'../x' is not usable")]
)
def test_options(node, tp, name, text):
    assert text in node.fit(tp, revision=name)["msg"]


def test_a_crash_between_any_two_writes_is_resumed(node, monkeypatch):
    """Each write of the edit and of its undoing is the last one that happens; the next run goes on from there."""
    write = host.write_text

    def ends_after(count):
        done = []

        def limited(path, *rest, **more):
            if len(done) == count:
                raise HostError("killed")
            done.append(path)
            write(path, *rest, **more)

        return limited

    for tp, wanted in ((3, PADDED), (6, None), (0, ORIGINAL)):
        for survive in range(4):
            monkeypatch.setattr(config_machine, "write_text", ends_after(survive))
            node.fit(tp)
            monkeypatch.setattr(config_machine, "write_text", write)
            assert node.wrong() == {}, (tp, survive)
            assert not node.staging_changes()
        node.fit(tp)
        assert node.wrong() == {} and (wanted is None or node.path.read_bytes() == wanted)
