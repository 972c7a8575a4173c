# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import tracemalloc

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.weight_index import (
    INDEX_LIMIT,
    WeightIndexError,
    engram_places,
)

ENGRAM = {"layers.1.engram.embed.weight": "a.safetensors", "layers.1.engram.q_weight": "dir/b.safetensors"}
OTHER = {"embed.weight": "c.safetensors", "layers.1.attn.wq_a.weight": "c.safetensors"}


def places(weight_map, **more):
    return engram_places(json.dumps({**more, "weight_map": weight_map}).encode())


def test_only_engram_tensors_are_kept():
    assert places({**OTHER, **ENGRAM}, metadata={"total_size": 5}) == ENGRAM


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"weight_map": {**ENGRAM, **OTHER}}, indent=2),
        json.dumps({"weight_map": {**ENGRAM, **OTHER}}, separators=(",", ":")),
        "\r\n\t " + json.dumps({"weight_map": ENGRAM, "more": [1, -2.5e3, None, True, {"a": ["\\", {}]}]}) + "\n",
        json.dumps({"weight_map": ENGRAM}).replace("layers.1", "\\u006cayers.1"),
        json.dumps({"weight_map": {**ENGRAM, "gr\u00fc\u00df \u20ac": "c"}}, ensure_ascii=False),
    ],
    ids=["indented", "compact", "more keys", "escaped names", "not ASCII"],
)
def test_ways_to_write_it(text):
    assert engram_places(text.encode()) == ENGRAM


def test_names_of_files_in_any_language():
    found = places({"layers.1.engram.q_weight": "gr\u00fc\u00df.safetensors"})
    raw = json.dumps({"weight_map": {"x.engram.y": "gr\u00fc\u00df"}}, ensure_ascii=False).encode()
    assert found == {"layers.1.engram.q_weight": "gr\u00fc\u00df.safetensors"}
    assert engram_places(raw) == {"x.engram.y": "gr\u00fc\u00df"}


def test_an_empty_map():
    assert engram_places(b'{"weight_map":{}}') == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "expected '{'"),
        (b"[]", "expected '{'"),
        (b"{}", "no weight_map"),
        (b'{"metadata":{}}', "no weight_map"),
        (b'{"weight_map":[]}', "expected '{'"),
        (b'{"weight_map":{}', "expected ','"),
        (b'{"weight_map":{}}x', "something follows the last brace"),
        (b'{"weight_map":{},"weight_map":{}}', "'weight_map' is in it twice"),
        (b'{"weight_map":{"a":"b",}}', "expected a text"),
        (b'{"weight_map":{"a":"b" "c":"d"}}', "expected a comma or a closing brace"),
        (b'{"weight_map":{"a":5}}', "expected a text"),
        (b'{"weight_map":{"a":"b\n"}}', "expected a text"),
        (b'{"weight_map":{"a":"\\x"}}', "expected a text"),
        (b'{"weight_map":{"' + b"a" * 5000 + b'":"b"}}', "expected a text of at most 4096 characters"),
        (b'{"weight_map":{"x.engram.y":"a","x.engram.y":"b"}}', "tensor 'x.engram.y' is in weight_map twice"),
        (b'{"weight_map":{"x.engram.y":"a","x.engra\\u006d.y":"b"}}', "tensor 'x.engram.y' is in weight_map twice"),
        (b'{"weight_map":{"x.engram.y":"../a"}}', "the file '../a' has an empty, '.' or '..' component"),
        (b'{"weight_map":{"x.engram.y":"/a"}}', "the file '/a' is absolute"),
        (b'{"weight_map":{"x.engram.y":"\\ud800"}}', "the file '?' cannot be written as UTF-8"),
        (b'{"weight_map":{"\xff":"b"}}', "not UTF-8"),
        (b'{"weight_map":{"\xe2\x82', "not UTF-8"),
        (b'{"more":nul,"weight_map":{}}', "expected a value"),
        (b'{"more":01,"weight_map":{}}', "expected ','"),
        (b'{"more":' + b"[" * 100 + b"]" * 100 + b"}", "nested too deeply"),
        (b'{"more":[' + b"0," * 10000 + b"0]}", "more than 10000 values beside weight_map"),
        (b'{"more":[1 2],"weight_map":{}}', "expected ','"),
        (b'{"more":[1,],"weight_map":{}}', "expected a value"),
        (b'{"more":{1:2},"weight_map":{}}', "expected a text"),
        (b"{" + b",".join(b'"%d":0' % number for number in range(50)) + b"}", "more than 32 keys"),
        (
            b'{"weight_map":{' + b",".join(b'"%d.engram.":"a"' % number for number in range(5000)) + b"}}",
            "more than 4096 Engram tensors",
        ),
        (b" " * (INDEX_LIMIT + 1), f"{INDEX_LIMIT + 1} bytes, expected at most {INDEX_LIMIT}"),
    ],
)
def test_indexes_that_cannot_be(text, says):
    with pytest.raises(WeightIndexError) as error:
        engram_places(text, "dir/index.json")
    assert says in str(error.value)
    assert str(error.value).startswith("dir/index.json: ")
    assert len(str(error.value)) < 400 and "\n" not in str(error.value)


def largest(entry):
    """An index of the largest size, with entries of this form."""
    count = (INDEX_LIMIT - 100) // len(entry % 0)
    return b'{"weight_map":{' + b",".join([entry % 0] * (count * 9 // 10)) + b"}}"


@pytest.mark.parametrize(
    "text",
    [
        largest(b'"layers.%d.ffn.experts.100.w1.weight":"model-00003-of-00048.safetensors"'),
        b'{"a":' + b"[" + b"{}," * (INDEX_LIMIT // 4) + b'0],"weight_map":{}}',
        b'{"a":"' + b"x" * (INDEX_LIMIT - 50) + b'","weight_map":{}}',
        b'{"weight_map":{"' + b"\\u0041" * (INDEX_LIMIT // 6 - 50) + b'":""}}',
        b'{"weight_map":{"x":"y"' + b" " * (INDEX_LIMIT - 50) + b"}}",
    ],
    ids=["entries", "braces", "text", "escapes", "spaces"],
)
def test_the_largest_index_takes_less_than_64_mib(text):
    assert len(text) <= INDEX_LIMIT
    tracemalloc.start()
    try:
        try:
            engram_places(text)
        except WeightIndexError as error:
            assert "at most 4096 characters" in str(error) or "more than 10000 values" in str(error)
        assert tracemalloc.get_traced_memory()[1] < (64 << 20) - len(text)  # the text itself is held too
    finally:
        tracemalloc.stop()
