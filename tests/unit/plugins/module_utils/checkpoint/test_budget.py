# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.budget import budget_check, bytes_needed
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk, OtherRevision, Survey, decide
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, Manifest
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt, Stat

GB = 10**9
BIG = File("big", 300 * GB, '"b"', "md5:" + "b" * 32)
SMALL = File("small", 160 * GB, '"s"', "md5:" + "5" * 32)
MANIFEST = Manifest("exl3", "new", (BIG, SMALL))


def held(revision, *files, links=1):
    entries = tuple(Entry(file.path, file.size, file.digest, 7) for file in files)
    found = {file.path: Stat(file.size, 7, links, file.size) for file in files}
    return OtherRevision(Receipt("exl3", revision, "2026-11-29T22:00:00Z", entries), found)


def survey(used, **more):
    return Survey(Disk(1000 * GB, (1000 - used) * GB), **more)


@pytest.mark.parametrize(
    ("seen", "needed", "ok"),
    [
        (survey(100), 460, True),
        (survey(390), 460, True),  # 850 of 1000 GB: exactly the ceiling
        (survey(391), 460, False),
        # The same disk with an equal file in another revision has to take 300 GB less.
        (survey(690, others=(held("old", BIG),)), 160, True),
        (survey(691, others=(held("old", BIG),)), 160, False),
        # What an earlier run finished costs nothing, what it broke off is taken over.
        (
            survey(690, journal={"big": Entry("big", 300 * GB, BIG.digest, 7)}, staged={"big": Stat(300 * GB, 7)}),
            160,
            True,
        ),
        (survey(490, staged={"small.partial": Stat(160 * GB, 1, 1, 100 * GB)}), 360, True),
        # A full disk is no reason to refuse a run that fetches nothing.
        (survey(990, others=(held("old", BIG, SMALL),)), 0, True),
        (survey(990, others=(held("old", BIG),)), 160, False),
    ],
)
def test_budget(seen, needed, ok):
    staging = decide(MANIFEST, seen, 0)
    assert bytes_needed(staging, seen) == needed * GB
    assert budget_check(staging, seen, 85, "spark1").ok is ok


def test_the_refusal_shows_the_arithmetic():
    seen = survey(500)
    check = budget_check(decide(MANIFEST, seen, 0), seen, 85, "spark2")
    assert check.id == "checkpoint.budget" and check.node == "spark2"
    assert check.found == "500.0 GB used + 460.0 GB to come = 960.0 GB of 1.00 TB (96.0 %)"
    assert check.expected == "at most 85 % = 850.0 GB"
    assert check.cure == "free 110.0 GB outside of the checkpoints, or raise checkpoint_disk_ceiling_percent"


def test_the_refusal_lists_what_could_be_freed():
    old = replace(BIG, digest="md5:" + "0" * 32)
    seen = survey(
        800,
        others=(held("older", old), held("active", replace(old, size=200 * GB)), held("linked", BIG, links=2)),
        leftovers={"gone": 40 * GB, "new": 5 * GB, "none": 0},
        current="active",
    )
    cure = budget_check(decide(MANIFEST, seen, 0), seen, 85, "spark1").cure
    assert "revision older (300.0 GB)" in cure
    assert "revision active which is current (200.0 GB)" in cure
    assert "unfinished staging of gone (40.0 GB)" in cure
    assert "540.0 GB in all" in cure
    # Hard links free nothing, and what is staged for this very revision is used by it.
    assert "linked" not in cure and "of new" not in cure


def test_the_ceiling_is_the_users():
    seen = survey(500)
    assert budget_check(decide(MANIFEST, seen, 0), seen, 96, "spark1").ok
