# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.filter.engram_tiles import engram_tiles


def held(rank, **changes):
    """What engram_info registers for one of two ranks that share ten rows."""
    state = {"rule": "vllm", "tensor_parallel": 2, "rank": rank, "revision": "one"}
    rows = {"ranges": {"1": [rank * 5, rank * 5 + 5]}, "tables": {"1": 10}}
    return {"engram": {**state, **rows, **changes}, "checks": []}


def tiles(*results):
    hosts = [f"n{number}" for number in range(len(results))]
    found = {host: {"checkpoint_engram_info": result} for host, result in zip(hosts, results, strict=True)}
    (check,) = engram_tiles(found, hosts)
    assert check["id"] == "checkpoint.engram_tiles"
    return check


def test_two_halves():
    check = tiles(held(0), held(1))
    assert check["ok"] and check["found"] == "2 nodes hold every row once (layer 1 has 10 rows)"


@pytest.mark.parametrize(
    ("results", "says"),
    [
        (
            (held(0), held(1, tables={"1": 12})),
            "the size of the tables differs: n0 layer 1 has 10 rows, n1 layer 1 has 12 rows",
        ),
        (
            (held(0, tensor_parallel=4), held(1, tensor_parallel=4)),
            "rows were cut for 4 ranks, and these are 2 nodes",
        ),
        ((held(0), held(1), held(0)), "rows were cut for 2 ranks, and these are 3 nodes"),
        ((held(0), held(1), held(0)), "layer 1: rows [0, 5) are held twice"),
        ((held(0, ranges={"1": [0, 10]}), held(1, ranges={"1": [10, 4]})), "layer 1: [10, 4) on rank 1 is no range"),
        ((held(0, ranges={"1": [0, 5], "9": [0, 1]}), held(1)), "layer 9: rows on rank 0, and no table of it is known"),
        ((held(0, ranges={"1": [0, 10]}), held(1, ranges={"1": [2, 3]})), "layer 1: rows [2, 3) are held twice"),
        ((held(0), held(1, ranges={})), "layer 1: nothing of it on rank 1"),
        ((held(0), held(1, revision="two")), "revision differs: n0 one, n1 two"),
        ((held(0), None), "nothing is known of n1"),
        ((held(0), {"skipped": True}), "nothing is known of n1"),
    ],
)
def test_rows_that_do_not_tile(results, says):
    check = tiles(*results)
    assert not check["ok"] and says in check["found"]


def test_a_node_that_knows_of_no_table_says_nothing_of_them():
    assert tiles(held(0), held(1, tables={}))["ok"]


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ([1], r"the result of n1 is \[1\], expected a mapping"),
        ({"engram": "x"}, "engram of n1 is 'x', expected a mapping"),
        ({"engram": {"rule": "vllm", "ranges": {}}}, "engram of n1 has no tensor_parallel, revision, tables"),
        (held(1, ranges=[1]), r"engram.ranges of n1 is \[1\]"),
        (held(1, tables=7), "engram.tables of n1 is 7"),
        (held(1, tables={"1": "ten"}), "engram.tables.1. of n1 is 'ten', expected a whole number"),
        (held(1, ranges={"1": None}), "engram.ranges.1. of n1 is None, expected the first row and the row after"),
        (held(1, ranges={"1": [0]}), "expected the first row and the row after"),
        (held(1, ranges={"1": [0, float("inf")]}), "engram.ranges.1. of n1 is inf, expected a whole number"),
        (held(1, ranges={"1": [0, 10**5000]}), "is something too large to show, expected a whole number"),
        (held(1, ranges={"1": list(range(100_000))}), "expected the first row and the row after"),
        (held(1, tensor_parallel=None), "engram.tensor_parallel of n1 is None"),
        ({**held(1), "checks": 5}, "checks of n1 is 5"),
        ({**held(1), "checks": [5]}, "checks of n1 is"),
    ],
)
def test_what_was_not_registered_by_engram_info_is_one_clear_error(result, says):
    with pytest.raises(
        AnsibleFilterError, match=rf"gb10\.ring\.engram_tiles: checkpoint_engram_info: .*{says}"
    ) as error:
        tiles(held(0), result)
    assert len(str(error.value)) < 400


def test_without_hosts():
    with pytest.raises(AnsibleFilterError, match="hosts is empty"):
        engram_tiles({}, [])
