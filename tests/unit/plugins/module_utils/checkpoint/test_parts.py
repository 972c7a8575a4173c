# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import parts
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK, File
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.parts import Done, Part

BODY = random.Random(5).randbytes(2 * CHUNK + 77)
CHUNKS = tuple(f"{checksums.crc64nvme(BODY[at : at + CHUNK]):016x}" for at in range(0, len(BODY), CHUNK))
FILE = File("a", len(BODY), "", "md5:" + "0" * 32, chunks=CHUNKS)


def done(offset, length, check=0):
    return Done(Part(offset, length), check)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, []),
        (1, [Part(0, 1)]),
        (8, [Part(0, 8)]),
        (9, [Part(0, 8), Part(8, 1)]),
        (16, [Part(0, 8), Part(8, 8)]),
    ],
)
def test_a_file_is_cut(size, expected):
    assert parts.cut(size, 8) == expected


@pytest.mark.parametrize(
    ("have", "expected"),
    [
        ([], [Part(0, 8), Part(8, 8), Part(16, 4)]),
        ([done(8, 8)], [Part(0, 8), Part(16, 4)]),
        ([done(0, 20)], []),
        ([done(16, 4), done(0, 4)], [Part(4, 8), Part(12, 4)]),
        ([done(0, 2), done(2, 2)], [Part(4, 8), Part(12, 8)]),
    ],
)
def test_what_is_missing(have, expected):
    assert parts.missing(20, have, 8) == expected


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ([done(4096, 4096), done(0, 4096)], [done(0, 4096), done(4096, 4096)]),
        ([done(8192, 100)], [done(8192, 100)]),
        ([done(8192, 101)], []),
        ([done(8192, 99)], []),
        ([done(100, 4096)], []),
        ([done(0, 0)], []),
        ([done(0, 8192), done(4096, 4096)], [done(0, 8192)]),
        ([done(0, 4096, 1), done(0, 4096, 2)], [done(0, 4096, 1)]),
    ],
    ids=["in order", "tail", "beyond the end", "before the end", "unaligned", "empty", "overlap", "twice"],
)
def test_only_parts_that_fit_are_used(found, kept):
    assert parts.usable(8292, found) == kept


def test_the_order():
    sizes = {"a": 100, "b": 5, "c": 300, "d": 10, "e": 0, "f": 200}
    files = [File(path, size, "", "md5:x") for path, size in sizes.items()]
    assert [file.path for file in parts.in_order(files, 10)] == ["e", "b", "d", "c", "f", "a"]


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, CHUNK), (CHUNK, CHUNK), (0, 2 * CHUNK), (CHUNK, CHUNK + 77), (2 * CHUNK, 77), (0, len(BODY))],
)
def test_the_checksum_of_a_part_from_chunks(offset, length):
    assert parts.expected_check(FILE, Part(offset, length)) == checksums.crc64nvme(BODY[offset : offset + length])


@pytest.mark.parametrize(("offset", "length"), [(1, CHUNK), (0, CHUNK - 1), (4096, CHUNK), (2 * CHUNK, 76)])
def test_chunks_say_nothing_of_parts_that_do_not_fit_them(offset, length):
    assert parts.expected_check(FILE, Part(offset, length)) is None


def test_without_chunks_nothing_is_expected():
    assert parts.expected_check(File("a", CHUNK, "", "md5:x"), Part(0, CHUNK)) is None


def test_the_checksum_of_a_file_from_its_parts():
    pieces = parts.cut(len(BODY), 5_000_000)
    checks = {part.offset: Done(part, checksums.crc64nvme(BODY[part.offset : part.end])) for part in reversed(pieces)}
    assert parts.whole_check(checks) == checksums.crc64nvme(BODY)
