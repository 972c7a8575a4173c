# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import random

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import spans


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ()),
        ([(3, 3), (9, 4)], ()),
        ([(5, 7), (0, 2)], ((0, 2), (5, 7))),
        ([(0, 2), (2, 4)], ((0, 4),)),
        ([(0, 9), (2, 4), (8, 12)], ((0, 12),)),
    ],
)
def test_merged(given, expected):
    assert spans.merged(given) == expected


@pytest.mark.parametrize(
    ("given", "taken", "left"),
    [
        ([(0, 10)], [], ((0, 10),)),
        ([(0, 10)], [(0, 10)], ()),
        ([(0, 10)], [(3, 5)], ((0, 3), (5, 10))),
        ([(0, 10)], [(3, 5), (7, 20)], ((0, 3), (5, 7))),
        ([(4, 6), (8, 9)], [(0, 5)], ((5, 6), (8, 9))),
        ([(4, 6)], [(6, 9)], ((4, 6),)),
    ],
)
def test_without(given, taken, left):
    assert spans.without(given, taken) == left


@pytest.mark.parametrize(
    ("given", "bytes_", "allocated"),
    [
        ([], 0, 0),
        ([(5, 5)], 0, 0),
        ([(1, 2)], 1, 10),
        ([(9, 11)], 2, 20),
        ([(0, 3), (5, 8)], 6, 10),
        ([(0, 30)], 30, 30),
    ],
)
def test_bytes_and_blocks(given, bytes_, allocated):
    assert spans.total(given) == bytes_
    assert spans.blocks(given, 10) == allocated


def test_as_sets_of_bytes():
    source = random.Random(5)

    def some():
        starts = [source.randrange(60) for _turn in range(source.randrange(6))]
        return [(start, start + source.randrange(12)) for start in starts]

    def bytes_of(ranges):
        return {byte for start, end in ranges for byte in range(start, end)}

    for _turn in range(500):
        one, other = some(), some()
        assert bytes_of(spans.merged(one)) == bytes_of(one)
        assert bytes_of(spans.without(one, other)) == bytes_of(one) - bytes_of(other)
        assert bytes_of(spans.common(one, other)) == bytes_of(one) & bytes_of(other)
        assert spans.total(one) == len(bytes_of(one))
