# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt, render
from ansible_collections.gb10.ring.plugins.modules import checkpoint_activate


def run(capsys, root, revision="r1", name="tiny", **internal):
    with (
        patch_module_args({"root": str(root), "name": name, "revision": revision, **internal}),
        pytest.raises(SystemExit),
    ):
        checkpoint_activate.main()
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def layout(tmp_path):
    made = Layout(str(tmp_path), "tiny")
    for revision in ("r1", "r2"):
        made.revision(revision).mkdir(parents=True)
        path = made.revision(revision) / "a"
        path.write_text("x")
        entry = Entry("a", 1, "md5:0", path.stat().st_mtime_ns)
        made.receipts.mkdir(exist_ok=True)
        made.receipt(revision).write_text(render(Receipt("tiny", revision, "2026-11-29T22:00:00Z", (entry,))))
    return made


def test_four_steps(capsys, layout, tmp_path):
    check = {"_ansible_check_mode": True}
    results = [
        run(capsys, tmp_path, **check),
        run(capsys, tmp_path),
        run(capsys, tmp_path, **check),
        run(capsys, tmp_path),
    ]
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert os.readlink(layout.current) == "revisions/r1"
    assert results[0]["diff"] == results[1]["diff"] and results[3]["diff"] == []
    assert [result["previous"] for result in results] == ["", "", "r1", "r1"]


def test_the_link_moves(capsys, layout, tmp_path):
    run(capsys, tmp_path)
    result = run(capsys, tmp_path, "r2")
    assert (result["changed"], result["previous"]) == (True, "r1")
    assert (layout.current / "a").read_text() == "x" and os.readlink(layout.current) == "revisions/r2"
    assert not (layout.base / ".current.new").exists()


def test_an_unverified_revision_is_refused_and_the_link_stays(capsys, layout, tmp_path):
    run(capsys, tmp_path)
    (layout.revision("r2") / "a").write_text("changed")
    result = run(capsys, tmp_path, "r2")
    assert result["failed"] and "a (7 bytes instead of 1)" in result["msg"]
    assert os.readlink(layout.current) == "revisions/r1"


def test_in_check_mode_a_revision_may_be_still_to_come(capsys, layout, tmp_path):
    result = run(capsys, tmp_path, "r9", _ansible_check_mode=True)
    assert result["changed"] and result["diff"][0]["after"] == "revisions/r9\n"
    assert "no receipt" in run(capsys, tmp_path, "r9")["msg"]


def test_a_directory_in_the_place_of_the_link_is_named(capsys, layout, tmp_path):
    layout.current.mkdir()
    assert "not a symbolic link" in run(capsys, tmp_path)["msg"]


@pytest.mark.parametrize(("name", "revision"), [("../x", "r1"), ("tiny", "../r1"), ("tiny", "a/b")])
def test_names_that_would_leave_the_root_are_refused(capsys, tmp_path, name, revision):
    assert "not usable as a directory name" in run(capsys, tmp_path, revision, name)["msg"]


def test_a_receipt_that_cannot_be_read_is_named(capsys, layout, tmp_path):
    layout.receipt("r1").write_text("{")
    assert "is not a receipt of gb10.ring" in run(capsys, tmp_path)["msg"]


def phases(capsys, root, revision, *names, **options):
    return [run(capsys, root, revision, phase=name, **options) for name in names]


def record(layout):
    found = json.loads(layout.switch.read_text())
    return found["active"], found["previous"], found["target"]


def test_a_switch_in_phases(capsys, layout, tmp_path):
    run(capsys, tmp_path)
    (prepared,) = phases(capsys, tmp_path, "r2", "prepare", origin="r1")
    assert (prepared["changed"], prepared["revision"], record(layout)) == (True, "r1", ("r1", "", "r2"))
    (committed,) = phases(capsys, tmp_path, "r2", "commit")
    assert (committed["previous"], committed["revision"], record(layout)) == ("r1", "r2", ("r1", "", "r2"))
    (finished,) = phases(capsys, tmp_path, "r2", "finish", downtime_s=6.123)
    assert (finished["revision"], record(layout)) == ("r2", ("r2", "r1", ""))
    assert json.loads(layout.switch.read_text())["downtime_s"] == 6.12
    again = phases(capsys, tmp_path, "r2", "now", "finish")
    assert [result["changed"] for result in again] == [False, False]


def test_a_switch_that_is_taken_back(capsys, layout, tmp_path):
    run(capsys, tmp_path)
    phases(capsys, tmp_path, "r2", "prepare", "commit")
    back, again = phases(capsys, tmp_path, "r2", "revert", "revert")
    assert (back["changed"], back["revision"], again["changed"]) == (True, "r1", False)
    assert os.readlink(layout.current) == "revisions/r1" and record(layout) == ("r1", "", "")


def test_check_mode_of_a_phase_changes_nothing(capsys, layout, tmp_path):
    run(capsys, tmp_path)
    before = layout.switch.read_text()
    result = run(capsys, tmp_path, "r2", phase="prepare", _ansible_check_mode=True)
    assert result["changed"] and [one["before_header"] for one in result["diff"]] == [str(layout.switch)]
    assert layout.switch.read_text() == before


def test_a_phase_that_does_not_follow_is_refused(capsys, layout, tmp_path):
    run(capsys, tmp_path)
    result = run(capsys, tmp_path, "r2", phase="commit")
    assert result["failed"] and "cannot commit the switch to r2: revision r2 was not prepared here" in result["msg"]
    assert os.readlink(layout.current) == "revisions/r1"


def test_a_revision_that_cannot_be_activated_is_not_prepared(capsys, layout, tmp_path):
    (layout.revision("r2") / "a").write_text("damaged")
    result = run(capsys, tmp_path, "r2", phase="prepare")
    assert result["failed"] and "a (7 bytes instead of 1)" in result["msg"] and not layout.switch.exists()


def test_a_record_that_cannot_be_read_stops_everything(capsys, layout, tmp_path):
    layout.switch.write_text("torn")
    result = run(capsys, tmp_path)
    assert result["failed"] and "switch.json is not a record of gb10.ring" in result["msg"]
