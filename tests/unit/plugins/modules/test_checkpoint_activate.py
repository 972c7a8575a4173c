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
