# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import (
    lock,
    pruning,
    replacing,
    row_state,
    switch,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt, render
from ansible_collections.gb10.ring.plugins.modules import checkpoint_prune


def run(capsys, root, **options):
    arguments = {"root": str(root), "name": "tiny", "node": "spark1", **options}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        checkpoint_prune.main()
    return json.loads(capsys.readouterr().out)


def receipt(layout, name, day):
    entry = Entry("a", 4096, "md5:0", (layout.revision(name) / "a").stat().st_mtime_ns)
    return Receipt("tiny", name, f"2026-11-{day:02}T22:00:00Z", (entry,))


@pytest.fixture
def layout(tmp_path):
    made = Layout(str(tmp_path), "tiny")
    made.receipts.mkdir(parents=True)
    made.manifests.mkdir()
    for day, name in enumerate(("r1", "r2", "r3", "r4"), start=1):
        made.revision(name).mkdir(parents=True)
        (made.revision(name) / "a").write_bytes(b"x" * 4096)
        made.receipt(name).write_text(render(receipt(made, name, day)))
        made.manifest(name).write_text("{}")
    made.current.symlink_to(made.link_text("r4"))
    made.switch.write_text(switch.render(switch.Record("r4", "r1")))
    (made.staging("r5")).mkdir(parents=True)
    (made.staging("r5") / "a.partial").write_bytes(b"x" * 4096)
    made.journal("r5").write_text("{}")
    return made


def left(layout):
    return sorted(path.name for path in layout.revisions.iterdir())


def test_four_steps(capsys, layout, tmp_path):
    check = {"_ansible_check_mode": True}
    results = [
        run(capsys, tmp_path, **check),
        run(capsys, tmp_path),
        run(capsys, tmp_path, **check),
        run(capsys, tmp_path),
    ]
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert results[0]["diff"] == results[1]["diff"] and results[0]["frees"] == 8192
    assert left(layout) == ["r1", "r4"]
    for place in (layout.receipts, layout.manifests):
        assert sorted(path.name for path in place.iterdir()) == ["r1.json", "r4.json"]
    assert sorted(path.name for path in layout.stagings.iterdir()) == [".lock", "r5", "r5.journal"]


def test_check_mode_deletes_nothing(capsys, layout, tmp_path):
    run(capsys, tmp_path, _ansible_check_mode=True)
    assert left(layout) == ["r1", "r2", "r3", "r4"]


def test_unfinished_stagings_on_request(capsys, layout, tmp_path):
    run(capsys, tmp_path, keep=9, unfinished=True)
    assert left(layout) == ["r1", "r2", "r3", "r4"]
    assert [path.name for path in layout.stagings.iterdir()] == [".lock"]


def test_what_is_being_replaced_in_place_stays(capsys, layout, tmp_path):
    old = receipt(layout, "r2", 2)
    layout.replacing.write_text(replacing.render(replacing.Replacing("r5", old)))
    layout.receipt("r2").unlink()
    result = run(capsys, tmp_path, unfinished=True)
    assert left(layout) == ["r1", "r2", "r4"] and layout.staging("r5").is_dir()
    assert [item["why"] for item in result["items"] if item["name"] == "r2"] == ["being replaced in place"]


def test_a_deletion_that_was_interrupted_is_finished(capsys, layout, tmp_path):
    layout.revision("r2").rename(layout.stagings / ".pruned-r2")
    run(capsys, tmp_path, keep=9)
    assert not (layout.stagings / ".pruned-r2").exists() and left(layout) == ["r1", "r3", "r4"]


def test_foreign_copies_are_listed(capsys, layout, tmp_path):
    place = tmp_path / "engram-local"
    (place / "OLD-TP3").mkdir(parents=True)
    (place / "OLD-TP3" / "x").write_bytes(b"x" * 8192)
    result = run(capsys, tmp_path, foreign_paths=[str(place), str(tmp_path / "absent")])
    (found,) = [item for item in result["items"] if item["kind"] == "foreign"]
    assert (found["name"], found["bytes"], found["remove"]) == (str(place / "OLD-TP3"), 8192, False)
    assert (place / "OLD-TP3" / "x").exists()


SHARD, INDEX, LOCAL = "model-1.safetensors", "model.safetensors.index.json", "engram-local.json"


def rows_in(directory, size=8192):
    """Rows of ours in a directory, and what a run that was killed left under a name of the checkpoint."""
    directory.mkdir(parents=True)
    for name in (SHARD, INDEX, "a.partial"):
        (directory / name).write_bytes(b"x" * size)
    held = row_state.Held(SHARD, size, "md5:0", "0", ((0, size),))
    state = row_state.RowState("x", {"1": (0, 1)}, 0, 3, "vllm", "r4", "directory", "2026-11-29T22:00:00Z", (held,))
    (directory / LOCAL).write_text(row_state.render(state))


def rows_found(result):
    return {item["name"]: item for item in result["items"] if item["kind"] == "Engram rows"}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_rows_that_no_engine_reads_go_on_request(capsys, layout, tmp_path, elsewhere):
    place = tmp_path / "srv/rows" if elsewhere else layout.base / "engram"
    rows_in(place)
    (place / "mine.txt").write_text("somebody's")
    shard = {"placement": "shard", "directory": str(place) if elsewhere else None}
    for asked, goes in (({}, False), ({"unused_rows": True, "_ansible_check_mode": True}, True)):
        found = rows_found(run(capsys, tmp_path, keep=9, engram=shard, **asked))[str(place)]
        assert (found["remove"], found["bytes"] >= 3 * 8192, (place / SHARD).exists()) == (goes, True, True)
    assert "checkpoint_prune_engram" not in found["why"]
    result = run(capsys, tmp_path, keep=9, engram=shard, unused_rows=True)
    assert result["changed"] and result["frees"] >= 3 * 8192
    # What others keep in a directory that the user named stays.
    assert [path.name for path in place.iterdir()] == ["mine.txt"] if elsewhere else not place.exists()
    again = run(capsys, tmp_path, keep=9, engram=shard, unused_rows=True)
    assert not again["changed"] and rows_found(again) == {}


@pytest.mark.parametrize(
    ("engram", "why"),
    [
        (None, "which placement the engine has is not known"),
        ({"placement": "directory"}, "the engine reads them"),
        ({"placement": "shard"}, "the engine's unit reads them; start the group with the present placement first"),
        ({"placement": "full"}, "a process has them open"),
    ],
)
def test_rows_that_somebody_reads_stay(capsys, layout, monkeypatch, engram, why):
    place, root = layout.base / "engram", layout.base.parent
    rows_in(place)
    unit = root / "engine.json"
    unit.write_text(json.dumps({"model": {"engram": str(place) if "unit" in why else "/srv/other"}}))
    monkeypatch.setattr(pruning, "ENGINE_RECORD", str(unit))
    other = None
    if "open" in why:
        other = subprocess.Popen(["sleep", "60"], stdin=(place / SHARD).open("rb"))
    try:
        result = run(capsys, root, keep=9, unused_rows=True, **({"engram": engram} if engram else {}))
    finally:
        if other:
            other.kill()
            other.wait()
    found = rows_found(result)[str(place)]
    assert (found["remove"], found["why"], result["changed"]) == (False, why, False) and (place / SHARD).exists()


def test_not_beside_a_staging_that_runs(capsys, layout, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "lock_patience", lambda _stagings: 0.5)
    with lock.locked(layout):
        result = run(capsys, tmp_path)
    assert (
        result["failed"] and "another run is staging tiny" in result["msg"] and left(layout) == ["r1", "r2", "r3", "r4"]
    )


@pytest.mark.parametrize(
    ("options", "text"), [({"keep": 1}, "option keep is 1, allowed are 2"), ({"name": "../x"}, "not usable")]
)
def test_bad_options(capsys, layout, tmp_path, options, text):
    assert text in run(capsys, tmp_path, **options)["msg"]


@pytest.mark.parametrize("place", ["switch", "replacing"])
def test_a_record_that_cannot_be_read_stops_it(capsys, layout, tmp_path, place):
    getattr(layout, place).write_text("torn")
    result = run(capsys, tmp_path)
    assert (
        result["failed"]
        and "is not a record of gb10.ring" in result["msg"]
        and left(layout) == ["r1", "r2", "r3", "r4"]
    )


def test_what_goes_after_a_switch(layout):
    # r5 becomes active, r4 is then the one before: r1, r2 and r3 go.
    assert pruning.after_switch(layout, "r5", 2) == 3 * 4096
    assert pruning.after_switch(layout, "r4", 2) == 2 * 4096
    assert pruning.after_switch(layout, "r5", 4) == 4096
