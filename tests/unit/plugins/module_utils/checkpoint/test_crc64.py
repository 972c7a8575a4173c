# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import crc64

RANDOM = random.Random(4)


def test_the_check_value_of_the_algorithm():
    """The catalogue of parametrised CRC algorithms gives it for 123456789."""
    pieces = [(checksums.crc64nvme(b"1234"), 4), (checksums.crc64nvme(b"56789"), 5)]
    assert crc64.combine_all(pieces) == 0xAE8B14860A799888


@pytest.mark.parametrize(
    ("first", "second"),
    [(0, 0), (0, 1), (1, 0), (1, 1), (7, 9), (4096, 4095), (1 << 20, 3), (5, (1 << 20) + 1), (100_000, 100_000)],
)
def test_two_pieces(first, second):
    one, other = RANDOM.randbytes(first), RANDOM.randbytes(second)
    combined = crc64.combine(checksums.crc64nvme(one), checksums.crc64nvme(other), second)
    assert combined == checksums.crc64nvme(one + other)


def test_many_pieces():
    pieces = [RANDOM.randbytes(RANDOM.randrange(5000)) for _index in range(50)]
    combined = crc64.combine_all((checksums.crc64nvme(piece), len(piece)) for piece in pieces)
    assert combined == checksums.crc64nvme(b"".join(pieces))


def test_no_pieces_are_no_bytes():
    assert crc64.combine_all([]) == checksums.crc64nvme(b"")


def test_lengths_beyond_memory():
    """101 GB of zeros, as two pieces and as three."""
    size = 101_000_000_000
    zeros = checksums.crc64nvme(bytes(1000))

    def zeros_of(count):
        value, block, length = 0, zeros, 1000
        while count:
            if count & 1:
                value = crc64.combine(value, block, length)
            block, length, count = crc64.combine(block, block, length), 2 * length, count >> 1
        return value

    third = zeros_of(size // 2000)
    assert zeros_of(size // 1000) == crc64.combine(third, third, size // 2)
