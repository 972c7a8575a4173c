# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import standing, switch
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt, render
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


@pytest.fixture
def layout(tmp_path):
    made = Layout(str(tmp_path / "root"), "tiny")
    made.receipts.mkdir(parents=True)
    for revision in ("r1", "r2"):
        path = made.revision(revision) / "a"
        path.parent.mkdir(parents=True)
        path.write_text("x")
        entry = Entry("a", 1, "md5:0", path.stat().st_mtime_ns)
        made.receipt(revision).write_text(render(Receipt("tiny", revision, "2026-11-29T22:00:00Z", (entry,))))
    return made


def engine(tmp_path, root, revision="r1"):
    path = tmp_path / "engine.json"
    path.write_text(json.dumps({"model": {"root": str(root), "revision": revision}}))
    return str(path)


def test_a_node_that_has_nothing(tmp_path):
    layout = Layout(str(tmp_path), "tiny")
    record = {"active": "", "previous": "", "target": "", "downtime_s": None, "left": ""}
    assert standing.state(layout, "/nowhere") == {
        "current": "",
        "record": record,
        "complete": [],
        "unfit": {},
        "damaged": {},
        "serves": "",
    }


def test_what_is_active_whole_and_served(layout, tmp_path):
    standing.point(layout, "r2")
    layout.switch.write_text(switch.render(switch.Record("r2", "r1")))
    (layout.revision("r1") / "a").write_text("changed")
    found = standing.state(layout, engine(tmp_path, layout.base))
    assert (found["current"], found["complete"], found["serves"]) == ("r2", ["r2"], "r1")
    assert found["record"]["previous"] == "r1"
    assert found["damaged"] == {"r1": "a (7 bytes instead of 1)"}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda layout: shutil.rmtree(layout.revision("r2")), "its directory is missing"),
        (lambda layout: layout.receipt("r2").write_text("torn"), "is not a receipt"),
        (lambda layout: layout.receipt("r2").unlink(), None),  # given up, as for a replacement in place
    ],
)
def test_an_active_revision_that_is_not_there_any_more_is_told_of(layout, spoil, says):
    standing.point(layout, "r2")
    spoil(layout)
    found = standing.state(layout, "/nowhere")
    assert found["complete"] == ["r1"] and found["current"] == "r2"
    assert says in found["damaged"]["r2"] if says else found["damaged"] == {}


@pytest.mark.parametrize(
    "text", ["", "torn", "[]", '{"model": {}}', '{"model": {"root": "/elsewhere", "revision": "r1"}}']
)
def test_an_engine_of_something_else_serves_nothing_of_this(layout, tmp_path, text):
    path = tmp_path / "engine.json"
    path.write_text(text)
    assert standing.state(layout, str(path))["serves"] == ""


def test_link_and_record_are_replaced_and_the_link_taken_away(layout):
    standing.apply(layout, switch.Step(switch.Record("r2", "r1"), "r2"))
    assert os.readlink(layout.current) == "revisions/r2"
    assert standing.read_record(layout) == switch.Record("r2", "r1")
    standing.point(layout, "")
    assert not layout.current.is_symlink()


def test_errors_name_the_file(layout, monkeypatch):
    layout.switch.write_text("torn")
    with pytest.raises(HostError, match=r"switch.json is not a record"):
        standing.state(layout, "/nowhere")
    (layout.base / ".current.new").mkdir()
    with pytest.raises(HostError, match=r"cannot point .*/current to r2"):
        standing.point(layout, "r2")
