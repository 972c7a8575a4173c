from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.before import absent_before, parse, remember, render, returning
from ansible_collections.gb10.ring.plugins.module_utils.plan import Change

OURS = "# Managed by gb10.ring (role x); changes are overwritten.\nx\n"


@pytest.mark.parametrize(
    ("known", "before", "kept"),
    [
        ({}, "", {"/f": None}),
        ({}, "theirs\n", {"/f": "theirs\n"}),
        ({}, OURS, {"/f": None}),
        ({"/f": "first\n"}, "second\n", {"/f": "first\n"}),
        ({"/f": None}, "second\n", {"/f": None}),
    ],
)
def test_the_first_text_of_a_file_that_is_not_ours_is_kept(known, before, kept):
    assert remember(known, [Change("/f", before, OURS)]) == kept


@pytest.mark.parametrize(
    ("known", "now", "back"),
    [
        (None, OURS, [(OURS, "")]),
        ("theirs\n", OURS, [(OURS, "theirs\n")]),
        ("theirs\n", "", [("", "theirs\n")]),
        ("theirs\n", "theirs\n", []),
        (None, "", []),
    ],
)
def test_files_return_to_what_they_were(known, now, back):
    changes, notes = returning({"/f": known}, {"/f": now})
    assert [(change.before, change.after) for change in changes] == back
    assert notes == []


def test_a_file_that_somebody_else_wrote_since_stays_and_is_named():
    changes, notes = returning({"/f": None}, {"/f": "a person's\n"})
    assert changes == []
    assert notes == ["/f is no longer the file that gb10.ring wrote; it stays as it is"]


def test_a_record_is_read_back():
    assert parse(render({"files": {"/f": None}}), "a_module") == {"files": {"/f": None}}
    assert parse(None, "a_module") == parse(" \n", "a_module") == {}


@pytest.mark.parametrize("text", ["{", "[]", "7"])
def test_a_record_of_somebody_else_is_an_error(text):
    with pytest.raises(ValueError, match=r"that a_module writes.*move it away"):
        parse(text, "a_module")


def test_without_a_record_only_files_that_are_ours_go():
    assert absent_before({"/a": OURS, "/b": "a person's\n", "/c": ""}) == {"/a": None}
