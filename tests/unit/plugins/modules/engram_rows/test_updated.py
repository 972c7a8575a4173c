# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A newer state of a shard with rows: of the slice in the revision before, what its chunks have in common stays."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import WITHOUT, Case, staged

#: In the rows of rank 1 of 3, of SECOND alone.
CHANGED = 2 * CHUNK + 100


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Both states, and directories with the whole files of each."""
    old = engram_shards.small("official", vocabulary=10_000)
    shard = bytearray(old.files[SECOND])
    shard[CHANGED] ^= 1
    found = {}
    for name, state in (("one", old), ("two", replace(old, files={**old.files, SECOND: bytes(shard)}))):
        found[name] = (state, tmp_path_factory.mktemp(name))
        for path, body in state.files.items():
            (found[name][1] / path).write_bytes(body)
    return found


@pytest.fixture
def bring(states, capsys, tmp_path):
    """Brings the rows of a rank to one of the revisions; ranges of SECOND that left the store, and the directory."""

    def bringing(revision, rank, *, placement="shard", manifest=None):
        """manifest: what the node keeps as that of the revision, if not its own."""
        state, whole = states[revision]
        with object_server.serving(**state.files) as store:
            case = Case(capsys, store, state, whole, tmp_path)
            rows = case.rows(3, rank, placement=placement)
            plan = row_process.plan_of(store, revision=revision)
            directory = staged(state, tmp_path, plan, rows)
            kept = tmp_path / "tiny/manifests" / f"{revision}.json"
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(json.dumps(plan if manifest is None else manifest))
            result = case.run(tmp_path, rows, chunked=True, revision=revision, **WITHOUT)
            assert result.get("changed"), result
            return sorted(store.ranges(SECOND)), directory if placement == "shard" else tmp_path / "tiny/engram"

    return bringing


def test_one_changed_chunk_costs_that_chunk_and_leaves_the_old_rows(bring, states):
    _all, one = bring("one", 1)
    asked, two = bring("two", 1)
    assert asked == [f"{2 * CHUNK}-{3 * CHUNK - 1}"]
    assert engram_reader.problems(two, states["two"][1]) == []
    assert engram_reader.problems(one, states["one"][1]) == []
    assert not (one / SECOND).samefile(two / SECOND)


def test_in_a_directory_the_file_that_is_there_gets_that_chunk(bring, states):
    _all, place = bring("one", 1, placement="directory")
    inode = (place / SECOND).stat().st_ino
    asked, place = bring("two", 1, placement="directory")
    assert asked == [f"{2 * CHUNK}-{3 * CHUNK - 1}"] and (place / SECOND).stat().st_ino == inode
    assert engram_reader.problems(place, states["two"][1]) == []


def test_a_rank_without_rows_in_it_gets_a_link(bring, states):
    _all, one = bring("one", 0)
    asked, two = bring("two", 0)
    assert asked == [] and (one / SECOND).samefile(two / SECOND)
    assert engram_reader.problems(two, states["two"][1]) == []


def test_slices_that_a_replacement_in_place_carried_over_stay(bring, states):
    """They lie in the new revision already, with what the old one said of them, and no slice of the old one is left."""
    _all, one = bring("one", 0)
    two = one.with_name("two")
    two.mkdir()
    for path in (SECOND, THIRD, "engram-local.json"):
        (one / path).rename(two / path)
    inodes = {path: (two / path).stat().st_ino for path in (SECOND, THIRD)}
    asked, two = bring("two", 0)
    assert asked == [] and engram_reader.problems(two, states["two"][1]) == []
    assert {path: (two / path).stat().st_ino for path in inodes} == inodes
    assert json.loads((two / "engram-local.json").read_text())["revision"] == "two"


def test_a_slice_that_is_not_what_was_verified_is_not_taken(bring, states):
    """Its bytes are read before they count, also where size and time say that nothing happened."""
    _all, one = bring("one", 1)
    stat = (one / SECOND).stat()
    with (one / SECOND).open("r+b") as handle:
        handle.seek(CHANGED - CHUNK // 2)
        handle.write(b"damage")
    os.utime(one / SECOND, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    asked, two = bring("two", 1)
    # Weights and scales were recorded by themselves, and the scales are as they were.
    assert asked == [f"{CHUNK}-{2 * CHUNK - 1}", f"{2 * CHUNK}-{3 * CHUNK - 1}"]
    assert engram_reader.problems(two, states["two"][1]) == []


@pytest.mark.parametrize("of_the_new_state", [True, False])
def test_without_chunks_of_that_very_object_all_rows_are_fetched(bring, states, of_the_new_state):
    """A revision that somebody names keeps its name when a shard changes in the store, of which it has the old slice."""
    with object_server.serving(**states["two"][0].files) as store:
        other = row_process.plan_of(store, revision="one")
    everything, _one = bring("one", 1, manifest=other if of_the_new_state else {})
    asked, two = bring("two", 1)
    assert asked == everything
    assert engram_reader.problems(two, states["two"][1]) == []
