# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records that do not say enough, or too much: what engram_info finds of them, and what the next run of engram_rows brings."""

from __future__ import annotations

import contextlib
import json
import os
import signal

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.weight_index import INDEX_LIMIT
from ansible_collections.gb10.ring.plugins.modules import engram_info
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import WITHOUT, fetched, others_whole, staged

RECORD = "engram-local.json"
WEIGHT = "layers.1.engram.embed.weight"


@contextlib.contextmanager
def ending():
    """What waits for a pipe would wait for good."""

    def late(*_signal):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Held:
    """Rows of one rank in the usual directory, or in one that somebody named, and what engram_rows and engram_info say of them."""

    def __init__(self, case, named=False):
        self.case, self.rows = case, case.rows()
        self.place = case.root / ("rows" if named else "tiny/engram")
        self.told = {"directory": str(self.place)} if named else {}
        self.model = case.root / "tiny/revisions/one"
        self.model.mkdir(parents=True)
        (self.model / "config.json").write_bytes(case.small.files["config.json"])
        assert self.run()["changed"]
        self.good = json.loads((self.place / RECORD).read_text())

    def run(self, **more):
        self.case.store.seen.clear()
        return self.case.run(self.case.root, self.rows, revision="one", **{**self.told, **WITHOUT, **more})

    def look(self, verify="recorded", **more):
        given = {"root": str(self.case.root), "name": "tiny", "revision": "one", "node": "n1", "tensor_parallel": 3}
        given |= {"rank": 1, "rule": "vllm", "placement": "directory", "verify": verify, **self.told, **more}
        with ending(), patch_module_args(given), pytest.raises(SystemExit):
            engram_info.main()
        return json.loads(self.case.capsys.readouterr().out)["checks"][0]

    def record(self, **change):
        (self.place / RECORD).write_text(json.dumps({**self.good, **change}))

    def digests(self, edit):
        """The record with other digests. edit: what is kept of each, by key."""
        kept = {key: edit(key, digest) for key, digest in self.good["digests"].items()}
        self.record(digests={key: digest for key, digest in kept.items() if digest is not None})

    def whole(self):
        digests = json.loads((self.place / RECORD).read_text())["digests"]
        return digests == self.good["digests"] and engram_reader.problems(self.place, self.case.whole) == []


@pytest.fixture
def held(case):
    return Held(case)


def extents(held):
    return {
        f"{extent['source_path']}:{extent['tensor'] or 'header'}{rows}": extent["length"]
        for target in held.rows["targets"]
        for extent in target["extents"]
        for low, high in [extent["rows"]]
        for rows in [f"[{low}:{high}]" if extent["tensor"] else ""]
    }


# --- digests that are not recorded ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", ["recorded", "full"])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("part", ["header", "embed.weight", "embed.scale"])
def test_an_extent_without_a_digest_is_told_and_fetched_alone(held, part, empty, verify):
    lacking = [key for key in extents(held) if key.startswith(SECOND) and part in key]
    held.digests(lambda key, digest: ("" if empty else None) if key in lacking else digest)
    found = held.look(verify)
    assert not found["ok"] and f"{RECORD} has no digest of {lacking[0]}" in found["found"], found
    assert "only rows that are missing or wrong are fetched" in found["cure"] or "rows that are wrong" in found["cure"]
    result = held.run()
    assert result["changed"] and fetched(held.case.store) == extents(held)[lacking[0]]
    assert held.whole() and held.look(verify)["ok"] and not held.run()["changed"]


@pytest.mark.parametrize("named", [False, True])
def test_without_any_digest_all_rows_are_fetched(case, named):
    held = Held(case, named)
    held.record(digests={})
    assert not held.look("full")["ok"]
    assert held.run()["changed"] and fetched(case.store) >= sum(extents(held).values())
    assert held.whole() and held.look("full")["ok"] and not held.run()["changed"]


def test_rows_of_another_split_are_kept_without_those_that_no_digest_was_recorded_of(held):
    held.digests(lambda key, digest: None if WEIGHT in key else digest)
    held.rows = held.case.rows(tp=4)
    assert held.run()["changed"] and engram_reader.problems(held.place, held.case.whole) == []
    assert not held.run()["changed"]


def test_a_slice_of_another_revision_without_digests_gets_no_name_here(case):
    rows = case.rows(placement="shard")
    for revision in ("one", "two"):
        directory = staged(case.small, case.root, row_process.plan_of(case.store, revision=revision), rows)
        case.store.seen.clear()
        assert case.run(case.root, rows, revision=revision, **WITHOUT)["changed"]
        assert engram_reader.problems(directory, case.whole) == []
        record = json.loads((directory / RECORD).read_text())
        assert all(record["digests"].values())
        (directory / RECORD).write_text(json.dumps({**record, "digests": {}}))
    assert fetched(case.store) > 0


def test_weights_beside_the_rows_have_to_have_a_digest_too(case):
    rows = case.rows(placement="shard")
    held = Held(case)
    directory = staged(case.small, case.root, row_process.plan_of(case.store, revision="one"), rows)
    assert case.run(case.root, rows, revision="one", **WITHOUT)["changed"]
    assert held.look("full", placement="shard")["ok"]
    record = json.loads((directory / RECORD).read_text())
    del record["digests"][f"{SECOND}:layers.1.engram.q_weight"]
    (directory / RECORD).write_text(json.dumps(record))
    found = held.look("full", placement="shard")
    assert not found["ok"] and f"{SECOND}: " in found["found"] and "bytes of it have no digest" in found["found"]


# --- files that are not named -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("files", ["none", "one", "twice"])
def test_files_that_the_record_does_not_name(case, files, named, index):
    held = Held(case, named)
    if index:
        (held.model / INDEX).write_bytes(case.small.files[INDEX])
    else:
        (held.place / INDEX).write_bytes(b"{")
    kept = {"none": [], "one": held.good["files"][:1], "twice": held.good["files"] * 2}[files]
    held.record(files=kept)
    found = held.look()
    if index or files != "one":
        assert f"{RECORD} names the files " in found["found"], found
    for path in (SECOND, THIRD):
        if named and path not in {file["path"] for file in kept}:
            assert not index or f"delete the slices in {held.place} that {RECORD} does not name" in found["cure"]
            assert held.run()["failed"]
            (held.place / path).unlink()
    assert held.run()["changed"] and held.whole() and held.look("full")["ok"]


# --- rows of another placement ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", ["recorded", "full"])
def test_rows_alone_in_a_revision_that_is_read_as_it_is(case, verify):
    """Everything of the shards but the rows is a hole."""
    rows, alone = case.rows(placement="shard"), case.rows()
    directory = staged(case.small, case.root, row_process.plan_of(case.store, revision="one"), rows)
    case.run(case.root, rows, revision="one", **WITHOUT)
    place = case.root / "rows"
    case.run(case.root, alone, revision="one", directory=str(place), **WITHOUT)
    for path in (*(target["path"] for target in alone["targets"]), RECORD):
        (place / path).replace(directory / path)
    assert not others_whole(case.small, directory, rows)
    held = Held.__new__(Held)
    held.case, held.told = case, {}
    found = held.look(verify, placement="shard")
    assert not found["ok"] and f"{RECORD} says placement directory, expected shard" in found["found"]
    assert case.run(case.root, rows, revision="one", **WITHOUT)["changed"]
    assert others_whole(case.small, directory, rows) and held.look(verify, placement="shard")["ok"]


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows", ["[a:b]", "[1:2:3]", "[5:2]", "[-5:2]", "[0:99999999999999999999]", "[0:0]", "[1:99999]"]
)
def test_a_digest_of_rows_that_cannot_be(held, rows):
    key = f"{SECOND}:{WEIGHT}{rows}"
    held.record(digests={**held.good["digests"], key: "crc64nvme:0"})
    found = held.look("full")
    assert not found["ok"] and found["found"] == f"{key}: the file has no such rows or tensor"
    assert held.run(verify="full")["changed"] and fetched(held.case.store) == 0
    assert held.whole() and held.look("full")["ok"]


@pytest.mark.parametrize("key", ["rank", "tp_size", "mtime_ns", "size"])
def test_a_record_with_an_infinite_number(held, key):
    text = json.dumps(held.good)
    old = held.good.get(key, held.good["files"][0].get(key))
    (held.place / RECORD).write_text(text.replace(f'"{key}": {old}', f'"{key}": Infinity'))
    assert "was not written by gb10.ring (OverflowError" in held.look()["found"]
    result = held.run()
    assert result["failed"] and "was not written by gb10.ring (OverflowError" in result["msg"]


@pytest.mark.parametrize(
    ("text", "says"), [(b"[" * 100_000, "is nested too deeply"), (b"\xff", "is not JSON"), (b"9" * 5000, "is not JSON")]
)
@pytest.mark.parametrize("placement", ["directory", "full"])
def test_a_configuration_that_cannot_be_read(held, text, says, placement):
    (held.model / "config.json").write_bytes(text)
    assert says in held.look(placement=placement)["found"]


@pytest.fixture
def whole_shards(case):
    held = Held(case)
    for path, body in case.small.files.items():
        (held.model / path).write_bytes(body)
    return held


def test_a_configuration_with_a_byte_that_is_no_text(whole_shards):
    """Read as it is for other placements."""
    config = whole_shards.model / "config.json"
    config.write_bytes(config.read_bytes().replace(b'"small"', b'"sm\xff"'))
    assert whole_shards.look(placement="full")["ok"]


@pytest.mark.parametrize("path", [INDEX, SECOND])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_in_the_place_of_one(whole_shards, path, make):
    (whole_shards.model / path).unlink()
    make(whole_shards.model / path)
    found = whole_shards.look(placement="full")["found"]
    says = {SECOND: f"{SECOND} cannot be read: ", INDEX: f"cannot read {whole_shards.model / INDEX}: "}
    assert found == f"{says[path]}it is no regular file"


def test_an_index_that_would_not_fit_into_memory(whole_shards):
    os.truncate(whole_shards.model / INDEX, 1 << 40)
    assert f"{INDEX}: {1 << 40} bytes, expected at most {INDEX_LIMIT}" in whole_shards.look(placement="full")["found"]


def test_a_pipe_in_the_place_of_a_slice(held):
    (held.place / SECOND).unlink()
    os.mkfifo(held.place / SECOND)
    assert f"{SECOND}: cannot be read again: " in held.look("full")["found"]
