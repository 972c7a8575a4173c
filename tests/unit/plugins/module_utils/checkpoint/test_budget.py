# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import survey as on_disk
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.budget import (
    Reclaimable,
    budget,
    budget_check,
    bytes_needed,
    freed,
    reclaimable,
    table,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk, OtherRevision, Survey, decide
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, Manifest
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt, Stat

GB = 10**9
BIG = File("big", 300 * GB, '"b"', "md5:" + "b" * 32)
SMALL = File("small", 160 * GB, '"s"', "md5:" + "5" * 32)
MANIFEST = Manifest("exl3", "new", (BIG, SMALL))
HERE, ELSEWHERE = 8, 9


def held(revision, *files, links=1, inode=0, device=0, allocated=None):
    entries = tuple(Entry(file.path, file.size, file.digest, 7) for file in files)
    found = {
        file.path: Stat(file.size, 7, links, file.size if allocated is None else allocated, inode, device)
        for file in files
    }
    return OtherRevision(Receipt("exl3", revision, "2026-11-29T22:00:00Z", entries), found)


def staged(*files):
    """Complete, as the receipt of this very revision has it."""
    whole = held("new", *files)
    return {"receipt": whole.receipt, "revision_exists": True, "present": whole.found}


def survey(used, reserved=0, **more):
    return Survey(Disk(1000 * GB, (1000 - used) * GB, reserved * GB, HERE), **more)


def partial(file, allocated, **more):
    return {f"{file.path}.partial": Stat(file.size, 1, 1, allocated * GB, **more)}


@pytest.mark.parametrize(
    ("seen", "needed", "reusable", "ok"),
    [
        # Fresh nodes.
        (survey(100), 460, 0, True),
        (survey(390), 460, 0, True),  # 850 of 1000 GB: exactly the ceiling
        (survey(391), 460, 0, False),
        # What is reserved for root counts as used, whoever may write there: so does kubelet count.
        (survey(390, reserved=50), 460, 0, True),
        # A second run fetches nothing, on however full a disk.
        (survey(560, **staged(BIG, SMALL)), 0, 460, True),
        (survey(990, **staged(BIG, SMALL)), 0, 460, True),
        # The same disk with an equal file in another revision has to take 300 GB less.
        (survey(690, others=(held("old", BIG),)), 160, 300, True),
        (survey(691, others=(held("old", BIG),)), 160, 300, False),
        (survey(990, others=(held("old", BIG, SMALL),)), 0, 460, True),
        (survey(990, others=(held("old", BIG),)), 160, 300, False),
        # No link reaches another file system.
        (survey(390, others=(held("old", BIG, device=ELSEWHERE),)), 460, 0, True),
        (survey(391, others=(held("old", BIG, device=ELSEWHERE),)), 460, 0, False),
        # What an earlier run finished costs nothing.
        (
            survey(690, journal={"big": Entry("big", 300 * GB, BIG.digest, 7)}, staged={"big": Stat(300 * GB, 7)}),
            160,
            300,
            True,
        ),
        # What it broke off is counted once, as used, by what the file has and not by how long it is.
        (survey(490, staged=partial(SMALL, 100)), 360, 100, True),
        (survey(390, staged=partial(SMALL, 0)), 460, 0, True),
        (survey(490, staged=partial(SMALL, 160)), 300, 160, True),
        # What else lies in the staging directory goes before the first byte comes.
        (survey(490, staged={"junk": Stat(100 * GB, 1, 1, 100 * GB)}), 360, 0, True),
        # Unless it has another name, or lies on another file system: then it gives nothing back.
        (survey(390, staged={"junk": Stat(100 * GB, 1, 2, 100 * GB)}), 460, 0, True),
        (survey(390, staged=partial(SMALL, 160, device=ELSEWHERE)), 460, 160, True),
    ],
)
def test_budget(seen, needed, reusable, ok):
    staging = decide(MANIFEST, seen)
    found = budget(staging, seen, 85)
    assert bytes_needed(staging, seen) == found.needed == needed * GB
    assert found.reusable == reusable * GB
    assert found.ok is budget_check(found, "spark1").ok is ok


def check(seen, node="spark1", ceiling=85):
    return budget_check(budget(decide(MANIFEST, seen), seen, ceiling), node)


def test_the_refusal_shows_the_arithmetic():
    found = check(survey(500), "spark2")
    assert found.id == "checkpoint.budget" and found.node == "spark2"
    assert found.found == "500.0 GB used + 460.0 GB to come = 960.0 GB of 1.00 TB (96.0 %)"
    assert found.expected == "at most 85 % = 850.0 GB"
    assert found.cure == "free 110.0 GB outside of the checkpoints; or raise checkpoint_disk_ceiling_percent"


def test_what_is_reserved_is_shown():
    assert check(survey(500, reserved=50)).found.startswith("500.0 GB used (50.0 GB of that reserved for root) + ")


def test_the_refusal_lists_what_could_be_freed():
    old = replace(BIG, digest="md5:" + "0" * 32)
    seen = survey(
        800,
        others=(held("older", old), held("active", replace(old, size=200 * GB)), held("shared", BIG, links=2)),
        leftovers={".pruned-half": GB, "gone": 40 * GB, "new": 5 * GB, "none": 0},
        current="active",
    )
    cure = check(seen).cure
    assert (
        "revision older (300.0 GB), half-deleted revision half (1.0 GB), unfinished staging of gone (40.0 GB), 341.0 GB in all"
        in cure
    )
    # What is active is named apart: an engine may have it open.
    assert "(the active revision holds 200.0 GB)" in cure and "revision active (" not in cure
    # Hard links free nothing, and what is staged for this very revision is used by it.
    assert "shared" not in cure and "of new" not in cure


def test_what_is_about_to_be_linked_gives_nothing_back():
    seen = survey(800, others=(held("old", BIG, replace(SMALL, digest="md5:" + "0" * 32)),))
    found = budget(decide(MANIFEST, seen), seen, 85)
    assert found.reusable == 300 * GB and found.reclaimable == Reclaimable((("revision old", 160 * GB),), 160 * GB)


@pytest.mark.parametrize(
    ("others", "current", "expected"),
    [
        ((held("a", BIG),), "", Reclaimable((("revision a", 300 * GB),), 300 * GB)),
        # A sparse file gives back what it has, not how long it is.
        ((held("a", BIG, allocated=7 * GB),), "", Reclaimable((("revision a", 7 * GB),), 7 * GB)),
        # Two old revisions share a file: neither frees it alone, both together do, once.
        (
            (held("a", BIG, links=2, inode=5, device=HERE), held("b", BIG, links=2, inode=5, device=HERE)),
            "",
            Reclaimable((), 300 * GB),
        ),
        # The third name is elsewhere, so nothing is freed.
        (
            (held("a", BIG, links=3, inode=5, device=HERE), held("b", BIG, links=3, inode=5, device=HERE)),
            "",
            Reclaimable(),
        ),
        # Equal inode numbers on two file systems are two files.
        (
            (held("a", BIG, links=2, inode=5, device=HERE), held("b", BIG, links=2, inode=5, device=ELSEWHERE)),
            "",
            Reclaimable(),
        ),
        ((held("a", BIG, device=ELSEWHERE),), "", Reclaimable()),
        ((held("a", BIG),), "a", Reclaimable((), 0, 300 * GB)),
    ],
)
def test_reclaimable(others, current, expected):
    assert reclaimable("new", survey(0, others=others, current=current)) == expected


def test_the_ceiling_is_the_users():
    assert check(survey(500), ceiling=96).ok


def test_one_node_of_three_without_room():
    nodes = {"spark1": survey(100), "spark2": survey(600), "spark3": survey(900, **staged(BIG, SMALL))}
    rows = [budget(decide(MANIFEST, seen), seen, 85).to_dict(node) for node, seen in nodes.items()]
    assert table(rows) == [
        {
            "node": "spark1",
            "needed": "460.0 GB",
            "reusable": "0 B",
            "reclaimable": "0 B",
            "free": "900.0 GB",
            "after": "560.0 GB of 1.00 TB",
            "ceiling": "850.0 GB",
            "verdict": "fits",
        },
        {
            "node": "spark2",
            "needed": "460.0 GB",
            "reusable": "0 B",
            "reclaimable": "0 B",
            "free": "400.0 GB",
            "after": "1.06 TB of 1.00 TB",
            "ceiling": "850.0 GB",
            "verdict": "210.0 GB short",
        },
        {
            "node": "spark3",
            "needed": "0 B",
            "reusable": "460.0 GB",
            "reclaimable": "0 B",
            "free": "100.0 GB",
            "after": "900.0 GB of 1.00 TB",
            "ceiling": "850.0 GB",
            "verdict": "nothing to fetch",
        },
    ]


# --- the same from a real file system ---------------------------------------------------------------------------------


def test_real_sparse_and_linked_files_are_counted_by_what_they_have(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/one").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "a/one", tmp_path / "b/one")
    with (tmp_path / "a/sparse").open("wb") as handle:
        handle.seek(50 << 20)
        handle.write(b"x")
    disk = on_disk.disk_of(tmp_path)
    trees = {name: on_disk.tree(tmp_path / name) for name in ("a", "b")}
    assert trees["a"]["sparse"].size > 50 << 20
    alone = freed([trees["a"]], disk)
    assert alone == trees["a"]["sparse"].allocated < 1 << 20
    assert freed(trees.values(), disk) == alone + trees["a"]["one"].allocated
    assert freed([trees["b"]], disk) == 0


def test_reserved_blocks_are_used(tmp_path, monkeypatch):
    figures = SimpleNamespace(f_blocks=1000, f_frsize=4096, f_bfree=500, f_bavail=450)
    monkeypatch.setattr(on_disk.os, "statvfs", lambda _path: figures)
    disk = on_disk.disk_of(tmp_path / "not/there/yet")
    assert (disk.size, disk.available, disk.reserved) == (4_096_000, 450 * 4096, 50 * 4096)
    assert disk.used == 550 * 4096 and disk.device == tmp_path.stat().st_dev


def test_directories_on_two_file_systems_are_a_problem(tmp_path):
    layout = Layout(str(tmp_path), "exl3")
    layout.revisions.mkdir(parents=True)
    assert on_disk.split_problem(layout) == ""
    layout.stagings.symlink_to("/proc")
    problem = on_disk.split_problem(layout)
    assert "different file systems" in problem and str(layout.stagings) in problem
    assert on_disk.look(layout, "new").problem == problem
