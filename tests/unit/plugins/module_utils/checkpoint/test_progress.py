# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import progress
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.progress import (
    Meter,
    Progress,
    Reporter,
    SecondMeter,
)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_rate_over_the_last_seconds():
    clock = Clock()
    meter = Meter(1000, 3, clock)
    meter.resumed(100)
    meter.moved("s3", 200)
    meter.moved("peer", 100)
    meter.file()
    clock.now += 10
    seen = meter.progress("staging")
    assert (seen.done_bytes, seen.total_bytes, seen.done_files, seen.total_files) == (400, 1000, 1, 3)
    assert seen.rate == 30.0 and seen.eta_s == 20
    for _second in range(30):
        clock.now += 1
        seen = meter.progress("staging")
    assert seen.rate == 0 and seen.eta_s is None


def test_bytes_that_are_fetched_again_are_not_progress():
    meter = Meter(1000, 1)
    meter.moved("s3", 600)
    meter.lost(200)
    assert meter.progress("staging").done_bytes == 400
    assert meter.numbers()["s3_bytes"] == 600


def test_what_is_read_a_second_time_is_progress_and_counted_apart():
    meter = Meter(1000, 1)
    meter.moved("s3", 1000)
    meter.expect(500)
    second = SecondMeter(meter)
    second.moved("s3", 200)
    second.file()
    seen = meter.progress("staging")
    assert (seen.done_bytes, seen.total_bytes, seen.done_files) == (1200, 1500, 0)
    assert meter.numbers()["s3_bytes"] == 1000 and meter.second_bytes == 200


@pytest.mark.parametrize(
    ("one", "other", "second"), [({}, {"second_bytes": 5}, 5), ({"second_bytes": 2}, {"second_bytes": 5}, 7)]
)
def test_second_readings_of_two_runs(one, other, second):
    assert progress.moved_numbers(one, other)["second_bytes"] == second


def test_the_numbers_of_two_runs():
    clock = Clock()
    meter = Meter(clock=clock)
    meter.moved("s3", 50_000_000)
    meter.resumed(7)
    clock.now += 10
    one = meter.numbers()
    assert one == {
        "s3_bytes": 50_000_000,
        "peer_bytes": 0,
        "disk_bytes": 0,
        "resumed_bytes": 7,
        "seconds": 10.0,
        "mb_per_s": 5.0,
    }
    other = {"s3_bytes": 0, "peer_bytes": 50_000_000, "resumed_bytes": 50_000_000, "seconds": 10.0, "mb_per_s": 5.0}
    assert progress.moved_numbers(one, other) == {
        "s3_bytes": 50_000_000,
        "peer_bytes": 50_000_000,
        "disk_bytes": 0,
        "resumed_bytes": 7,
        "seconds": 20.0,
        "mb_per_s": 5.0,
    }
    assert progress.moved_numbers({}, one) == one


@pytest.mark.parametrize(
    ("eta", "tail"),
    [(None, ""), (59, ", 59 s left"), (60, ", 1 min left"), (3540, ", 59 min left"), (7200, ", 2 h 00 min left")],
)
def test_the_line(eta, tail):
    seen = Progress("staging", 230_041_309_727, 460_082_619_454, 12, 54, 1.2e9, eta, 3)
    assert progress.line("spark1", seen) == (f"spark1: 12/54 files, 230.0 GB of 460.1 GB (50 %), 1.2 GB/s{tail}")


def test_the_file_is_there_while_the_block_runs_and_gone_after(tmp_path):
    path, calls = tmp_path / "progress", []
    with Reporter(Meter(10, 1), path, lambda: calls.append(1), pace_s=0.001):
        first = progress.parse(path.read_text())
        seen = len(calls)
        limit = time.monotonic() + 10
        while len(calls) == seen or progress.parse(path.read_text()).tick <= first.tick:
            assert time.monotonic() < limit, "the file stands still"
            time.sleep(0.001)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_does_not_end_the_work(tmp_path):
    with Reporter(Meter(10, 1), tmp_path / "absent" / "progress", lambda: None) as reporter:
        assert reporter is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"phase": "x"}'])
def test_what_is_no_progress(text):
    assert progress.parse(text) is None
