# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import info
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk, OtherRevision, Survey
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Derived, Entry, Receipt, Stat
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.tp_config import derived_text

ORIGINAL = (Path(__file__).parents[3] / "fixtures/checkpoint/config-exl3.json").read_text(encoding="utf-8")
PADDED = derived_text(ORIGINAL, 3)
DIGEST = "sha256:" + hashlib.sha256(PADDED.encode()).hexdigest()
RECEIPT = Receipt(
    "tiny",
    "r2",
    "2026-11-29T22:00:00Z",
    (Entry("config.json", 5974, "md5:c", 7), Entry("shard", 100, "md5:5", 7)),
    {"config.json": Derived("tp3", "md5:c", DIGEST, 5260, 8)},
)
GOOD = Survey(
    Disk(1000, 500),
    receipt=RECEIPT,
    revision_exists=True,
    present={"config.json": Stat(5260, 8), "shard": Stat(100, 7)},
    current="r2",
    config_text=PADDED,
)
REQUEST = info.Request("spark1", "tiny", looked="r2")


def by_id(survey, request=REQUEST):
    return {check.id: check for check in info.checks(request, survey)}


def test_everything_is_well():
    checks = by_id(GOOD)
    assert list(checks) == [f"checkpoint.{part}" for part in ("current", "files", "extra", "config", "disk")]
    assert all(check.ok and check.node == "spark1" for check in checks.values())
    assert checks["checkpoint.config"].found == "72 heads / 9 groups for 64 / 8 real ones"
    assert checks["checkpoint.files"].found == "2 files, 6.1 kB, sizes and times as verified"


@pytest.mark.parametrize(
    ("survey", "expected", "ok", "text"),
    [
        (GOOD, "", True, "revision r2"),
        (GOOD, "r2", True, "revision r2"),
        (GOOD, "r3", False, "revision r2"),
        (replace(GOOD, current=""), "", False, "no revision is active"),
        (replace(GOOD, receipt=None), "", False, "without a receipt"),
        (replace(GOOD, receipt=None, problem="broken.json"), "", False, "broken.json"),
    ],
)
def test_current(survey, expected, ok, text):
    check = by_id(survey, replace(REQUEST, expected=expected))["checkpoint.current"]
    assert check.ok is ok
    assert text in check.found


@pytest.mark.parametrize(
    ("present", "damaged", "texts"),
    [
        ({"config.json": Stat(5260, 8)}, {}, ["1 file wrong", "shard: missing"]),
        (
            {"config.json": Stat(1, 8), "shard": Stat(100, 9)},
            {},
            ["2 files wrong", "1 bytes instead of 5260", "modified"],
        ),
        (GOOD.present, {"shard": "digest md5:6 instead of md5:5"}, ["1 file wrong", "shard: digest md5:6"]),
    ],
)
def test_wrong_files_are_named(present, damaged, texts):
    check = by_id(replace(GOOD, present=present), replace(REQUEST, damaged=damaged))["checkpoint.files"]
    assert not check.ok
    assert all(text in check.found for text in texts)


def test_foreign_files_are_a_warning():
    extra = {f"cache{number}": Stat(1, 1) for number in range(7)}
    check = by_id(replace(GOOD, present={**GOOD.present, **extra}))["checkpoint.extra"]
    assert (check.ok, check.severity) == (False, "warning")
    assert "cache0" in check.found and "and 2 more" in check.found


PLAIN = replace(RECEIPT, derived={})


@pytest.mark.parametrize(
    ("receipt", "text", "ok", "found"),
    [
        (PLAIN, ORIGINAL, True, "64 heads / 8 groups"),
        (PLAIN, '{"model_type": "llama"}', True, "no text_config"),
        (PLAIN, "{", False, "property name"),
        (RECEIPT, ORIGINAL, False, "64 heads / 8 groups"),
        (RECEIPT, PADDED + "\n", False, "72 heads / 9 groups"),
        (RECEIPT, '{"model_type": "llama"}', False, "no text_config"),
        (replace(RECEIPT, files=RECEIPT.files[1:], derived={}), None, True, "no config.json"),
    ],
)
def test_config(receipt, text, ok, found):
    check = by_id(replace(GOOD, receipt=receipt, config_text=text))["checkpoint.config"]
    assert check.ok is ok
    assert found in check.found


@pytest.mark.parametrize(
    ("receipt", "text", "tp", "ok", "expected"),
    [
        (RECEIPT, PADDED, None, True, "as edited (tp3)"),
        (RECEIPT, PADDED, 3, True, "fitted to 3 ranks"),
        (RECEIPT, PADDED, 4, False, "fitted to 4 ranks"),
        (RECEIPT, PADDED, 0, False, "as staged"),
        (PLAIN, ORIGINAL, None, True, "as staged"),
        (PLAIN, ORIGINAL, 0, True, "as staged"),
        (PLAIN, ORIGINAL, 4, True, "fitted to 4 ranks"),
        (PLAIN, ORIGINAL, 3, False, "fitted to 3 ranks"),
        (PLAIN, PADDED.replace("72", "64"), 3, False, "fitted to 3 ranks"),
        (PLAIN, '{"model_type": "llama"}', 3, False, "fitted to 3 ranks"),
        (PLAIN, '{"model_type": "llama"}', 0, True, "as staged"),
        (PLAIN, PADDED.replace("virtual_heads_from", "other"), 3, False, "fitted to 3 ranks"),
        pytest.param(PLAIN, "[" * 100_000, 0, False, "as staged", id="deep"),
    ],
)
def test_config_for_so_many_ranks(receipt, text, tp, ok, expected):
    found = by_id(replace(GOOD, receipt=receipt, config_text=text), replace(REQUEST, tp=tp))["checkpoint.config"]
    assert (found.ok, found.expected) == (ok, expected)


def test_a_disk_above_the_ceiling_is_a_warning_that_names_what_could_go():
    other = OtherRevision(Receipt("tiny", "r1", "2026-11-01T00:00:00Z", ()), {"shard": Stat(300, 7, 1, 300)})
    check = by_id(replace(GOOD, disk=Disk(1000, 149), others=(other,)))["checkpoint.disk"]
    assert (check.ok, check.severity, check.cure) == (False, "warning", "delete revision r1 (300 B)")
    assert by_id(replace(GOOD, disk=Disk(1000, 150)))["checkpoint.disk"].ok


def test_files_without_a_checksum_are_said_to_be_left_out():
    receipt = replace(RECEIPT, files=(RECEIPT.files[0], Entry("shard", 100, "etag:x-2", 7)))
    check = by_id(replace(GOOD, receipt=receipt), replace(REQUEST, read_again=True))["checkpoint.files"]
    assert check.ok and check.found.endswith("digests read again (1 file without a checksum left out)")


def test_the_state_lists_revisions_oldest_first():
    old = Receipt("tiny", "r1", "2026-11-01T00:00:00Z", (Entry("a", 1, "md5:0", 1), Entry("b", 9, "md5:0", 1)))
    other = OtherRevision(old, {"b": Stat(9, 1, 2, 4096), "c": Stat(5, 1, 1, 8192)})
    state = info.state(Layout("/root", "tiny"), replace(GOOD, others=(other,), leftovers={"r3": 5}), "r2")
    assert [(item["revision"], item["active"], item["derived"]) for item in state["revisions"]] == [
        ("r1", False, ""),
        ("r2", True, "tp3"),
    ]
    assert state["revisions"][0] == {
        "revision": "r1",
        "active": False,
        "created": "2026-11-01T00:00:00Z",
        "receipt": "/root/tiny/receipts/r1.json",
        "files": 2,
        "bytes": 10,
        "allocated": 12288,
        "frees": 8192,
        "complete": False,
        "wrong": {"a": "missing"},
        "derived": "",
    }
    assert state["path"] == "/root/tiny" and state["current"] == "r2" and state["unfinished"] == {"r3": 5}
    assert state["disk"] == {"size": 1000, "used": 500, "available": 500, "reserved": 0}


def test_a_deletion_that_did_not_end_is_no_staging_to_go_on_with():
    (check,) = [check for check in info.checks(REQUEST, replace(GOOD, leftovers={".pruned-r1": 7})) if not check.ok]
    assert (check.id, check.severity, check.found) == (
        "checkpoint.unfinished",
        "warning",
        "half-deleted revision r1: 7 B",
    )
    assert "prune.yml" in check.cure and "stage" not in check.cure.replace("restage.yml", "")


@pytest.mark.parametrize(
    ("current", "ok", "found"),
    [
        ({"n0": "a", "n1": "a"}, True, "revision a on n0, n1"),
        ({"n1": "a"}, True, "revision a on n1"),
        ({"n0": "a", "n1": "b", "n2": "a"}, False, "revision a on n0, n2; revision b on n1"),
        ({"n0": "", "n1": "a"}, True, "revision a on n1"),
        ({"n0": "", "n1": "a", "n2": "b"}, False, "revision a on n1; revision b on n2"),
    ],
)
def test_whether_nodes_have_the_same_revision_active(current, ok, found):
    check = info.same_revision(current)
    assert (check.id, check.severity) == ("checkpoint.same_revision", "error")
    assert (check.node, check.ok, check.found) == (next(iter(current)), ok, found)
    assert "restage.yml" in check.cure and "checkpoint_rollback_revision" in check.cure


@pytest.mark.parametrize("current", [{}, {"n0": "", "n1": ""}])
def test_nodes_without_an_active_revision_are_not_compared(current):
    assert info.same_revision(current) is None


def test_partial_files_of_other_revisions_are_named():
    checks = [
        check for check in info.checks(REQUEST, replace(GOOD, leftovers={"r9": 5000000, "r8": 1})) if not check.ok
    ]
    assert [(check.id, check.severity, check.found) for check in checks] == [
        ("checkpoint.unfinished", "warning", "unfinished staging of r8: 1 B"),
        ("checkpoint.unfinished", "warning", "unfinished staging of r9: 5.0 MB"),
    ]
    assert "delete staging/r9" in checks[1].cure
