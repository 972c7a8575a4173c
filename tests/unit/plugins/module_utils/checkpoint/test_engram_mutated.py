# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""10,000 headers and indexes with something changed in them: each plans correctly, or is one clear error; none takes 64 MiB."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import safetensors
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_layout import Wanted, build, shards
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_plan import RowPlanError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.safetensors import HeaderError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.weight_index import WeightIndexError, engram_places
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import INDEX, SPLITS, small

CASES = 10_000
LIMIT = 64 << 20
#: Pieces that a parser may stumble over.
PIECES = (
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u0000", b"\\ud800", b"\0", b"\xff", b"\xc3\xa9", b" "),
    *(b"null", b"NaN", b"-1", b"0", b"1e999", b"9" * 30, b"1.5", b"true", b"[[[[", b'{"":{}}', b"18446744073709551616"),
    *(b"F8_E4M3", b"U8", b"embed", b"weight", b"scale", b"__metadata__", b"weight_map", b'"weight_map":{},', b"../"),
)


def flipped(data, source):
    at = source.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << source.randrange(8)]) + data[at + 1 :]


def replaced(data, source):
    start = source.randrange(len(data))
    end = start + source.choice([0, 0, 1, 2, 8])
    return data[:start] + source.choice(PIECES) + data[end:]


def repeated(data, source):
    start, end = sorted(source.randrange(len(data) + 1) for _turn in range(2))
    return data[:end] + data[start:end] * source.choice([1, 1, 1, 40]) + data[end:]


def cut(data, source):
    start, end = sorted(source.randrange(len(data) + 1) for _turn in range(2))
    return source.choice([data[:start], data[start:], data[:start] + data[end:]])


def other_number(data, source):
    """One number of the text is another one."""
    digits = [at for at in range(8, len(data)) if data[at : at + 1].isdigit()]
    if not digits:
        return data
    at = source.choice(digits)
    return data[:at] + source.choice([b"0", b"1", b"9", b"77"]) + data[at + 1 :]


def other_value(data, source):
    """One value of the parsed text is another one, or gone: what is left is well formed."""
    head = b"" if data[:1] == b"{" else data[:8]
    try:
        values = json.loads(data[len(head) :])
    except ValueError:
        return data
    place = values
    while True:
        if not place:
            return data
        key = source.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if source.random() < 0.5 or not isinstance(place[key], dict | list):
            break
        place = place[key]
    if source.random() < 0.3:
        del place[key]
    else:
        place[key] = source.choice([0, 1, 256, 8, -1, None, "", "U8", [], {}, [0, 0], place[key], 1 << 70])
    text = json.dumps(values, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text if head else text


MUTATIONS = (flipped, replaced, repeated, cut, other_number, other_value)


def planned(config, files, sizes, wanted):
    """As the controller does it: the index, then of each shard 8 bytes and the header."""
    places = engram_places(files[INDEX])
    headers = {}
    for path in shards(config, places):
        if path in files:
            size = safetensors.header_size(files[path][:8], sizes[path], path)
            headers[path] = safetensors.parse(files[path][:size], sizes[path], path)
    return build(config, places, headers, wanted)


def refuse_twice(pairs):
    assert len({name for name, _value in pairs}) == len(pairs)
    return dict(pairs)


def true_spans(files, wanted_layers):
    """Where each table's rows are, by the plainest reading of the same bytes."""
    weight_map = json.loads(files[INDEX])["weight_map"]
    found = {}
    for layer, (low, high) in wanted_layers.items():
        for kind, dtype, width in (("weight", "F8_E4M3", 256), ("scale", "F8_E8M0", 8)):
            name = f"layers.{layer}.engram.embed.{kind}"
            data = files[weight_map[name]]
            length = int.from_bytes(data[:8], "little")
            entry = json.loads(data[8 : 8 + length], object_pairs_hook=refuse_twice)[name]
            assert entry["dtype"] == dtype and entry["shape"][1:] == [width]
            begin = 8 + length + entry["data_offsets"][0]
            found[name] = (weight_map[name], begin + low * width, begin + high * width)
    return found


def test_mutated_headers_and_indexes():
    source = random.Random(20260930)
    checkpoints = []
    for layout in SPLITS:
        one = small(layout, vocabulary=2, ngram=2, heads=3)
        sizes = {path: len(data) for path, data in one.files.items()}
        # Only what is read: the data behind the headers is gone, its length is not.
        heads = {
            path: data[: 8 + int.from_bytes(data[:8], "little")] for path, data in one.files.items() if path != INDEX
        }
        checkpoints.append((one.config, {**heads, INDEX: one.files[INDEX]}, sizes))
    outcomes = {"planned": 0, "refused": 0}
    highest = 0
    tracemalloc.start()
    try:
        for case in range(CASES):
            config, original, sizes = checkpoints[case % len(checkpoints)]
            files = dict(original)
            path = source.choice([INDEX, *(path for path in files if "engram" in str(files[path]) and path != INDEX)])
            for _turn in range(source.choice([1, 1, 1, 2, 4])):
                files[path] = source.choice(MUTATIONS)(files[path], source) or b"\0"
            tp = source.choice([1, 3])
            wanted = Wanted(tp, source.randrange(tp), source.choice(["vllm", "sglang"]), "shard")
            tracemalloc.reset_peak()
            held = tracemalloc.get_traced_memory()[0]
            try:
                plan = planned(config, files, sizes, wanted)
            except (HeaderError, WeightIndexError, RowPlanError) as error:
                text = str(error)
                assert "\n" not in text and text.isprintable() and len(text) < 4000, text
                assert "model-0" in text or INDEX in text, text
                outcomes["refused"] += 1
            else:
                truth = true_spans(files, plan.layers)
                found = {
                    extent.tensor: (target.path, *extent.span)
                    for target in plan.targets
                    for extent in target.extents
                    if extent.kind in ("weight", "scale")
                }
                assert found == truth, case
                outcomes["planned"] += 1
            highest = max(highest, tracemalloc.get_traced_memory()[1] - held)
    finally:
        tracemalloc.stop()
    assert outcomes["planned"] > CASES // 100  # what was changed did not matter, as in a name that nobody reads
    assert outcomes["refused"] > CASES // 2
    assert highest < LIMIT


@pytest.mark.parametrize("size", [100, 5_000_000, 1 << 62])
def test_bytes_that_are_no_header_at_all(size):
    source = random.Random(size)
    for _case in range(500):
        data = source.randbytes(source.randrange(200))
        with pytest.raises(HeaderError):
            safetensors.parse(data, size, "m")
        with pytest.raises(WeightIndexError):
            engram_places(data)
