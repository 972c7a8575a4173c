# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.prune import Left, Seen, prune, rows
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Stat
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.switch import Record


def files(size, inode, links=1):
    return {"f": Stat(size, 1, links, size, inode=inode)}


REVISIONS = {name: files(100, index) for index, name in enumerate(("r1", "r2", "r3", "r4", "r5"), start=1)}


def seen(**more):
    return Seen(
        **{"disk": Disk(1000, 100), "revisions": REVISIONS, "current": "r5", "record": Record("r5", "r2"), **more}
    )


def removed(found, keep=2, unfinished=False):
    return [item.name for item in prune(found, keep, unfinished).removed]


@pytest.mark.parametrize(
    ("more", "keep", "gone"),
    [
        ({}, 2, ["r1", "r3", "r4"]),
        ({}, 3, ["r1", "r3"]),
        ({}, 5, []),
        ({}, 9, []),
        # Whatever is to be kept, what is active, was, or is about to be is never touched.
        ({"current": "r1", "record": Record("r3", "r2", "r4")}, 2, ["r5"]),
        ({"record": Record("r5")}, 2, ["r1", "r2", "r3"]),
        ({"current": "", "record": Record()}, 2, ["r1", "r2", "r3"]),
        # A switch that has no way back.
        ({"current": "r1", "record": Record("", "r2", "r4", left="r3")}, 2, ["r5"]),
        # A link that was moved without the engines.
        ({"serves": "r3"}, 2, ["r1", "r4"]),
        ({"busy": frozenset({"r1", "r9"})}, 2, ["r3", "r4"]),
    ],
)
def test_which_revisions_go(more, keep, gone):
    assert removed(seen(**more), keep) == gone


def test_rows_on_another_disk_are_listed_with_their_size_and_give_this_one_nothing():
    disk = Disk(1000, 100, device=1)
    rows = {
        "/engram": Left({"f": Stat(900, 1, 1, 300, 9, device=1)}),
        "/srv": Left({"f": Stat(900, 1, 1, 400, 9, device=2)}),
    }
    kept = {"/used": Left({"f": Stat(900, 1, 1, 500, 8, device=1)}, "the engine reads them")}
    found = prune(seen(disk=disk, revisions={}, rows={**rows, **kept}), 2, False, unused_rows=True)
    assert [(item.name, item.bytes, item.remove) for item in found.items] == [
        ("/engram", 300, True),
        ("/srv", 400, True),
        ("/used", 500, False),
    ]
    assert found.frees == 300
    assert prune(seen(disk=disk, revisions={}, rows=rows), 2, False).removed == ()


def test_what_goes_gives_back_what_nothing_else_holds():
    shared = {**REVISIONS, "r1": files(100, 7, links=2), "r3": files(100, 7, links=2)}
    made = prune(seen(revisions=shared), 2, False)
    assert made.frees == 200  # r1 and r3 together once, r4
    assert {item.name: item.bytes for item in made.items if item.name in ("r1", "r3")} == {"r1": 0, "r3": 0}


@pytest.mark.parametrize(
    ("unfinished", "record", "gone"),
    [
        (False, Record("r5", "r2"), [".pruned-r0"]),
        (True, Record("r5", "r2"), [".pruned-r0", "r6"]),
        (True, Record("r5", "r2", "r6"), [".pruned-r0"]),
    ],
)
def test_unfinished_stagings_go_when_asked_for_and_half_deleted_ones_always(unfinished, record, gone):
    found = seen(revisions={}, staging={".pruned-r0": files(10, 20), "r6": files(30, 21)}, record=record)
    assert removed(found, 2, unfinished) == gone


def test_what_is_not_ours_is_listed_and_stays():
    made = prune(
        seen(revisions={}, unknown={"x": files(40, 30)}, foreign={"/var/tmp/engram-local/OLD": 63 * 10**9}), 2, True
    )
    assert not made.removed and made.frees == 0
    shown = rows("spark1", [item.to_dict() for item in made.items])
    assert [(row["what"], row["name"], row["size"], row["goes"]) for row in shown] == [
        ("unknown directory", "x", "40 B", "no"),
        ("foreign", "/var/tmp/engram-local/OLD", "63.0 GB", "no"),
    ]


def test_the_plan_names_each_with_its_size():
    made = prune(seen(), 4, False)
    diff = made.plan("/x").diff()
    assert [(one["before_header"], one["before"], one["after"]) for one in diff] == [("/x: revision r1", "100 B\n", "")]
    reasons = {item.name: item.why for item in made.items}
    assert (
        reasons["r5"] == "active"
        and reasons["r2"] == "the one before the active one"
        and "checkpoint_keep" in reasons["r1"]
    )
