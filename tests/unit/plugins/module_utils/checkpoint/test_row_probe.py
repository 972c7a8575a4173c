# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine's unit asks before each start. The file runs alone on the nodes, so it is run alone here too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_probe
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, make
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import render as render_receipt
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_serving import unsafe_unit
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_state import NAME, Held, RowState, render

A, B = "rev-a", "rev-b"
OLD, NEW = "crc64nvme:00000000000000aa", "crc64nvme:00000000000000bb"


class Node:
    """Revision A with the shards s (rows in it) and t; what its unit serves is in engine.json."""

    def __init__(self, root, sliced=()):
        self.root, self.layout = root, Layout(str(root), "tiny")
        for place in (self.layout.receipts, self.layout.manifests, self.layout.revision(A), self.shared):
            place.mkdir(parents=True)
        whole = tuple(Entry(path, 100, OLD, 5) for path in ("s", "t") if path not in sliced)
        self.layout.receipt(A).write_text(
            render_receipt(Receipt("tiny", A, "2026-11-30T16:00:00Z", whole, sliced=sliced))
        )
        planned = make("tiny", A, [File("s", 100, "e", OLD), File("t", 100, "e", OLD)])
        self.layout.manifest(A).write_text(json.dumps(planned.to_dict()))

    @property
    def shared(self):
        return self.layout.base / "engram"

    def rows(self, place, digest=OLD, tp=3, rank=1, **more):
        """Write what engram_rows says of slices in this directory."""
        given = {"revision": A, "rule": "vllm", "placement": "directory", "layers": {"1": (10, 20)}, **more}
        held = Held("s", 100, digest, "aa", ((0, 8),))
        state = RowState("tiny", rank=rank, tp_size=tp, created="2026-11-30T16:00:00Z", files=(held,), **given)
        (place / NAME).write_text(render(state))

    def record(self, engram="", **more):
        model = {"root": str(self.layout.base), "revision": A, **({"engram": str(engram)} if engram else {})}
        return {"engine": "vllm", "size": 3, "rank": 1, "model": model, "env": {}, **more}

    def start(self, record):
        """Exit status and words of the program, as the unit runs it."""
        path = self.root / "engine.json"
        path.write_text(json.dumps(record))
        argv = [sys.executable, "-I", row_probe.__file__, str(path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
        assert done.stdout == ""
        return done.returncode, done.stderr


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({}, ""),
        ({"revision": B}, ""),  # an update that left these shards as they were
        ({"digest": NEW, "revision": B}, "holds Engram rows of s as revision rev-b has them, not as rev-a does"),
        ({"tp": 4}, "holds the Engram rows 1:10:20, which are not those of its rank"),
        ({"rank": 2}, "not those of its rank"),
        ({"rule": "sglang"}, "not those of its rank"),
    ],
)
def test_a_shared_directory(node, rows, says):
    node.rows(node.shared, **rows)
    record = node.record(node.shared)
    code, said = node.start(record)
    assert (code, says in said) == (int(bool(says)), True)
    assert unsafe_unit(record) == row_probe.problem(record) and says in row_probe.problem(record)
    if says:
        assert said.startswith(f"engine-rows: {node.shared} holds") and "Cure: " in said and "restage.yml" in said


@pytest.mark.parametrize(
    ("ranges", "code"),
    [("1:10:20", 0), ("1:10:21", 1)],
)
def test_a_unit_that_names_its_rows(node, ranges, code):
    node.rows(node.shared, tp=5, rule="sglang")
    assert node.start(node.record(node.shared, env={"SPARK_ENGRAM_ROWS": ranges}))[0] == code


@pytest.mark.parametrize(("rows", "code"), [({}, 0), ({"tp": 4}, 1), ({"digest": NEW}, 0), (None, 1)])
def test_slices_in_the_revision(tmp_path, rows, code):
    """Their own record says what they are slices of. Without it nothing says which rows are holes."""
    node = Node(tmp_path, sliced=("s",))
    if rows is not None:
        node.rows(node.layout.revision(A), placement="shard", **rows)
    found, said = node.start(node.record())
    assert found == code
    assert rows is not None or "has slices of s, and no engram-local.json says" in said


def test_no_rows_are_those_of_the_whole_shards(node):
    assert node.start(node.record(node.shared)) == (0, "")
    assert node.start(node.record()) == (0, "")


@pytest.mark.parametrize(
    "text", ["", "torn", "[]", "{}", '{"layers": {"1": [1, 2]}, "rank": 0, "tp_size": 4, "revision": "x"}']
)
def test_a_record_of_rows_that_is_not_ours_is_the_engines_business(node, text):
    """Not to go back to, though: what the rows are is not known."""
    (node.shared / NAME).write_text(text)
    assert node.start(node.record(node.shared)) == (0, "")
    assert "was not written by gb10.ring" in unsafe_unit(node.record(node.shared))


@pytest.mark.parametrize(
    "record", [{}, {"model": None}, {"model": {}}, {"model": {"root": "/nowhere", "revision": "x"}}]
)
def test_a_unit_of_no_revision_of_ours(node, record):
    node.rows(node.shared, tp=4)
    assert node.start(record) == (0, "") and unsafe_unit(record) == ""


def test_what_the_revision_is_made_of_is_not_known(node):
    """Rows of the right rank, then: nothing says that they are of another revision."""
    node.layout.receipt(A).write_text("torn")
    node.layout.manifest(A).write_text('{"files": [1]}')
    node.rows(node.shared, digest=NEW)
    assert node.start(node.record(node.shared))[0] == 0
    node.rows(node.shared, digest=NEW, rank=0)
    assert node.start(node.record(node.shared))[0] == 1


def test_a_wrong_command_line():
    assert row_probe.main([]) == 2
