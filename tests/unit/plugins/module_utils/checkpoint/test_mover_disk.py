# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mover and the disk: what refuses, what is resumed, what a damaged part costs."""

from __future__ import annotations

import errno
import os

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import parts, sink
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.answers import StoppedError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.watch import Stop
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server
from ansible_collections.gb10.ring.tests.unit.fixtures.mover_run import (
    BODY,
    CHUNKS,
    CRC,
    LONG,
    MD5,
    PART,
    PARTS,
    fetch,
    file,
    whole,
)
from ansible_collections.gb10.ring.tests.unit.fixtures.mover_run import long_file as make_long_file
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import answer, flip_at


@pytest.fixture
def store():
    with object_server.serving(shard=BODY, empty=b"") as running:
        yield running


# --- the disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_disk_that_refuses_is_told_from_the_network(store, tmp_path, monkeypatch, number, full):
    def refuse(*_arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sink.os, "posix_fallocate", refuse)
    run = fetch(store, tmp_path)
    assert "cannot write" in str(run.error) and run.error.disk_full is full
    assert ("the file has 3.5 MB" in str(run.error)) is full
    assert store.seen == []


def test_a_write_that_fails_midway_is_not_retried_and_what_came_is_kept(store, tmp_path, monkeypatch):
    real, calls = os.pwrite, []

    def refuse(*arguments):
        calls.append(arguments)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(sink.os, "pwrite", refuse)
    run = fetch(store, tmp_path, workers=1)
    assert run.error.disk_full and "free space and run again" in str(run.error)
    assert len(store.requests("shard")) == 3
    monkeypatch.undo()
    store.seen.clear()
    assert whole(fetch(store, tmp_path, begun=run.record().begun["shard"], workers=1))
    assert store.ranges("shard") == PARTS[2:]


def test_a_full_disk_stops_the_other_files(store, tmp_path):
    stop = Stop()
    stop.set("the disk is full")
    run = fetch(store, tmp_path, stop=stop)
    assert isinstance(run.error, StoppedError) and "disk is full" in str(run.error)


def test_a_file_system_without_direct_writes_is_written_through_the_cache(store, tmp_path, monkeypatch):
    real, ranges = os.open, []

    def refuse(path, flags, *mode):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(path, flags, *mode)

    monkeypatch.setattr(sink.os, "open", refuse)
    monkeypatch.setattr(sink, "_sync_range", lambda _fd, offset, length, flags: ranges.append((offset, length, flags)))
    assert whole(fetch(store, tmp_path, workers=1))
    # Written behind at once, waited for and dropped at the end of each part.
    assert ranges[:2] == [(0, PART, 2), (0, PART, 7)]


@pytest.mark.parametrize("digest", [CRC, MD5])
def test_nothing_stays_in_the_page_cache(store, tmp_path, monkeypatch, digest):
    dropped = []
    real = os.posix_fadvise
    monkeypatch.setattr(sink.os, "posix_fadvise", lambda fd, *range_: dropped.append(range_) or real(fd, *range_))
    assert whole(fetch(store, tmp_path, file(digest=digest), direct=False))
    assert {(0, PART, 4), (PART, PART, 4), (0, 0, 4)} <= set(dropped)


# --- resume -------------------------------------------------------------------------------------------------------


def interrupted(store, directory, one=None):
    """A run that ends after two parts."""
    store.faults["shard"] = [lambda *_asked: False] * 2 + [answer(403, "x")]
    run = fetch(store, directory, one, workers=1)
    assert run.outcome.entries == {}
    store.seen.clear()
    store.faults["shard"] = []
    return run


@pytest.mark.parametrize("digest", [CRC, MD5])
def test_a_second_run_fetches_only_the_parts_that_are_missing(store, tmp_path, digest):
    first = interrupted(store, tmp_path, file(digest=digest))
    run = fetch(store, tmp_path, file(digest=digest), begun=first.record().begun["shard"])
    assert whole(run) and sorted(store.ranges("shard")) == PARTS[2:]
    assert run.meter.numbers()["resumed_bytes"] == 2 * PART


@pytest.mark.parametrize("damaged", [False, True])
def test_parts_from_before_a_reboot_are_read_back(store, tmp_path, damaged):
    first = interrupted(store, tmp_path)
    if damaged:
        with (tmp_path / "sub/shard.partial").open("r+b") as partial:
            partial.seek(PART + 5)
            partial.write(b"\0" * 4096)
    run = fetch(store, tmp_path, begun=first.record(boot="another boot").begun["shard"])
    assert whole(run) and sorted(store.ranges("shard")) == PARTS[1 if damaged else 2 :]
    assert run.record().begun == {} and set(run.record().files) == {"shard"}


def test_parts_of_another_size_are_used(store, tmp_path):
    first = interrupted(store, tmp_path)
    run = fetch(store, tmp_path, begun=first.record().begun["shard"], part_size=4 * PART)
    assert whole(run) and store.ranges("shard") == ["2097152-3500000"]


# --- checksums of chunks ------------------------------------------------------------------------------------------


@pytest.fixture
def long_file(store):
    store.objects["long"] = LONG
    return make_long_file()


def test_a_damaged_part_is_fetched_again_alone(store, tmp_path, long_file):
    store.faults["long"] = [flip_at(CHUNK + 7)] * 3  # the first of them meets the first part, which has no such byte
    run = fetch(store, tmp_path, long_file, part_size=CHUNK, workers=1)
    assert whole(run, LONG, "long")
    first, second, third = f"0-{CHUNK - 1}", f"{CHUNK}-{2 * CHUNK - 1}", f"{2 * CHUNK}-{2 * CHUNK + 999}"
    assert store.ranges("long") == [first, second, second, second, third]


def test_a_part_that_stays_damaged_ends_the_file(store, tmp_path, long_file):
    store.faults["long"] = [flip_at(CHUNK + 7)] * 10
    run = fetch(store, tmp_path, long_file, part_size=CHUNK, workers=1)
    assert f"bytes {CHUNK}-{2 * CHUNK - 1}: expected crc64nvme:{CHUNKS[1]}" in str(run.error)
    assert "damaged in the store" in str(run.error)


def test_parts_fit_the_journal(store, tmp_path, long_file):
    run = fetch(store, tmp_path, long_file, part_size=parts.PART)
    assert whole(run, LONG, "long") and len(store.ranges("long")) == 2
