# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.rate import Bucket


class Time:
    """A clock that sleeping moves."""

    def __init__(self):
        self.now = 0.0

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_bytes_take_their_time():
    time = Time()
    bucket = Bucket(1000, time.clock, time.sleep)
    for _slice in range(10):
        bucket.took(500)
    assert time.now == pytest.approx(5.0)


def test_a_pause_is_not_followed_by_a_burst():
    time = Time()
    bucket = Bucket(1000, time.clock, time.sleep)
    bucket.took(1000)
    time.now += 60
    before = time.now
    bucket.took(2000)
    assert time.now - before == pytest.approx(2.0)


def test_no_limit_never_waits():
    time = Time()
    Bucket(0, time.clock, time.sleep).took(1 << 40)
    assert time.now == 0


@pytest.mark.parametrize(("rate", "size"), [(0, 4 << 20), (1 << 30, 4 << 20), (1_600_000, 100_000), (1000, 16 << 10)])
def test_a_low_limit_is_taken_in_small_bites(rate, size):
    assert Bucket(rate).slice == size
