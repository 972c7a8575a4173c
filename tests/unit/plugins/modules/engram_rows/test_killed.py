# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""engram_rows ended at any moment: engram-local.json never tells of rows that are not there and verified, and nothing is lost."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import journal, row_apply
from ansible_collections.gb10.ring.plugins.modules import engram_rows
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX

RATE = 60_000_000
WORKERS = 3
PART = 8 << 20
OPTIONS = {"workers": WORKERS, "part_mib": PART >> 20, "verify_share": 0.0}


def made(tmp_path_factory, vocabulary):
    small = engram_shards.small("nvfp4", vocabulary=vocabulary)
    whole = tmp_path_factory.mktemp("whole")
    for path, body in small.files.items():
        (whole / path).write_bytes(body)
    return small, whole


def rows_of(small, tp, rank):
    return row_process.rows_of(small.config, small.files, tp=tp, rank=rank, rule="vllm", placement="directory")


def sound(root, whole):
    """Whether there is no record, or one that tells the truth about every row."""
    directory = root / "tiny/engram"
    if not (directory / "engram-local.json").exists():
        return True
    return engram_reader.problems(directory, whole) == []


def fetched(store):
    total = 0
    for path, headers in store.seen:
        start, last = headers["Range"].removeprefix("bytes=").split("-")
        total += 0 if path == INDEX else int(last) - int(start) + 1
    return total


# --- SIGKILL at any time ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return made(tmp_path_factory, 6000)


@pytest.fixture(scope="module")
def store(large):
    with object_server.serving(**large[0].files) as running:
        yield running


@pytest.fixture(scope="module")
def duration(large, store, tmp_path_factory):
    """Seconds that an undisturbed run takes."""
    plan = row_process.plan_of(store, chunked=False)
    root, began = tmp_path_factory.mktemp("whole") / "root", time.monotonic()
    rows = rows_of(large[0], 2, 1)
    process = row_process.start(plan, rows, root, store.sources(), rate_limit=RATE, **OPTIONS)
    assert row_process.finish(process)["changed"]
    return time.monotonic() - began


@pytest.mark.parametrize("point", range(20))
def test_a_run_killed_at_any_point(large, store, duration, tmp_path, point):
    """Every second one changes the rows of a node that has others."""
    small, whole = large
    plan = row_process.plan_of(store, chunked=False)
    root, rows = tmp_path / "root", rows_of(small, 2, 1)
    if point % 2:
        other = row_process.start(plan, rows_of(small, 3, 1), root, store.sources(), **OPTIONS)
        assert row_process.finish(other)["changed"] and sound(root, whole)
    store.seen.clear()
    process = row_process.start(plan, rows, root, store.sources(), rate_limit=RATE, **OPTIONS)
    time.sleep(duration * random.Random(point).uniform(0.2, 1.0))
    process.kill()
    process.communicate(timeout=10)
    assert sound(root, whole)
    before = fetched(store)
    result = row_process.finish(row_process.start(plan, rows, root, store.sources(), **OPTIONS))
    assert not result.get("failed"), result
    assert engram_reader.problems(root / "tiny/engram", whole) == []
    wanted = sum(extent["length"] for target in rows["targets"] for extent in target["extents"])
    # What is asked for twice is what was in flight.
    assert fetched(store) <= wanted + WORKERS * PART and before <= wanted
    assert sorted(path.name for path in (root / "tiny/staging").iterdir()) == [".lock"]


# --- and at every single step -----------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing in the program catches it."""


class Steps:
    """Ends the program at its nth change of the file system's names, of the journal, or of the record."""

    def __init__(self, monkeypatch, last):
        self.left = last
        for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "link"), (journal.Journal, "_append")):
            self.watch(monkeypatch, owner, name)
        self.watch(monkeypatch, row_apply, "write_text")

    def watch(self, monkeypatch, owner, name):
        real = getattr(owner, name)

        def step(*arguments, **more):
            self.left -= 1
            if self.left < 0:
                raise Killed
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, step)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return made(tmp_path_factory, 11)


def call(arguments, capsys, ends=SystemExit):
    with patch_module_args(arguments), pytest.raises(ends):
        engram_rows.main()
    said = capsys.readouterr().out
    return json.loads(said) if said else {}


@pytest.fixture
def quick(monkeypatch):
    """What a kill leaves does not depend on what is on the disk."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("before", [None, (3, 1)])
def test_a_run_that_ends_at_any_step(capsys, monkeypatch, tiny, tmp_path, before):
    small, whole = tiny
    last, ended = -1, True

    def go(store, root, rows, ends=SystemExit):
        plan = row_process.plan_of(store, chunked=False)
        return call(row_process.arguments(plan, rows, root, store.sources(), **OPTIONS), capsys, ends)

    while ended:
        last += 1
        root, rows = tmp_path / str(last), rows_of(small, 2, 1)
        with object_server.serving(**small.files) as store:
            if before:
                assert go(store, root, rows_of(small, *before))["changed"]
            with monkeypatch.context() as patched:
                steps = Steps(patched, last)
                go(store, root, rows, (SystemExit, Killed))
                ended = steps.left < 0
            assert sound(root, whole)
            assert not go(store, root, rows).get("failed")
            assert engram_reader.problems(root / "tiny/engram", whole) == []
            assert sorted(path.name for path in (root / "tiny/engram").iterdir()) == sorted(
                [INDEX, "engram-local.json", *(target["path"] for target in rows["targets"])]
            )
    assert last > 20
