# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import publish
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.publish import Item, Local, Part, Publication, Remote
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.published import Digests

MIB = 1 << 20
A = Local("a", "/src/a", 5)
DIGESTS = Digests("a", 5, "1" * 64, "2" * 16, ("2" * 16,))


@pytest.mark.parametrize(
    ("size", "wanted", "expected"),
    [
        (0, 64 * MIB, 64 * MIB),
        (101_535_150_944, 64 * MIB, 64 * MIB),
        (5, 1, 16 * MIB),  # at least a chunk
        (5, 20 * MIB, 32 * MIB),  # whole chunks
        (10_000 * 16 * MIB, 16 * MIB, 16 * MIB),
        (10_000 * 16 * MIB + 1, 16 * MIB, 32 * MIB),  # no more than 10,000 parts
    ],
)
def test_part_size(size, wanted, expected):
    each = publish.part_size(size, wanted)
    assert each == expected
    assert len(publish.parts(size, each)) <= 10_000


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, [Part(1, 0, 0)]), (4, [Part(1, 0, 4)]), (9, [Part(1, 0, 4), Part(2, 4, 4), Part(3, 8, 1)])],
)
def test_parts(size, expected):
    assert publish.parts(size, 4) == expected


@pytest.mark.parametrize(
    ("remote", "was"),
    [
        (None, "absent"),
        (Remote(6, "2" * 16), "6 bytes"),
        (Remote(5), "no checksum"),
        (Remote(5, "2" * 16), None),
        (Remote(5, "", '"e"'), None),
    ],
)
def test_what_a_head_can_tell(remote, was):
    assert publish.obvious(A, remote) == was


@pytest.mark.parametrize(
    ("remote", "was"),
    [
        (Remote(5, "2" * 16, '"other"'), ""),
        (Remote(5, "3" * 16, '"e"'), "crc64nvme:" + "3" * 16),
        (Remote(5, "", '"e"'), ""),
        (Remote(5, "", '"f"'), 'ETag "f"'),
    ],
)
def test_what_only_the_bytes_can_tell(remote, was):
    assert publish.judged(A, remote, DIGESTS, "e") == Item(A, was, DIGESTS)


@pytest.mark.parametrize(
    ("listed", "numbers"),
    [
        ([(1, 4), (3, 1)], [1, 3]),
        ([], []),
        ([(1, 3)], []),  # cut otherwise
        ([(1, 4), (4, 4)], []),  # of a longer file
    ],
)
def test_usable_parts(listed, numbers):
    rows = [{"PartNumber": number, "Size": size} for number, size in listed]
    assert list(publish.usable_parts(rows, publish.parts(9, 4))) == numbers


def test_the_plan_is_a_table():
    items = (Item(A, "", DIGESTS), Item(Local("b", "/src/b", 7), "6 bytes"), Item(Local("c", "/src/c", 1), "absent"))
    change = publish.plan_of(Publication(items, "absent"), "s3://models/x").changes[0]
    assert change.what == "s3://models/x"
    assert change.why == "2 files to upload (8 B), 1 file equal, manifest absent"
    assert [line.split() for line in change.before.splitlines()] == [["a", "5", "published"], ["b", "7", "6", "bytes"]]
    assert [line.split()[-1] for line in change.after.splitlines()] == ["published", "upload", "upload"]


def test_nothing_to_do_is_an_empty_plan():
    assert not publish.plan_of(Publication((Item(A, "", DIGESTS),)), "s3://models/x").changed
