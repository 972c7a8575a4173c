# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import watch
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def test_the_first_reason_to_stop_stays():
    stop = watch.Stop()
    assert not stop.is_set() and not stop.wait(0)
    stop.set("the disk is full")
    stop.set("another")
    assert stop.is_set() and stop.wait(0) and stop.reason == "the disk is full"


# --- lease --------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock():
    return [100.0]


@pytest.fixture
def lease(tmp_path, clock):
    return watch.Lease(tmp_path / "r.lease", 60, lambda: clock[0])


def touch(directory, seconds):
    os.utime(directory / "r.lease", (seconds, seconds))


def test_a_lease_ends_when_it_is_not_renewed(lease, clock):
    clock[0] = 160.0
    assert lease() == ""
    clock[0] = 161.0
    assert lease() == "the controller gave no sign for 61 s (limit 60 s)"


def test_a_lease_that_is_renewed_goes_on(lease, clock, tmp_path):
    for step in range(1, 10):
        touch(tmp_path, step)
        clock[0] += 50
        assert lease() == ""
    clock[0] += 61
    assert "no sign for 61 s" in lease()


def test_a_clock_that_is_set_back_is_a_sign_too(lease, clock, tmp_path):
    touch(tmp_path, 5)
    clock[0] += 61
    assert lease() == ""


def test_a_lease_that_is_gone_is_not_renewed(lease, clock, tmp_path):
    (tmp_path / "r.lease").unlink()
    assert lease() == ""
    clock[0] += 61
    assert "no sign" in lease()


def test_a_lease_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(HostError, match=r"cannot write .*/nowhere/r\.lease: No such file"):
        watch.Lease(tmp_path / "nowhere/r.lease", 60)


@pytest.mark.parametrize(("age", "gone"), [(0, False), (14, False), (16, True)])
def test_an_old_lease_is_that_of_a_controller_that_is_gone(tmp_path, age, gone):
    (tmp_path / "r.lease").touch()
    touch(tmp_path, time.time() - age)
    assert watch.followed(tmp_path) is not gone
    assert watch.lock_patience(tmp_path) == (90 if gone else 20)


def test_a_run_without_a_lease_is_a_short_one_and_waited_for(tmp_path):
    assert not watch.followed(tmp_path)
    assert watch.lock_patience(tmp_path) == 90


def test_an_old_lease_beside_a_new_one_is_of_a_run_that_ended(tmp_path):
    for name, age in (("r", 100), ("s", 0)):
        (tmp_path / f"{name}.lease").touch()
        os.utime(tmp_path / f"{name}.lease", (time.time() - age,) * 2)
    assert watch.lock_patience(tmp_path) == 20


def test_a_lease_that_is_not_renewed_is_told_within_the_patience_for_one_that_is(tmp_path):
    """Or a run right after a kill would not wait for what the killed one left."""
    (tmp_path / "r.lease").touch()
    patience = watch.lock_patience(tmp_path)
    touch(tmp_path, time.time() - patience)
    assert not watch.followed(tmp_path)


# --- the reader of the output -------------------------------------------------------------------------------------


def test_a_pipe_is_watched_for_its_reader():
    reading, writing = os.pipe()
    try:
        assert watch.unread(writing) == ""
        os.close(reading)
        assert watch.unread(writing) == "the controller is gone: nobody reads the result"
    finally:
        os.close(writing)


def test_a_socket_is_watched_for_its_other_end():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.shutdown(socket.SHUT_WR)  # as sshd does when the input has ended
        assert watch.unread(ours.fileno()) == ""
        theirs.close()
        assert "nobody reads" in watch.unread(ours.fileno())


def test_a_file_has_no_reader_that_could_go(tmp_path):
    with (tmp_path / "out").open("w") as out:
        assert watch.unread(out.fileno()) == ""


# --- watching -----------------------------------------------------------------------------------------------------


def test_a_sign_stops_the_run_and_one_that_ends_in_time_is_not_forced():
    stop, forced = watch.Stop(), []
    with watch.Watch(stop, [lambda: "", lambda: "gone"], 0.01, 5, lambda: forced.append(1)):
        assert stop.wait(5)
    assert stop.reason == "gone" and forced == []


def test_a_run_that_does_not_end_is_ended():
    forced = threading.Event()
    with watch.Watch(watch.Stop(), [lambda: "gone"], 0.01, 0.01, forced.set):
        assert forced.wait(5)


def test_without_a_sign_nothing_happens():
    stop, looked = watch.Stop(), threading.Semaphore(0)
    with watch.Watch(stop, [lambda: looked.release() or ""], 0.001, 0, lambda: stop.set("forced")):
        for _time in range(3):
            assert looked.acquire(timeout=5)
    assert not stop.is_set()
