# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of which only some bytes are fetched: every other byte is a hole."""

from __future__ import annotations

import contextlib
import errno
import os
import random

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import disk, journal, sink, stretches
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK, File
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.mover import Mover, Transfer
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.moving import Wanted
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.parts import Done, Part
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.piece import Limits
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.progress import Meter
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.source import Source
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import flip_at

PART = 64 << 10
BODY = random.Random(5).randbytes(5 * PART + 4711)
#: Two that touch within a block, one to the last byte, all at odd places.
KEEP = (Part(0, 664), Part(70_001, 100_000), Part(170_100, 9), Part(len(BODY) - 5001, 5001))
FAST = Limits(connect=1.0, read=1.0, stall=2.0, first_wait=0.01, longest_wait=0.02)


@pytest.fixture
def store():
    with object_server.serving(shard=BODY) as running:
        yield running


def crc(data):
    return checksums.crc64nvme(bytes(data), 0)


def shard(body=BODY, chunked=False):
    chunks = tuple(f"{crc(body[at : at + CHUNK]):016x}" for at in range(0, len(body), CHUNK)) if chunked else ()
    return File("shard", len(body), '"etag-of-shard"', f"crc64nvme:{crc(body):016x}", chunks=chunks)


def fetch(directory, wanted, **transfer):
    settings = {"limits": FAST, "crc": checksums.crc64nvme, "part_size": PART, "workers": 4, "chance": lambda: 1.0}
    meter = Meter()
    with contextlib.closing(journal.Journal(directory / "journal")) as lines:
        outcome = Mover(Transfer(**{**settings, **transfer}), lines, meter).run([wanted])
    return outcome, meter.numbers()


def holes(body, keep):
    left = bytearray(len(body))
    for part in keep:
        left[part.offset : part.end] = body[part.offset : part.end]
    return bytes(left)


@pytest.mark.parametrize("direct", [True, False])
def test_only_the_wanted_bytes_are_asked_for_and_written(store, tmp_path, direct):
    wanted = Wanted(shard(), (Source(store.url("shard")),), tmp_path / "shard", keep=KEEP)
    outcome, moved = fetch(tmp_path, wanted, direct=direct)
    assert outcome.failures == {}
    assert wanted.partial.read_bytes() == holes(BODY, KEEP) and not wanted.target.exists()
    assert moved["s3_bytes"] == sum(part.length for part in KEEP)
    assert wanted.partial.stat().st_blocks * 512 == sum(
        end - start for start, end in [(0, 4096), (69_632, 172_032), (323_584, 335_872)]
    )
    stored = outcome.stored["shard"]
    assert stretches.without(KEEP, [done.part for done in stored]) == ()
    assert all(done.check == crc(BODY[done.part.offset : done.part.end]) for done in stored)


def test_what_is_there_is_not_asked_for_again_and_not_written_again(store, tmp_path):
    there = Part(70_001, 30_000)
    (tmp_path / "shard.partial").write_bytes(bytes(70_001) + BODY[70_001:100_001] + b"other rows" * 9000)
    done = Done(there, crc(BODY[there.offset : there.end]))
    wanted = Wanted(shard(), (Source(store.url("shard")),), tmp_path / "shard", keep=KEEP, trusted=(done,))
    outcome, moved = fetch(tmp_path, wanted)
    assert outcome.failures == {} and wanted.partial.read_bytes() == holes(BODY, KEEP)
    assert moved["s3_bytes"] == sum(part.length for part in KEEP) - 30_000 and moved["resumed_bytes"] == 30_000


def test_parts_from_before_a_restart_are_read_back(store, tmp_path):
    parts = [Part(70_001, 5000), Part(80_000, 5000)]
    (tmp_path / "shard.partial").write_bytes(bytes(70_001) + BODY[70_001:75_001] + bytes(20_000))
    found = tuple(Done(part, crc(BODY[part.offset : part.end])) for part in parts)
    wanted = Wanted(shard(), (Source(store.url("shard")),), tmp_path / "shard", keep=KEEP, doubtful=found)
    outcome, moved = fetch(tmp_path, wanted)
    assert outcome.failures == {} and wanted.partial.read_bytes() == holes(BODY, KEEP)
    assert moved["s3_bytes"] == sum(part.length for part in KEEP) - 5000


# --- whole chunks, where their checksums are published ----------------------------------------------------------------

LARGE = random.Random(6).randbytes(3 * CHUNK + 1234)
ACROSS = (Part(100, 50), Part(CHUNK + 4097, CHUNK))


@pytest.fixture(scope="module")
def large():
    with object_server.serving(shard=LARGE) as running:
        yield running


def test_edges_are_fetched_as_whole_chunks_and_written_as_wanted(large, tmp_path):
    large.seen.clear()
    wanted = Wanted(shard(LARGE, True), (Source(large.url("shard")),), tmp_path / "shard", keep=ACROSS)
    outcome, _moved = fetch(tmp_path, wanted)
    assert outcome.failures == {} and wanted.partial.read_bytes() == holes(LARGE, ACROSS)
    assert sorted(large.ranges("shard")) == [f"{start}-{start + CHUNK - 1}" for start in (0, CHUNK, 2 * CHUNK)]


def test_a_wrong_byte_in_a_chunk_is_fetched_again_even_where_it_is_not_wanted(large, tmp_path):
    large.seen.clear()
    large.faults["shard"] = [flip_at(50), flip_at(50)]
    wanted = Wanted(shard(LARGE, True), (Source(large.url("shard")),), tmp_path / "shard", keep=ACROSS)
    outcome, _moved = fetch(tmp_path, wanted, workers=1)
    assert outcome.failures == {} and wanted.partial.read_bytes() == holes(LARGE, ACROSS)
    assert len(large.ranges("shard")) == 5


def test_a_chunk_that_stays_wrong_ends_the_file(large, tmp_path):
    large.faults["shard"] = [flip_at(CHUNK + 5000)] * 9
    wanted = Wanted(shard(LARGE, True), (Source(large.url("shard")),), tmp_path / "shard", keep=ACROSS)
    outcome, _moved = fetch(tmp_path, wanted, workers=1)
    large.faults["shard"] = []
    assert "expected crc64nvme" in str(outcome.failures["shard"]) and "shard" not in outcome.entries


# --- a file of this node as the source --------------------------------------------------------------------------------


def test_bytes_come_from_a_file_of_this_node(store, tmp_path):
    here = tmp_path / "a b%20.safetensors"
    here.write_bytes(BODY)
    sources = (Source(disk.address(here), "disk"), Source(store.url("shard")))
    wanted = Wanted(shard(), sources, tmp_path / "shard", keep=KEEP)
    outcome, moved = fetch(tmp_path, wanted)
    assert outcome.failures == {} and wanted.partial.read_bytes() == holes(BODY, KEEP)
    assert (moved["s3_bytes"], moved["disk_bytes"]) == (0, sum(part.length for part in KEEP))


@pytest.mark.parametrize("left", [None, BODY[:90_000]])
def test_a_file_that_is_gone_or_shorter_is_left_for_the_store(store, tmp_path, left):
    here = tmp_path / "here"
    if left is not None:
        here.write_bytes(left)
    sources = (Source(disk.address(here), "disk"), Source(store.url("shard")))
    wanted = Wanted(shard(), sources, tmp_path / "shard", keep=KEEP)
    outcome, _moved = fetch(tmp_path, wanted)
    assert outcome.failures == {} and wanted.partial.read_bytes() == holes(BODY, KEEP)


# --- arithmetic, and a file system that cannot ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "chunked", "asked"),
    [
        ([Part(10, 20)], False, [Part(10, 20)]),
        (
            [Part(10, 3 * PART)],
            False,
            [Part(10, PART - 10), Part(PART, PART), Part(2 * PART, PART), Part(3 * PART, 10)],
        ),
        ([Part(10, 20), Part(CHUNK + 1, 1)], True, [Part(0, CHUNK), Part(CHUNK, CHUNK)]),
        ([Part(3 * CHUNK + 1, 2)], True, [Part(3 * CHUNK, 77)]),
        ([], True, []),
    ],
)
def test_requests(missing, chunked, asked):
    assert stretches.requests(3 * CHUNK + 77, missing, PART, chunked) == asked


def test_usable_parts_lie_in_what_is_wanted():
    found = [Done(Part(start, length), 1) for start, length in [(5, 10), (100, 50), (120, 40), (145, 10), (150, 10)]]
    kept = stretches.usable([Part(0, 20), Part(100, 55)], found)
    assert [(done.part.offset, done.part.length) for done in kept] == [(5, 10), (100, 50)]


def test_a_hole_that_cannot_be_made_is_an_error_of_the_system(tmp_path):
    read_only = tmp_path / "file"
    read_only.write_bytes(bytes(10_000))
    descriptor = os.open(read_only, os.O_RDONLY)
    try:
        with pytest.raises(OSError) as caught:
            sink.punch(descriptor, Part(0, 4096))
    finally:
        os.close(descriptor)
    assert caught.value.errno == errno.EBADF
