# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import replacing
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.chunks import Base, best, equal, outside
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk, OtherRevision, Survey, decide
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.inplace import Replacement, in_place
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK, File, Manifest
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.parts import Done, Part
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt, ReceiptError, Stat
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_state import Held


def digest(letter):
    return "md5:" + letter * 32


def manifest(**files):
    """Files by path: size and the letter that stands for their bytes."""
    return Manifest(
        "tiny", "new", tuple(File(path, size, '"e"', digest(letter)) for path, (size, letter) in files.items())
    )


def other(name, links=1, first=1, **files):
    entries = tuple(Entry(path, size, digest(letter), 7) for path, (size, letter) in files.items())
    found = {
        path: Stat(size, 7, links, size, inode=first + index) for index, (path, (size, _l)) in enumerate(files.items())
    }
    return OtherRevision(Receipt("tiny", name, "2026", entries), found)


def plan(wanted, *others, used=600, percent=100, also_needed=0, **more):
    survey = Survey(Disk(1000, 1000 - used), others=others, current="old", **more)
    return in_place(decide(wanted, survey), survey, percent, also_needed)


def survey(*others):
    return Survey(Disk(1 << 30, 0), others=others, current="old")


def words(*letters):
    """Chunk checksums."""
    return tuple(f"{ord(letter):016x}" for letter in letters)


OLD = other("old", a=(100, "1"), b=(300, "2"), same=(200, "3"))
NEW = manifest(a=(150, "4"), b=(250, "5"), same=(200, "3"))


def test_files_go_one_by_one_the_ones_that_shrink_first():
    made = plan(NEW, OLD)
    assert made.steps == (Replacement("b", 300, 250), Replacement("a", 100, 150))
    assert (made.old, made.peak, made.after, made.ok, made.dropped) == ("old", 600, 600, True, ())
    assert made.to_dict()["files"] == ["b", "a"] and made.to_dict()["frees"] == 400
    assert "2 files of revision old are replaced one by one (b, a)" in made.text()
    assert "manifests/old.json" in made.text()


@pytest.mark.parametrize(("rows", "after"), [(0, 600), (50, 650), (700, 1300)])
def test_what_is_freed_is_what_the_old_files_gave_back_whatever_rows_come(rows, after):
    made = plan(NEW, OLD, also_needed=rows)
    assert (made.to_dict()["frees"], made.after) == (400, after)


@pytest.mark.parametrize(
    ("letter", "chunks", "spans", "carried"),
    [
        ("1", ("x", "x", "x"), ((0, 10),), True),  # the same shard
        ("2", ("a", "x", "c"), ((0, 10), (2 * CHUNK, 3 * CHUNK)), True),  # its rows are in chunks that did not change
        ("2", ("a", "x", "c"), ((0, CHUNK + 1),), False),
        ("2", (), ((0, 10),), False),
    ],
)
def test_a_slice_whose_rows_did_not_change_moves_on(letter, chunks, spans, carried):
    size, old = 3 * CHUNK, other("old", slice=(3 * CHUNK, "1"))
    held = Held("slice", size, digest("1"), "sha256:00", spans)
    old = replace(
        old, receipt=replace(old.receipt, files=()), slices={"slice": held}, chunks={"slice": words("a", "b", "c")}
    )
    wanted = Manifest("tiny", "new", (File("slice", size, '"e"', digest(letter), chunks=words(*chunks)),))
    made = in_place(decide(wanted, survey(old), ["slice"]), survey(old), 100)
    assert made.carried == (("slice",) if carried else ())


def test_a_slice_of_an_object_that_has_only_an_etag_does_not_move_on():
    """As a whole file: an equal ETag is that of the same object within a revision alone."""
    old = other("old", slice=(CHUNK, "1"))
    held = Held("slice", CHUNK, "etag:e", "sha256:00", ((0, 10),))
    old = replace(old, receipt=replace(old.receipt, files=()), slices={"slice": held})
    wanted = Manifest("tiny", "new", (File("slice", CHUNK, '"e"', "etag:e"),))
    assert in_place(decide(wanted, survey(old), ["slice"]), survey(old), 100).carried == ()


def test_the_peak_is_that_of_the_worst_moment():
    made = plan(manifest(a=(900, "4"), same=(200, "3")), OLD)
    # b is not in the new revision and goes first: 600 - 300, then a: - 100 + 900.
    assert [step.path for step in made.steps] == ["b", "a"]
    assert (made.peak, made.ok) == (1100, False)
    assert not plan(NEW, OLD, percent=59).ok and plan(NEW, OLD, percent=60).ok


@pytest.mark.parametrize(
    ("more", "wanted"),
    [({"receipt": Receipt("tiny", "new", "2026", ())}, NEW), ({}, replace(NEW, revision="old"))],
)
def test_nothing_is_replaced_by_what_is_there(more, wanted):
    others = () if wanted.revision == "old" else (OLD,)
    assert plan(wanted, *others, **more) is None


def test_a_file_with_a_name_elsewhere_gives_nothing_back():
    made = plan(NEW, other("old", links=2, a=(100, "1"), b=(300, "2"), same=(200, "3")))
    assert [(step.path, step.frees) for step in made.steps] == [("a", 0), ("b", 0)]


def test_other_revisions_go_first_where_they_keep_the_room():
    before = OtherRevision(replace(OLD.receipt, revision="before"), {"b": replace(OLD.found["b"], links=2)})
    old = OtherRevision(OLD.receipt, {**OLD.found, "b": replace(OLD.found["b"], links=2)})
    made = plan(NEW, old, before, percent=65)
    assert made.dropped == ("before",) and made.ok and made.peak == 600
    assert made.text().startswith("revision before is deleted first; ")
    assert plan(NEW, old, before, percent=90).dropped == ()


def test_what_the_dropped_revisions_hold_alone_is_room_at_once_but_not_what_is_linked():
    new = manifest(a=(150, "4"), x=(50, "9"), y=(60, "8"))
    before = other("before", first=20, x=(50, "9"), y=(60, "7"))
    made = plan(new, OLD, before, used=970, percent=80)
    assert made.dropped == ("before",)
    assert {step.path for step in made.steps} == {"a", "b", "same", "y"}
    # 970 - 60 (old y), - 300 - 200 - 100 + 150, + 60
    assert made.after == 970 - 60 - 600 + 210
    assert made.to_dict()["frees"] == 60 + 600


def test_an_interrupted_replacement_goes_on_with_what_is_left():
    left = OtherRevision(OLD.receipt, {"a": OLD.found["a"], "same": replace(OLD.found["same"], links=2)})
    staged = {"b.partial": Stat(250, 1, 1, 250, inode=9)}
    made = plan(NEW, left, staged=staged, replacing=replacing.Replacing("new", OLD.receipt))
    assert made.steps == (Replacement("b", 0, 0), Replacement("a", 100, 150))


def test_a_file_with_equal_chunks_becomes_the_partial_one():
    chunks = ("0" * 16, "1" * 16)
    wanted = Manifest("tiny", "new", (File("a", 2 * CHUNK, '"e"', digest("4"), chunks=chunks),))
    old = other("old", a=(2 * CHUNK, "1"))
    made = plan(wanted, replace(old, chunks={"a": ("0" * 16, "f" * 16)}))
    assert made.steps == (Replacement("a", needs=0, moves=True),) and made.replaced == made.steps


def test_the_record_is_read_back():
    record = replacing.Replacing("new", OLD.receipt)
    assert replacing.parse(replacing.render(record), "x") == record and record.old == "old"
    assert replacing.parse(None, "x") is None
    for torn in ("{", "[]", '{"new": "x", "receipt": {}}'):
        with pytest.raises(ReceiptError, match=r"/x/replacing.json is not a"):
            replacing.parse(torn, "/x/replacing.json")


# --- chunks ------------------------------------------------------------------------------------------------------------

FILE = File("f", 2 * CHUNK + 10, '"e"', digest("1"), chunks=("a" * 16, "b" * 16, "c" * 16))


@pytest.mark.parametrize(
    ("size", "chunks", "indexes"),
    [
        (FILE.size, FILE.chunks, [0, 1, 2]),
        (FILE.size, ("a" * 16, "0" * 16, "c" * 16), [0, 2]),
        (3 * CHUNK, FILE.chunks, [0, 1]),  # the last chunk has another length
        (CHUNK, ("a" * 16,), [0]),
        (FILE.size, (), []),
    ],
)
def test_chunks_are_equal_at_the_same_place_and_length(size, chunks, indexes):
    assert [done.part.offset // CHUNK for done in equal(FILE, size, chunks)] == indexes


def test_the_base_with_most_in_common_wins_and_the_first_of_equals():
    few, many = ("r1/f", FILE.size, ("a" * 16,)), ("r2/f", FILE.size, FILE.chunks)
    assert best(FILE, [few, many, ("r3/f", FILE.size, FILE.chunks)]).source == "r2/f"
    assert best(FILE, [("r1/f", FILE.size, ("0" * 16,))]) == Base() == best(FILE, [])
    assert best(FILE, [many]).bytes == FILE.size


def test_parts_that_are_there_are_not_copied_again():
    parts = equal(FILE, FILE.size, FILE.chunks)
    there = [Done(Part(CHUNK - 4096, 8192), 1)]
    assert outside(parts, there) == (parts[2],)
    assert outside(parts, []) == parts
