# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CRC-64/NVME of two pieces put together, from the CRCs of the pieces: arithmetic of polynomials over GF(2)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

#: The polynomial (NVM Express NVM Command Set Specification 1.0, section 5.2.1.3.4), bits reversed, x^64 left out.
POLYNOMIAL = 0x9A6C9329AC4BC9B5
_TOP = 1 << 63  # the polynomial 1; x is the bit below it, as bits are reversed


def combine(first: int, second: int, second_length: int) -> int:
    """The CRC of A and B in a row, from that of A, that of B and the bytes of B."""
    return _product(_shift(second_length), first) ^ second


def combine_all(pieces: Iterable[tuple[int, int]]) -> int:
    """The CRC of all pieces in a row, each given as CRC and bytes; of no bytes it is 0."""
    whole = 0
    for crc, length in pieces:
        whole = combine(whole, crc, length)
    return whole


@lru_cache(maxsize=256)
def _shift(length: int) -> int:
    """x^(8 * length) modulo the polynomial. Pieces of a file have one length, but for the last, so it is kept."""
    result, square = _TOP, _TOP >> 8
    while length:
        if length & 1:
            result = _product(square, result)
        square = _product(square, square)
        length >>= 1
    return result


def _product(one: int, other: int) -> int:
    """The product of two polynomials, modulo the polynomial."""
    total = 0
    while one:
        if one & _TOP:
            total ^= other
        one = (one << 1) & (2 * _TOP - 1)
        other = (other >> 1) ^ POLYNOMIAL if other & 1 else other >> 1
    return total
