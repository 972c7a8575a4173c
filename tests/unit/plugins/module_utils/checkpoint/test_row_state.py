# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_state, spans
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Stat
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_plan import Extent, RowPlan, Target
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_state import RowState, RowStateError, Work

DIGESTS = {"a": "crc64nvme:00000000000000aa", "b": "crc64nvme:00000000000000bb"}
MTIME = 1_700_000_000_000_000_000


def target(path, low, high, *, rows=100, width=10, header=20):
    """A file of one table whose rows begin behind the header."""
    start, end = header + low * width, header + high * width
    extents = (
        Extent(path, 0, header, 0, "header"),
        Extent(path, start, end - start, start, "weight", f"{path}.weight", (low, high)),
    )
    return Target(path, header + rows * width, header, extents, {f"{path}.weight": width})


def plan(*targets, rank=1, tp=4, rule="vllm", placement="directory"):
    layers = {
        str(number): extent.rows
        for number, one in enumerate(targets)
        for extent in one.extents
        if extent.kind == "weight"
    }
    return RowPlan(rank, tp, rule, placement, layers, targets, "index.json")


def state_of(wanted, revision="r1"):
    return RowState(
        source="s3://models/x",
        layers=wanted.layers,
        rank=wanted.rank,
        tp_size=wanted.tp,
        rule=wanted.rule,
        revision=revision,
        placement=wanted.placement,
        created="2026-09-30T12:00:00Z",
        files=tuple(row_state.held(one, DIGESTS[one.path], "sha256:00", MTIME) for one in wanted.targets),
        digests={extent.key: "crc64nvme:0123456789abcdef" for one in wanted.targets for extent in one.extents},
    )


def stats(wanted, **change):
    return {one.path: dataclasses.replace(Stat(one.size, MTIME), **change) for one in wanted.targets}


BEFORE = plan(target("a", 25, 50), target("b", 25, 50))


def test_nothing_to_do():
    found = row_state.work(BEFORE, state_of(BEFORE), stats(BEFORE), DIGESTS)
    assert [(one.changed, one.keep) for one in found] == [(False, ((0, 20), (270, 520)))] * 2
    assert row_state.differs(BEFORE, state_of(BEFORE), "r1") == ""
    assert row_state.stale(BEFORE, state_of(BEFORE)) == ()


@pytest.mark.parametrize(
    ("low", "high", "keep", "fetch", "punch"),
    [
        (33, 66, ((0, 20), (350, 520)), ((520, 680),), ((270, 350),)),  # 4 to 3
        (30, 40, ((0, 20), (320, 420)), (), ((270, 320), (420, 520))),
        (0, 100, ((0, 20), (270, 520)), ((20, 270), (520, 1020)), ()),
        (50, 75, ((0, 20),), ((520, 770),), ((270, 520),)),
    ],
)
def test_only_the_difference_moves(low, high, keep, fetch, punch):
    wanted = plan(target("a", low, high), target("b", 25, 50), rank=1, tp=3)
    first, second = row_state.work(wanted, state_of(BEFORE), stats(BEFORE), DIGESTS)
    assert first == Work("a", 1020, keep, fetch, punch, why="other rows than before")
    assert not second.changed
    assert spans.total(first.keep + first.fetch) == wanted.targets[0].bytes


@pytest.mark.parametrize(
    ("state", "found", "digests", "why"),
    [
        (None, stats(BEFORE), DIGESTS, "engram-local.json does not name it"),
        (None, {}, DIGESTS, "missing"),
        (state_of(BEFORE), {}, DIGESTS, "missing"),
        (state_of(BEFORE), stats(BEFORE, size=7), DIGESTS, "7 bytes instead of 1020"),
        (state_of(BEFORE), stats(BEFORE, mtime_ns=5), DIGESTS, "modified since it was verified"),
        (state_of(BEFORE), stats(BEFORE), {"a": "crc64nvme:ff", "b": "crc64nvme:ff"}, "of another object"),
        (state_of(BEFORE), stats(BEFORE), {}, "of another object"),
        (
            state_of(plan(target("a", 25, 50, rows=99), target("b", 25, 50, rows=99))),
            stats(BEFORE),
            DIGESTS,
            "of another",
        ),
    ],
)
def test_what_nobody_vouches_for_is_made_anew(state, found, digests, why):
    for one, made in zip(row_state.work(BEFORE, state, found, digests), BEFORE.targets, strict=True):
        assert one.fresh and one.changed
        assert one.why.startswith(why)
        assert (one.keep, one.fetch, one.punch) == ((), made.spans, ())


@pytest.mark.parametrize(
    ("revision", "etag", "fresh"), [("r1", 'etag:"x"', False), ("r1", 'etag:"y"', True), ("r2", 'etag:"x"', True)]
)
def test_an_object_that_has_no_checksum_is_the_same_within_its_revision_alone(revision, etag, fresh):
    before = dataclasses.replace(
        state_of(BEFORE), files=tuple(row_state.held(one, 'etag:"x"', "h", MTIME) for one in BEFORE.targets)
    )
    found = row_state.work(BEFORE, before, stats(BEFORE), dict.fromkeys("ab", etag), revision=revision)
    assert [one.fresh for one in found] == [fresh] * 2


def test_what_is_said_of_one_file():
    part = row_state.part_of(state_of(BEFORE), "a")
    assert [file.path for file in part.files] == ["a"] and part.revision == "r1"
    assert sorted(part.digests) == ["a:a.weight[25:50]", "a:header"]


OTHER = {"a": "crc64nvme:ff", "b": DIGESTS["b"]}


@pytest.mark.parametrize(
    ("shared", "keep", "fetch", "why"),
    [
        (((0, 1020),), ((0, 20), (270, 520)), (), ""),
        (((0, 300), (400, 1020)), ((0, 20), (270, 300), (400, 520)), ((300, 400),), "other rows than before"),
        (((400, 1020),), ((400, 520),), ((0, 20), (270, 400)), "other rows than before"),
        (((100, 200),), (), ((0, 20), (270, 520)), "of another object"),
        ((), (), ((0, 20), (270, 520)), "of another object"),
    ],
)
def test_of_another_object_stays_what_both_have_in_common(shared, keep, fetch, why):
    first, second = row_state.work(BEFORE, state_of(BEFORE), stats(BEFORE), OTHER, {"a": shared})
    assert first == Work("a", 1020, keep, fetch, why=why, fresh=not keep)
    assert not second.changed


def test_another_revision_with_the_same_shards_keeps_the_rows():
    assert not any(one.changed for one in row_state.work(BEFORE, state_of(BEFORE, "r0"), stats(BEFORE), DIGESTS))
    assert row_state.differs(BEFORE, state_of(BEFORE, "r0"), "r1") == "revision r0 -> r1"


def test_how_a_record_differs():
    wanted = plan(target("a", 0, 50), rank=0, tp=2, rule="sglang")
    text = row_state.differs(wanted, state_of(BEFORE), "r1")
    for part in ("rule vllm -> sglang", "tp 4 -> 2", "rank 1 -> 0", "rows ", "files ['a', 'b'] -> ['a']"):
        assert part in text
    assert row_state.differs(wanted, None, "r1") == "no engram-local.json"


def test_files_that_a_new_plan_has_no_use_for():
    wanted = plan(target("a", 0, 50))
    assert row_state.stale(wanted, state_of(BEFORE)) == ("b",)
    assert row_state.stale(wanted, None) == ()


@pytest.mark.parametrize(
    ("allocated", "says"),
    [
        (0, "some of them are holes"),
        (2 * 4096 - 512, "8192: some of them are holes"),
        (2 * 4096, ""),
        (2 * 4096 + 65536, ""),
        (2 * 4096 + (1 << 20) + 512, "rows of other ranks lie in it too"),
    ],
)
def test_allocation(allocated, says):
    one = target("a", 1000, 1001, rows=100_000)
    assert one.allocated() == 2 * 4096
    text = row_state.allocation_problem(one, allocated)
    assert says in text if says else text == ""


# --- the file -----------------------------------------------------------------------------------------------------


def test_there_and_back():
    state = state_of(BEFORE)
    assert row_state.parse(row_state.render(state), "x") == state


def test_the_keys_of_the_known_readers_come_as_they_expect_them():
    text = row_state.render(state_of(plan(target("a", 25, 50), rank=2, tp=3)))
    values = json.loads(text)
    assert list(values)[:4] == ["source", "layers", "created", "note"]
    assert values["layers"] == {"0": [25, 50]}
    assert (values["rank"], values["tp_size"], values["revision"], values["rule"]) == (2, 3, "r1", "vllm")
    assert text.startswith(
        '{\n "source": "s3://models/x",\n "layers": {\n  "0": [\n   25,\n   50\n  ]\n },\n "created": '
    )
    assert not text.endswith("\n")


#: As the tools in the field write it, without what would tell whether the rows were verified.
FOREIGN = {"source": "/mnt/x", "layers": {"1": [0, 5]}, "created": "2026-09-11T15:20:00Z", "note": "sparse copy"}


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "[" * 100000, json.dumps(FOREIGN)])
def test_a_file_that_is_not_ours(text):
    with pytest.raises(
        RowStateError, match=r"^/d/engram-local\.json was not written by gb10\.ring .*move that directory away"
    ):
        row_state.parse(text, "/d/engram-local.json")


NUMBERS = ("rank", "tp_size", "size", "mtime_ns")


def damaged(**change):
    values = json.loads(row_state.render(state_of(BEFORE)))
    for key, value in change.items():
        if value is None:
            del values[key]
        elif key in values:
            values[key] = value
        else:
            values["files"][0][key] = value
    return json.dumps(values)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (damaged(files=None), "was not written by gb10.ring"),
        (damaged(rank="x"), "was not written by gb10.ring"),
        (damaged(layers={"1": [1, 2, 3]}), "was not written by gb10.ring"),
        *((damaged(**{key: float("inf")}), "was not written by gb10.ring (OverflowError") for key in NUMBERS),
        (damaged(rank=1 << 63), "a number is beyond 64 bits"),
        (damaged(layers={"1": [0, float("inf")]}), "was not written by gb10.ring (OverflowError"),
        (damaged(spans=[[0, float("inf")]]), "was not written by gb10.ring (OverflowError"),
        (damaged(layers=[]), "was not written by gb10.ring"),
        (damaged(placement="half"), "placement 'half' is none of"),
        (damaged(path="../../etc/passwd"), "'../../etc/passwd' has an empty, '.' or '..' component"),
        (damaged(spans=[[5, 9], [0, 2]]), "the spans of a are not in order or leave the file"),
        (damaged(spans=[[0, 99999]]), "the spans of a are not in order or leave the file"),
        (damaged(spans=[[-4, 2]]), "the spans of a are not in order or leave the file"),
    ],
)
def test_a_damaged_one(text, says):
    with pytest.raises(RowStateError) as error:
        row_state.parse(text, "/d/engram-local.json")
    assert says in str(error.value)


@pytest.mark.parametrize("long", ["x" * 100_000, "\n" * 500, 10**4200, [1] * 50_000])
@pytest.mark.parametrize("key", ["placement", "path", "rank", "layers", "spans"])
def test_what_is_told_of_a_damaged_one_has_an_end(key, long):
    with pytest.raises(RowStateError) as error:
        row_state.parse(damaged(**{key: long}), "/d/engram-local.json")
    assert len(str(error.value)) < 1000 and str(error.value).isprintable()


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda known: known.pop("a:header"), "no digest of a:header"),
        (lambda known: known.update({"a:header": ""}), "no digest of a:header"),
        (lambda known: known.update({"a:x[5:2]": "crc64nvme:0"}), "a digest of a:x[5:2], which is none of its rows"),
        (lambda known: known.update({"index.json": "etag:x", "index.json:content": "sha256:0"}), ""),
    ],
)
def test_digests_that_are_not_those_of_the_rows(edit, says):
    state = state_of(BEFORE)
    known = dict(state.digests)
    edit(known)
    assert row_state.differs(BEFORE, dataclasses.replace(state, digests=known), "r1") == says
