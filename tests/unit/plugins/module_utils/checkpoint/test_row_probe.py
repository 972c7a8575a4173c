# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine's unit asks before each start. The file runs alone on the nodes, so it is run alone here too."""

from __future__ import annotations

import json
import os
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

#: As the launcher of tsw2k writes it, for slices that its own script made.
FOREIGN = '{"layers": {"1": [1, 2]}, "rank": 0, "tp_size": 4, "revision": "x"}'
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

    def holes(self):
        """The shard as a slice: all of it is a hole."""
        with (self.layout.revision(A) / "s").open("wb") as shard:
            shard.truncate(1 << 20)

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
    [
        ("1:10:20,14:3:9", 0),
        ("14:3:9,1:10:20", 0),
        ("1:10:20, 14:3:9", 0),
        ("1:10:21,14:3:9", 1),
        ("1:10:20", 1),
        ("1:10:20,14:3:9,14:3:9", 1),
        ("1:10:20,14:3:9,", 1),
        ("NOT-STAGED", 1),
    ],
)
def test_a_unit_that_names_its_rows(node, ranges, code):
    node.rows(node.shared, tp=5, rule="sglang", layers={"1": (10, 20), "14": (3, 9)})
    assert node.start(node.record(node.shared, env={"SPARK_ENGRAM_ROWS": ranges}))[0] == code


@pytest.mark.parametrize(("rows", "code"), [({}, 0), ({"tp": 4}, 1), ({"digest": NEW}, 0)])
def test_slices_in_the_revision(tmp_path, rows, code):
    """Their own record says what they are slices of."""
    node = Node(tmp_path, sliced=("s",))
    node.holes()
    node.rows(node.layout.revision(A), placement="shard", **rows)
    assert node.start(node.record())[0] == code


@pytest.mark.parametrize("text", [None, "torn", "{}", "no files", "of another engine"])
def test_slices_of_which_nothing_says_which_rows_are_holes(tmp_path, text):
    node = Node(tmp_path, sliced=("s",))
    node.holes()
    local = node.layout.revision(A) / NAME
    node.rows(local.parent, placement="shard")
    if text is None:
        local.unlink()
    elif text == "no files":
        local.write_text(json.dumps({**json.loads(local.read_text()), "files": []}))
    else:
        local.write_text(FOREIGN if text == "of another engine" else text)
    code, said = node.start(node.record())
    assert code == 1 and "has slices of s, and no engram-local.json says" in said


def test_a_revision_that_is_being_taken_apart(tmp_path):
    """Its receipt is in the record of that, so nothing else says which of its files are slices."""
    node = Node(tmp_path, sliced=("s",))
    node.holes()
    receipt = node.layout.receipt(A)
    node.layout.replacing.write_text(json.dumps({"new": B, "receipt": json.loads(receipt.read_text())}))
    node.rows(node.layout.revision(A), placement="shard")
    assert node.start(node.record()) == (0, "")  # staged again meanwhile
    receipt.unlink()
    code, said = node.start(node.record())
    assert code == 1 and f"revision {A} is being replaced in place by {B}, which has not ended" in said
    assert unsafe_unit(node.record()).startswith(f"revision {A} is being replaced")
    for text in ("[]", '{"receipt": []}', '{"receipt": {"revision": "rev-b"}}', "torn"):
        node.layout.replacing.write_text(text)
        assert "replaced" not in node.start(node.record())[1]


def test_a_whole_shard_that_is_to_become_a_slice_is_read_as_it_is(tmp_path):
    """The receipt says first what a revision is to have; until the slice is there the shard is whole."""
    node = Node(tmp_path, sliced=("s",))
    (node.layout.revision(A) / "s").write_bytes(b"x" * 8192)
    assert node.start(node.record()) == (0, "")
    node.holes()
    assert node.start(node.record())[0] == 1


def test_an_engine_that_is_told_its_rows_finds_no_others(node):
    """It reads them by what it is told, with or without a record."""
    told = {"env": {"SPARK_ENGRAM_ROWS": "1:10:20"}, "engine": "sglang"}
    code, said = node.start(node.record(node.shared, **told))
    assert code == 1 and "has no engram-local.json, and the engine is told to read the rows 1:10:20 there" in said
    (node.shared / NAME).write_text(FOREIGN)
    assert node.start(node.record(node.shared, **told)) == (0, "")
    (node.shared / NAME).unlink()
    assert node.start(node.record(**told)) == (0, "")  # whole shards


def test_no_rows_are_those_of_the_whole_shards(node):
    assert node.start(node.record(node.shared)) == (0, "")
    assert node.start(node.record()) == (0, "")


@pytest.mark.parametrize("text", ["", "torn", "[]", "{}", FOREIGN])
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


@pytest.mark.parametrize(("placement", "code"), [("directory", 1), ("shard", 0), (None, 0)])
@pytest.mark.parametrize("receipt", [True, False])
def test_slices_in_the_revision_that_hold_rows_alone(tmp_path, placement, code, receipt):
    """The engine would read zeros for all other weights. A record that says nothing of the placement is taken as before."""
    node = Node(tmp_path, sliced=("s",))
    node.holes()
    if not receipt:
        node.layout.receipt(A).unlink()
    local = node.layout.revision(A) / NAME
    node.rows(local.parent)
    record = json.loads(local.read_text())
    del record["placement"]
    local.write_text(json.dumps({**record, **({"placement": placement} if placement else {})}))
    found = node.start(node.record())
    assert found[0] == code and ("hold rows alone" in found[1]) == bool(code), found


def test_rows_alone_in_a_directory_of_their_own_are_as_they_should_be(tmp_path):
    """Also where that of the revision names a whole shard."""
    node = Node(tmp_path)
    node.rows(node.shared)
    node.rows(node.layout.revision(A))
    (node.layout.revision(A) / "s").write_bytes(b"x" * 8192)
    assert node.start(node.record(node.shared)) == (0, "")


@pytest.mark.parametrize("receipt", ["torn", "", "[]", "{}", '{"files": [], "sliced": "s"}', "[" * 100_000, None])
def test_a_receipt_that_cannot_be_used_does_not_hide_holes(node, receipt):
    """The manifest says which files there are; holes in them are nobody's without a record."""
    place = node.layout.receipt(A)
    place.unlink()
    if receipt is None:
        os.mkfifo(place)
    else:
        place.write_text(receipt)
    (node.layout.revision(A) / "s").write_bytes(b"x" * 8192)
    assert node.start(node.record()) == (0, "")
    node.holes()
    code, said = node.start(node.record())
    assert code == 1 and "has slices of s, and no engram-local.json says" in said
    node.rows(node.layout.revision(A), placement="shard")
    assert node.start(node.record()) == (0, "")


def swap(path, kind):
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "sparse":
        with path.open("wb") as handle:
            handle.truncate(1 << 40)
    else:
        path.symlink_to({"loop": path.name, "endless": "/dev/zero"}[kind])


@pytest.mark.parametrize("kind", ["pipe", "directory", "sparse", "loop", "endless"])
@pytest.mark.parametrize("what", ["rows", "receipt", "manifest", "engine"])
def test_nothing_that_a_start_would_wait_for_is_read(node, kind, what):
    node.rows(node.shared)
    engine = node.root / "engine.json"
    places = {"rows": node.shared / NAME, "receipt": node.layout.receipt(A), "manifest": node.layout.manifest(A)}
    if what != "engine":
        swap(places[what], kind)
        assert node.start(node.record(node.shared)) == (0, "")
        return
    swap(engine, kind)
    argv = [sys.executable, "-I", row_probe.__file__, str(engine)]
    assert subprocess.run(argv, check=False, timeout=30).returncode == 0


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: "[" * 100_000,
        lambda text: text.replace('"rank": 1', '"rank": Infinity'),
        lambda text: text.replace('"tp_size": 3', '"tp_size": 1e999'),
        lambda text: text.replace('"rank": 1', '"rank": ' + "9" * 5000),
        lambda text: text.replace('"layers": {', '"layers": [], "no": {'),
    ],
)
def test_a_record_of_rows_that_cannot_be(node, edit):
    node.rows(node.shared)
    place = node.shared / NAME
    assert edit(place.read_text()) != place.read_text()
    place.write_text(edit(place.read_text()))
    assert node.start(node.record(node.shared)) == (0, "")


@pytest.mark.parametrize(
    "change",
    [
        {"size": float("inf")},
        {"rank": float("inf")},
        {"env": ["A=b"]},
        {"env": "A=b"},
        {"size": []},
        {"model": {"root": "/" + "x" * 5000, "revision": "\0" * 5000}},
        {
            "model": {"root": "/nowhere", "revision": "x", "engram": "/" + "x" * 5000},
            "env": {"SPARK_ENGRAM_ROWS": "NaN"},
        },
    ],
)
def test_a_record_of_an_engine_that_cannot_be(node, change):
    node.rows(node.shared)
    code, said = node.start(node.record(node.shared, **change))
    assert code in (0, 1) and "Traceback" not in said
    assert code == 0 or said.startswith("engine-rows: ")


@pytest.mark.parametrize("path", ["\0", "\ud800", "x" * 5000])
def test_a_slice_whose_name_no_file_can_have(tmp_path, path):
    node = Node(tmp_path, sliced=(path,))
    code, said = node.start(node.record())
    assert code == 1 and "has slices of " in said and len(said) < 1000 and "\0" not in said


def test_what_is_told_of_a_record_has_an_end(node):
    node.rows(node.shared, digest=NEW, revision="r" * 100_000)
    code, said = node.start(node.record(node.shared))
    assert code == 1 and len(said) < 2000


def test_a_wrong_command_line():
    assert row_probe.main([]) == 2
