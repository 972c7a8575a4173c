# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import decide as subject
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk, OtherRevision, Survey, decide
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, Manifest
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Derived, Entry, Receipt, Stat
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.tp_config import derived_text

ORIGINAL = (Path(__file__).parents[3] / "fixtures/checkpoint/config-exl3.json").read_text(encoding="utf-8")
PADDED = derived_text(ORIGINAL, 3)
DISK = Disk(1000_000, 900_000)
CONFIG = File("config.json", 5974, '"c"', "md5:" + "c" * 32)
SHARD = File("shard", 100_000, '"s"', "md5:" + "5" * 32)
MANIFEST = Manifest("tiny", "new", (CONFIG, SHARD))


def receipt(revision="new", files=(CONFIG, SHARD), **more):
    entries = tuple(Entry(file.path, file.size, file.digest, 7) for file in files)
    return Receipt("tiny", revision, "2026-11-29T22:00:00Z", entries, **more)


def stats(*files, mtime=7, links=1):
    return {file.path: Stat(file.size, mtime, links, file.size) for file in files}


EMPTY = Survey(DISK)
STAGED = Survey(
    DISK, receipt=receipt(), revision_exists=True, present=stats(CONFIG, SHARD), current="new", config_text=ORIGINAL
)
DERIVED = replace(
    STAGED,
    receipt=receipt(
        derived={"config.json": Derived("tp3", CONFIG.digest, "sha256:x", 5260, 8)},
    ),
    present={**stats(SHARD), "config.json": Stat(5260, 8)},
    config_text=PADDED,
)
OTHER = OtherRevision(receipt("old"), stats(CONFIG, SHARD))


def actions(staging):
    return {step.file.path: step.action for step in staging.steps}


@pytest.mark.parametrize(
    ("survey", "config", "shard"),
    [
        (EMPTY, "fetch", "fetch"),
        (STAGED, "keep", "keep"),
        (DERIVED, "keep", "keep"),
        (replace(DERIVED, present=stats(SHARD)), "fetch", "keep"),
        (replace(DERIVED, present=stats(CONFIG, SHARD)), "fetch", "keep"),
        (replace(STAGED, present=stats(CONFIG)), "keep", "fetch"),
        (replace(STAGED, present=stats(CONFIG, SHARD, mtime=8)), "fetch", "fetch"),
        (replace(STAGED, present={}, others=(OTHER,)), "fetch", "link"),
        # config.json is small and may be edited: never linked.
        (replace(EMPTY, others=(OTHER,)), "fetch", "link"),
        (replace(EMPTY, others=(OtherRevision(receipt("old"), stats(CONFIG, SHARD, mtime=8)),)), "fetch", "fetch"),
        (replace(EMPTY, others=(OtherRevision(receipt("old"), {}),)), "fetch", "fetch"),
        (
            replace(EMPTY, journal={"shard": Entry("shard", 100_000, SHARD.digest, 7)}, staged=stats(SHARD)),
            "fetch",
            "staged",
        ),
        (
            replace(EMPTY, journal={"shard": Entry("shard", 100_000, SHARD.digest, 6)}, staged=stats(SHARD)),
            "fetch",
            "fetch",
        ),
        (
            replace(EMPTY, journal={"shard": Entry("shard", 100_000, "md5:other", 7)}, staged=stats(SHARD)),
            "fetch",
            "fetch",
        ),
        (replace(EMPTY, staged=stats(SHARD)), "fetch", "fetch"),
    ],
)
def test_what_happens_to_each_file(survey, config, shard):
    assert actions(decide(MANIFEST, survey)) == {"config.json": config, "shard": shard}


def test_a_link_names_where_the_equal_file_is():
    moved = OtherRevision(
        receipt("old", (replace(SHARD, path="sub/renamed"),)), stats(replace(SHARD, path="sub/renamed"))
    )
    (step,) = decide(MANIFEST, replace(EMPTY, others=(moved,))).of("link")
    assert step.source == "old/sub/renamed"


def test_a_file_without_a_checksum_is_never_linked():
    unchecked = replace(SHARD, digest="etag:s")
    other = OtherRevision(receipt("old", (unchecked,)), stats(unchecked))
    staging = decide(replace(MANIFEST, files=(unchecked,)), replace(EMPTY, others=(other,)))
    assert actions(staging) == {"shard": "fetch"}


OTHER_CONTENTS = replace(STAGED, receipt=receipt(files=(CONFIG, replace(SHARD, digest="md5:" + "6" * 32))))


@pytest.mark.parametrize(
    ("survey", "text"),
    [
        (OTHER_CONTENTS, "already staged with other contents (1 of 2 files differ: shard)"),
        (replace(EMPTY, revision_exists=True), "no receipt, no journal"),
        (replace(EMPTY, problem="receipts/new.json is not a receipt"), "is not a receipt"),
    ],
)
def test_what_stands_in_the_way(survey, text):
    staging = decide(MANIFEST, survey)
    assert text in "; ".join(staging.problems)
    (check,) = subject.state_checks(staging, "spark1")
    assert (check.ok, check.node) == (False, "spark1")
    assert text in check.found


def test_a_run_killed_before_its_receipt_is_resumed():
    journal = {file.path: Entry(file.path, file.size, file.digest, 7) for file in MANIFEST.files}
    survey = replace(EMPTY, revision_exists=True, journal=journal, staged=stats(CONFIG, SHARD))
    staging = decide(MANIFEST, survey)
    assert actions(staging) == {"config.json": "staged", "shard": "staged"}
    assert (staging.changed, staging.problems) == (True, ())


def test_the_diff_of_a_fresh_node_lists_every_file():
    plan = subject.plan_of(decide(MANIFEST, EMPTY), "/root/tiny/revisions/new")
    (diff,) = plan.diff()
    assert diff["before"] == ""
    lines = [line.split(maxsplit=3) for line in diff["after"].splitlines()]
    assert lines == [
        ["config.json", "5974", CONFIG.digest, "fetch"],
        ["shard", "100000", SHARD.digest, "fetch"],
    ]
    assert "2 files to fetch (106.0 kB)" in diff["after_header"]


def test_the_diff_says_what_is_wrong_with_a_file_and_repeats_the_others():
    survey = replace(STAGED, present={**stats(CONFIG), "shard": Stat(5, 7)})
    (diff,) = subject.plan_of(decide(MANIFEST, survey), "x").diff()
    before, after = diff["before"].splitlines(), diff["after"].splitlines()
    assert before[0] == after[0]
    assert before[1].endswith("5 bytes instead of 100000") and after[1].endswith("fetch")


def test_nothing_to_do_is_no_plan():
    staging = decide(MANIFEST, DERIVED)
    assert not subject.plan_of(staging, "x").changed
    assert subject.summary(staging)["keep"] == {"files": 2, "bytes": 105_974}


def test_the_cause_counts_each_kind():
    linked = decide(MANIFEST, replace(EMPTY, others=(OTHER,)))
    assert subject.plan_of(linked, "x").diff()[0]["after"].endswith(" link from old\n")
    assert subject.reason(linked) == "1 file to fetch (6.0 kB), 1 file to link (100.0 kB)"
