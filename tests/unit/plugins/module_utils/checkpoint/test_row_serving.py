# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_serving
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, make
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt, render
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_decide import RowStaging, RowStep
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_place import RowPlace
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_plan import RowPlan, Target
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_serving import (
    Serving,
    check,
    digests,
    in_use,
    look,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_state import Work
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures import row_process

A, B = "rev-a", "rev-b"
OLD, NEW = "crc64nvme:00000000000000aa", "crc64nvme:00000000000000bb"
PLACE = Path("/srv/rows")
UNIT = Serving(A, str(PLACE), "vllm", 3, 1, digests={"s": OLD})
SLICED = replace(UNIT, directory="")


def staging(revision=B, digest=NEW, placement="directory", *, way="new", tp=3):
    plan = RowPlan(rank=1, tp=tp, rule="vllm", placement=placement, layers={"1": (10, 20)}, targets=())
    step = RowStep(Target("s", 100, 8, (), {}), File("s", 100, "e", digest), Work("s", 100), way)
    return RowStaging(plan, revision, (step,))


@pytest.mark.parametrize(
    ("serving", "wanted", "refused"),
    [
        (UNIT, staging(), True),  # rows of another revision in the directory that is read
        (UNIT, staging(A, OLD, tp=4), True),  # of another rank
        (SLICED, staging(A, OLD, "shard", tp=4), True),
        (SLICED, staging(A, NEW, "shard"), True),  # a named revision, of which a shard was replaced
        (replace(UNIT, digests={}), staging(A, OLD), True),  # what it serves is not known
        (replace(UNIT, rows="1:10:20", rule="sglang"), staging(A, OLD), False),
        (replace(UNIT, rows="1:10:21"), staging(A, OLD), True),
        (UNIT, staging(way="keep"), False),
        (UNIT, staging(A, OLD), False),  # damaged rows come anew
        (UNIT, staging(B, OLD), False),
        (SLICED, staging(A, OLD, "shard"), False),
        (SLICED, staging(B, NEW, "shard"), False),  # each revision has its own
        (SLICED, staging(), False),  # a first stage into a directory that nobody reads
        (replace(UNIT, directory="/elsewhere"), staging(), False),
        (Serving(), staging(), False),  # a stopped group
    ],
)
def test_rows_under_a_running_engine(serving, wanted, refused):
    found = check(serving, wanted, PLACE, "n1")
    assert (found is not None) is refused
    if found:
        assert (found.id, found.node, found.ok, found.severity) == ("checkpoint.engram_served", "n1", False, "error")
        assert "serves revision rev-a" in found.found and "1 file of Engram rows in /srv/rows" in found.found
        assert "engine_state: stopped" in found.cure and "checkpoint_in_place: true" in found.cure


@pytest.mark.parametrize(
    ("serving", "placement", "used"),
    [
        (UNIT, "directory", {"s"}),  # it may open them any moment
        (SLICED, "shard", {"s"}),
        (SLICED, "directory", set()),
        (replace(SLICED, revision=B), "shard", set()),
        (Serving(), "directory", set()),
    ],
)
def test_files_that_an_engine_reads_are_in_use_before_it_opens_them(tmp_path, monkeypatch, serving, placement, used):
    place = RowPlace(Layout(str(tmp_path), "tiny"), tmp_path)
    (tmp_path / "s").write_bytes(b"rows")
    serving = replace(serving, directory=str(tmp_path)) if serving.directory else serving
    monkeypatch.setattr(row_serving, "look", lambda _layout: serving)
    assert in_use(place, placement, A, ["s", "absent"]) == used
    with row_process.holding(tmp_path / "s"):
        assert in_use(place, placement, A, ["s", "absent"]) == {"s"}


@pytest.fixture
def layout(tmp_path):
    made = Layout(str(tmp_path / "root"), "tiny")
    made.receipts.mkdir(parents=True)
    made.manifests.mkdir()
    made.revision(A).mkdir(parents=True)
    made.receipt(A).write_text(render(Receipt("tiny", A, "2026-11-29T22:00:00Z", (Entry("a", 1, OLD, 5),), ("s",))))
    planned = make("tiny", A, [File("a", 1, "e", OLD), File("s", 100, "e", NEW)])
    made.manifest(A).write_text(json.dumps(planned.to_dict()))
    return made


def record(tmp_path, layout, **more):
    path = tmp_path / "engine.json"
    model = {"root": str(layout.base), "revision": A, "engram": str(PLACE)}
    path.write_text(json.dumps({"engine": "vllm", "size": 3, "rank": 1, "model": model, "env": {}, **more}))
    return str(path)


@pytest.mark.parametrize(
    ("state", "runs"), [("active", True), ("activating", True), ("inactive", False), ("failed", False), ("", False)]
)
def test_what_a_running_unit_reads(layout, tmp_path, monkeypatch, state, runs):
    monkeypatch.setattr(row_serving, "run", lambda *_argv, **_more: SimpleNamespace(stdout=f"{state}\n"))
    known = {"a": OLD, "s": NEW}  # of a slice the plan says it
    expected = replace(UNIT, digests=known) if runs else Serving()
    assert look(layout, record(tmp_path, layout)) == expected
    if runs:
        assert look(layout, record(tmp_path, layout, env={"SPARK_ENGRAM_ROWS": "1:2:3"})).rows == "1:2:3"


@pytest.mark.parametrize("wrong", [{"size": float("inf")}, {"env": ["x"]}, {"rank": "x"}])
def test_a_damaged_record_names_the_revision_and_the_directory(layout, tmp_path, monkeypatch, wrong):
    monkeypatch.setattr(row_serving, "run", lambda *_argv, **_more: SimpleNamespace(stdout="active\n"))
    assert look(layout, record(tmp_path, layout, **wrong)) == Serving(A, str(PLACE))


def test_an_engine_of_another_checkpoint_or_none_reads_nothing_of_this(layout, tmp_path, monkeypatch):
    monkeypatch.setattr(row_serving, "run", lambda *_argv, **_more: SimpleNamespace(stdout="active\n"))
    assert look(Layout(str(tmp_path / "root"), "other"), record(tmp_path, layout)) == Serving()
    assert look(layout, str(tmp_path / "none")) == Serving()


def test_without_systemd_nothing_runs(layout, tmp_path, monkeypatch):
    def run(*_argv, **_more):
        raise HostError("systemctl is not installed on this machine")

    monkeypatch.setattr(row_serving, "run", run)
    assert look(layout, record(tmp_path, layout)) == Serving()


@pytest.mark.parametrize("text", ["", "torn", "{}", "[]"])
def test_what_cannot_be_read_is_not_known(layout, text):
    layout.manifest(A).write_text(text)
    assert digests(layout.base, A) == {"a": OLD}
    layout.receipt(A).write_text("torn")
    assert digests(layout.base, A) == {}
