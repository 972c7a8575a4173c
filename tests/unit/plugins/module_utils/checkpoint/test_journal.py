# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import journal
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.journal import Journal, parse
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.parts import Done, Part
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry

FILE = File("a", 100, '"e"', "md5:0")
ONE, TWO = Done(Part(0, 50), 0xABC), Done(Part(50, 50), 0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "journal"


def write(path, boot, *actions):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "boot_id", lambda: boot)
        with contextlib.closing(Journal(path)) as written:
            for name, *arguments in actions:
                getattr(written, name)(*arguments)


BEGIN = ("begin", FILE, "crc64nvme")


@pytest.mark.parametrize(
    ("boot", "trusted", "doubtful"),
    [("first", (ONE,), (TWO,)), ("second", (TWO,), (ONE,)), ("third", (), (ONE, TWO)), ("", (), (ONE, TWO))],
)
def test_parts_of_another_boot_are_doubtful(path, boot, trusted, doubtful):
    write(path, "first", BEGIN, ("part", "a", ONE))
    write(path, "second", ("part", "a", TWO))
    begun = parse(path.read_text(), boot).begun["a"]
    assert (begun.trusted, begun.doubtful) == (trusted, doubtful)


PROVED = ("proved", "a", Part(0, 100))
OTHER = Done(ONE.part, 0xDEF)


@pytest.mark.parametrize(
    ("then", "proved"),
    [
        ((), (Part(0, 100),)),
        ((("part", "a", ONE),), (Part(0, 100),)),  # read back, and found as it was
        ((("part", "a", OTHER),), (Part(50, 50),)),
        ((BEGIN,), ()),
        ((("part", "a", OTHER), ("proved", "a", ONE.part)), (Part(50, 50), Part(0, 50))),
    ],
)
def test_what_was_proved_is_so_until_other_bytes_come(path, then, proved):
    write(path, "x", BEGIN, ("part", "a", ONE), ("part", "a", TWO), PROVED, *then)
    assert parse(path.read_text(), "x").begun["a"].proved == proved


def test_a_finished_file_is_no_begun_one(path):
    entry = Entry("a", 100, "md5:0", 5)
    write(path, "x", BEGIN, ("part", "a", ONE), ("file", entry))
    record = parse(path.read_text(), "x")
    assert record.files == {"a": entry} and record.begun == {}


def test_a_file_that_begins_again_forgets(path):
    write(path, "x", BEGIN, ("part", "a", ONE), ("file", Entry("a", 100, "md5:0", 5)), BEGIN)
    record = parse(path.read_text(), "x")
    assert record.files == {} and record.begun["a"].trusted == ()


STAYS = ("stays", "a", "/d", "what was said")


@pytest.mark.parametrize(
    ("lines", "staying", "begun"),
    [
        ((STAYS,), {"a": journal.Staying("/d", "what was said")}, []),
        ((BEGIN, ("part", "a", ONE), STAYS), {"a": journal.Staying("/d", "what was said")}, []),
        ((STAYS, ("stays", "a", "/e", "more")), {"a": journal.Staying("/e", "more")}, []),
        ((STAYS, BEGIN), {}, ["a"]),
    ],
)
def test_a_file_that_stays_does_so_until_it_begins(path, lines, staying, begun):
    write(path, "first", *lines)
    record = parse(path.read_text(), "second")
    assert record.staying == staying and list(record.begun) == begun


@pytest.mark.parametrize("torn", ["{", '{"line": "part", "path": "a"', '{"line": "part", "path": "b"}', "[]", "é"])
def test_a_torn_line_says_nothing_and_does_not_swallow_the_next(path, torn):
    write(path, "x", BEGIN)
    with path.open("a", encoding="utf-8") as handle:
        handle.write(torn)
    write(path, "x", ("part", "a", ONE))
    assert parse(path.read_text(), "x").begun["a"].trusted == (ONE,)


@pytest.mark.parametrize(
    ("file", "check", "fits"),
    [
        (FILE, "crc64nvme", True),
        (File("a", 100, '"another etag"', "md5:0"), "crc64nvme", True),
        (File("a", 101, '"e"', "md5:0"), "crc64nvme", False),
        (File("a", 100, '"e"', "md5:1"), "crc64nvme", False),
        (FILE, "crc32", False),
    ],
)
def test_whose_parts_they_are(path, file, check, fits):
    write(path, "x", BEGIN)
    assert parse(path.read_text(), "x").begun["a"].fits(file, check) is fits


def test_an_empty_journal():
    assert parse("", "x").files == {}


def test_no_address_is_in_it(path):
    write(path, "x", BEGIN, ("part", "a", ONE), ("file", Entry("a", 100, "md5:0", 5)))
    assert "http" not in path.read_text()


def test_the_boot_id_is_that_of_the_kernel():
    assert len(journal.boot_id()) == 36
