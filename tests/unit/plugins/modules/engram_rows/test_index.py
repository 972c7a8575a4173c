# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The copy of the index beside slices, in which engines look up where tables are."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import WITHOUT, call

RECORD = "engram-local.json"
CONTENT = f"{INDEX}:content"


class Node:
    def __init__(self, case, algorithm):
        self.case, self.algorithm = case, algorithm
        self.place = case.root / "tiny/engram"
        assert self.run()["changed"]
        self.before = self.slices()

    def run(self, **more):
        plan = row_process.plan_of(self.case.store, chunked=False, revision="one")
        for file in plan["files"]:
            if file["path"] == INDEX and self.algorithm != "crc64nvme":
                body = self.case.small.files[INDEX]
                known = {"sha256": hashlib.sha256(body).hexdigest(), "etag": file["etag"].strip('"')}
                file["digest"] = f"{self.algorithm}:{known[self.algorithm]}"
        given = row_process.arguments(plan, self.case.rows(), self.case.root, self.case.store.sources(), **WITHOUT)
        self.case.store.seen.clear()
        return call(self.case.capsys, {**given, **more})

    @property
    def asked(self):
        return {path for path, _headers in self.case.store.seen}

    def slices(self):
        return {path: (self.place / path).stat().st_ino for path in (SECOND, THIRD)}

    def sound(self):
        index = (self.place / INDEX).read_bytes() == self.case.small.files[INDEX]
        return index and engram_reader.problems(self.place, self.case.whole) == [] and self.slices() == self.before

    def record(self):
        return json.loads((self.place / RECORD).read_text())


@pytest.fixture(params=["crc64nvme", "sha256", "etag"])
def node(case, request):
    return Node(case, request.param)


def other_bytes(path):
    """As many, and the time as it was."""
    stat, body = path.stat(), bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def linked_nowhere(path):
    path.unlink()
    path.symlink_to("nowhere")


@pytest.mark.parametrize("damage", [other_bytes, cut, lambda path: path.write_bytes(b""), linked_nowhere])
def test_a_damaged_copy_is_brought_anew_and_nothing_else_moves(node, damage):
    damage(node.place / INDEX)
    told = node.run(_ansible_check_mode=True)
    assert told["changed"] and told["summary"]["paths"] == [INDEX] and node.asked == set()
    assert node.run()["changed"] and node.asked == {INDEX}
    assert node.sound()
    assert not node.run()["changed"] and node.asked == set()


def test_a_time_says_nothing_of_the_bytes(node):
    os.utime(node.place / INDEX, ns=(1, 1))
    assert not node.run()["changed"] and node.asked == set()


def test_its_digests_are_in_the_record_beside_what_readers_know(node):
    record = node.record()
    assert record["digests"][CONTENT] == f"sha256:{hashlib.sha256(node.case.small.files[INDEX]).hexdigest()}"
    assert record["digests"][INDEX].startswith(f"{node.algorithm}:")
    assert list(record) == [
        *("source", "layers", "created", "note", "rank", "tp_size", "rule", "revision", "placement", "digests", "files")
    ]


def test_a_record_without_it_costs_the_index_once(node):
    record = node.record()
    del record["digests"][CONTENT]
    (node.place / RECORD).write_text(json.dumps(record))
    assert node.run()["changed"] and node.asked == {INDEX}
    assert CONTENT in node.record()["digests"] and node.sound()
    assert not node.run()["changed"] and node.asked == set()


def test_what_stays_of_it_is_still_known_when_other_rows_come(node):
    (node.place / SECOND).unlink()
    assert node.run()["changed"] and node.asked == {SECOND}
    assert CONTENT in node.record()["digests"]
    assert not node.run()["changed"] and node.asked == set()
