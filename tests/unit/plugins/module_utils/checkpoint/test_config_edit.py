# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import config_edit
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.config_edit import (
    Edit,
    Found,
    Record,
    decide,
    parse,
    render,
    sha256,
    standing_in,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Derived, Entry, Receipt, Stat

FIXTURES = Path(__file__).parents[3] / "fixtures/checkpoint"
ORIGINAL = (FIXTURES / "config-exl3.json").read_bytes().decode()
PADDED = (FIXTURES / "config-exl3-tp3.json").read_bytes().decode()
OFFICIAL = (FIXTURES / "config-official.json").read_bytes().decode()
RECORD = Record(sha256(ORIGINAL), {sha256(PADDED): "tp3"})
STAGED = Found(ORIGINAL, staged=True)
EDITED = Found(PADDED, staged=False, record=RECORD, kept=ORIGINAL)


@pytest.mark.parametrize(
    ("found", "tp", "text", "record"),
    [
        (STAGED, 3, PADDED, RECORD),
        (EDITED, 0, ORIGINAL, None),
        (EDITED, 4, ORIGINAL, None),
        (EDITED, 1, ORIGINAL, None),
        # Staged again after the edit, and after an edit for another number: the record is of what is not there any more.
        (Found(ORIGINAL, staged=True, record=RECORD, kept=ORIGINAL), 3, PADDED, RECORD),
        # Another revision brought another original; the record still tells of the old one.
        (
            Found(OFFICIAL, staged=True, record=RECORD, kept=ORIGINAL),
            3,
            config_edit.derived_text(OFFICIAL, 3),
            Record(sha256(OFFICIAL), {sha256(config_edit.derived_text(OFFICIAL, 3)): "tp3"}),
        ),
    ],
)
def test_what_is_written(found, tp, text, record):
    edit = decide(found, tp, "/r/config.json")
    assert (edit.text, edit.record, edit.problem) == (text, record, "")
    (diff,) = edit.plan.diff()
    assert diff["before"].rstrip("\n") == found.text.rstrip("\n") and diff["after"].rstrip("\n") == text.rstrip("\n")
    assert edit.record is None or sha256(edit.original) == edit.record.original


@pytest.mark.parametrize(
    "text", ["[" * 100_000, ORIGINAL.rstrip()[:-1] + ', "x": ' + "[" * 600 + "]" * 600 + "}"], ids=["text", "copy"]
)
def test_a_config_that_is_nested_too_deeply_is_a_problem(text):
    assert (
        "/r/config.json cannot be fitted to 3 ranks: config.json is nested"
        in decide(Found(text, staged=True), 3, "/r/config.json").problem
    )


def test_the_published_edit_byte_for_byte():
    assert len(PADDED) == 5260
    assert sha256(decide(STAGED, 3, "x").text) == "713a52fa39ea0b661dd71f4b737db3507564fe4039ff5d4131aa00a9b5832ecf"


@pytest.mark.parametrize(
    ("found", "tp", "rule"),
    [
        (STAGED, 0, ""),
        (STAGED, 1, ""),
        (STAGED, 2, ""),
        (STAGED, 8, ""),
        (EDITED, 3, "tp3"),
        (Found(PADDED, staged=True), 3, ""),  # a checkpoint that was published with the edit in it
        (Found(None, staged=False), 0, ""),  # a checkpoint without one
        (Found("no JSON", staged=True), 0, ""),
    ],
)
def test_nothing_to_do(found, tp, rule):
    edit = decide(found, tp, "/r/config.json")
    assert (edit.plan.changed, edit.problem, edit.rule) == (False, "", rule)


def test_another_number_of_ranks_starts_from_the_original():
    six = decide(EDITED, 6, "x")
    assert six.text == decide(STAGED, 6, "x").text
    assert json.loads(six.text)["text_config"]["o_groups"] == 12
    # Both are known until the original is back: a crash before the file is replaced leaves the other one.
    assert six.record == Record(sha256(ORIGINAL), {sha256(PADDED): "tp3", sha256(six.text): "tp6"})


@pytest.mark.parametrize(
    ("found", "tp", "says"),
    [
        (Found(PADDED, staged=False), 3, "neither the file that was staged nor an edit of ours"),
        (Found(ORIGINAL, staged=False), 3, "neither the file that was staged nor an edit of ours"),
        (Found(PADDED + "\n", staged=False, record=RECORD, kept=ORIGINAL), 3, "neither the file that was staged"),
        (Found(PADDED + "\n", staged=False, record=RECORD, kept=ORIGINAL), 0, "neither the file that was staged"),
        (Found(PADDED, staged=False, record=RECORD, kept=None), 0, f"original (SHA-256 {RECORD.original}) is gone"),
        (Found(PADDED, staged=False, record=RECORD, kept=OFFICIAL), 4, "is gone. Delete it and run the playbook"),
        (Found(None, staged=False), 3, "is missing, so it cannot be fitted to 3 ranks"),
        (Found("{}", staged=True), 3, "cannot be fitted to 3 ranks: config.json has no text_config"),
    ],
)
def test_refusals(found, tp, says):
    edit = decide(found, tp, "/r/config.json")
    assert says in edit.problem and edit.problem.startswith("/r/config.json ")
    assert edit == Edit(problem=edit.problem)


# --- what the receipt makes of it -------------------------------------------------------------------------------------

RECEIPT = Receipt("tiny", "r1", "2026-11-29T22:00:00Z", (Entry("config.json", 5974, "md5:c", 7), Entry("a", 1, "x", 7)))


def test_the_edit_stands_in_for_the_staged_file():
    found = standing_in(RECEIPT, RECORD, PADDED, Stat(5260, 99))
    assert found == {"config.json": Derived("tp3", "md5:c", f"sha256:{sha256(PADDED)}", 5260, 99)}


@pytest.mark.parametrize(
    ("record", "text", "stat"),
    [
        (None, PADDED, Stat(5260, 99)),
        (RECORD, ORIGINAL, Stat(5974, 7)),
        (RECORD, PADDED + " ", Stat(5261, 99)),
        (RECORD, None, None),
    ],
)
def test_nothing_else_does(record, text, stat):
    assert standing_in(RECEIPT, record, text, stat) == {}
    assert standing_in(Receipt("tiny", "r1", "c", ()), RECORD, PADDED, Stat(5260, 99)) == {}


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "5", '{"original": "0"}', '{"original": "0", "edits": []}', "[" * 100000]
)
def test_a_record_that_cannot_be_read_is_none(text):
    assert parse(text) is None


def test_a_record_survives_the_disk():
    assert parse(render(RECORD)) == RECORD
