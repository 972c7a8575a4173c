# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import tracemalloc

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import safetensors
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.safetensors import (
    HEADER_LIMIT,
    HeaderError,
    Tensor,
    header_size,
    parse,
)
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import with_length

ONE = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
TWO = {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [12, 16]}


def read(entries, size=None):
    data = entries if isinstance(entries, bytes) else with_length(entries)
    return parse(data, len(data) + 16 if size is None else size, "m.safetensors")


def raw(text):
    return len(text).to_bytes(8, "little") + text


def test_tensors_get_their_place_in_the_file_and_their_order():
    header = read({"two": TWO, "one": ONE})
    begin = header.size
    assert header.tensors == (Tensor("one", "BF16", (2, 3), begin, 12), Tensor("two", "F8_E4M3", (4,), begin + 12, 4))
    assert header.by_name()["two"].end == header.file_size == begin + 16


def test_what_follows_the_header_is_not_looked_at():
    data = with_length({"one": ONE, "two": TWO})
    assert parse(data + b"rows", len(data) + 16, "m").tensors == read({"one": ONE, "two": TWO}).tensors


@pytest.mark.parametrize(
    "entries",
    [
        {"__metadata__": {"format": "pt"}, "one": ONE, "two": TWO},
        {"one": {**ONE, "dtype": "F99"}, "two": TWO},  # a kind from later on: its place is known all the same
        {"none": {"dtype": "F32", "shape": [0, 5], "data_offsets": [0, 0]}, "one": ONE, "two": TWO},
        {"half": {"dtype": "F4", "shape": [3, 8], "data_offsets": [0, 12]}, "two": TWO},
        {"scalar": {"dtype": "I32", "shape": [], "data_offsets": [12, 16]}, "one": ONE},
    ],
)
def test_unusual_but_right(entries):
    assert read(entries).tensors[-1].end == read(entries).file_size


def test_no_tensors():
    data = with_length({})
    assert parse(data, len(data), "m").tensors == ()


@pytest.mark.parametrize(
    ("start", "size", "says"),
    [
        (b"", 0, "0 bytes are too few"),
        (b"\x10\0\0\0\0\0\0", 7, "7 bytes are too few"),
        (b"\xff" * 8, 1000, f"a header of 18446744073709551615 bytes, expected at most {HEADER_LIMIT}"),
        ((HEADER_LIMIT + 1).to_bytes(8, "little"), 1 << 40, "is no safetensors file, or a damaged one"),
        (b"<html> x", 1000, "no safetensors file"),
        ((1).to_bytes(8, "little"), 1000, "a header of 1 bytes"),
        ((993).to_bytes(8, "little"), 1000, "a header of 993 bytes in a file of 1000: it is damaged or cut off"),
    ],
)
def test_length_fields_that_cannot_be(start, size, says):
    with pytest.raises(HeaderError) as error:
        header_size(start, size, "model.safetensors")
    assert says in str(error.value)
    assert str(error.value).startswith("model.safetensors: ")


def test_the_length_field():
    assert header_size((992).to_bytes(8, "little"), 1000, "m") == 1000


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (raw(b"[]      "), "begins with b'['"),
        (raw(b'  {"a":1}'), "begins with b' '"),
        (raw(b"{ "), "not as safetensors writes it"),
        (raw(b"{}garbage"), "not as safetensors writes it"),
        (raw(b'{"\xff":1}'), "not as safetensors writes it"),
        (raw(b'{"a":' + b"[" * 90000 + b"]" * 90000 + b"}"), "nested too deeply"),
        (raw(b'{"a":1.0}'), "1.0 is no whole number"),
        (raw(b'{"a":NaN}'), "NaN is no whole number"),
        (raw(b'{"a":-1}'), "-1 is no size"),
        (raw(b'{"a":' + b"9" * 5000 + b"}"), "99... is no size"),
        (raw(json.dumps({"one": ONE})[:-1].encode() + b',"one":{}}'), "'one' is in it twice"),
        (raw(b'{"one":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}'), "'dtype' is in it twice"),
        ({"__metadata__": {"format": 1}, "one": ONE}, "__metadata__ is no mapping of text to text"),
        ({"__metadata__": []}, "__metadata__ is no mapping"),
        ({"one": []}, "'one' has no dtype, shape and data_offsets"),
        ({"one": {**ONE, "more": 1}}, "or more than those"),
        ({"one": {**ONE, "dtype": 5}}, "are not a text, sizes and two sizes"),
        ({"one": {**ONE, "shape": 5}}, "are not a text, sizes and two sizes"),
        ({"one": {**ONE, "shape": [True]}}, "are not a text, sizes and two sizes"),
        ({"one": {**ONE, "data_offsets": [0, 6, 12]}}, "are not a text, sizes and two sizes"),
        ({"one": {**ONE, "data_offsets": [12, 0]}}, "end at 0 before they begin at 12"),
        ({"one": {**ONE, "data_offsets": [0, 13]}}, "BF16 [2, 3] takes 12 bytes, its data_offsets 13"),
        ({"one": {**ONE, "shape": [1 << 62] * 9}}, "its data_offsets 12"),
        ({"one": ONE, "two": {**TWO, "data_offsets": [11, 15]}}, "'two' at byte"),
        ({"one": ONE, "two": {**TWO, "data_offsets": [11, 15]}}, "overlaps 'one'"),
        ({"one": ONE, "two": {**TWO, "data_offsets": [13, 17]}}, "leaves a gap behind 'one'"),
        ({"two": TWO}, "leaves a gap behind the header"),
        ({"one": ONE}, "it is cut off, or the header is from another one"),
        ({"a\nb": []}, "tensor 'a?b' has no"),
    ],
)
def test_headers_that_cannot_be(entries, says):
    with pytest.raises(HeaderError) as error:
        read(entries)
    assert says in str(error.value)
    assert str(error.value).startswith("m.safetensors: ")
    assert len(str(error.value)) < 400 and "\n" not in str(error.value)


def test_a_header_that_was_not_read_whole():
    data = with_length({"one": ONE, "two": TWO})
    with pytest.raises(HeaderError, match=f"{len(data) - 1} bytes of a header of {len(data)} were read"):
        parse(data[:-1], len(data) + 16, "m")


def test_names_in_several_files():
    headers = {path: read({"one": ONE, "two": TWO}) for path in ("a", "b")} | {"c": read({"three": ONE, "four": TWO})}
    assert safetensors.names_in_several(headers) == {"one": ["a", "b"], "two": ["a", "b"]}


def empty_tensors(size):
    unit = b'"%d":{"dtype":"","shape":[],"data_offsets":[0,0]},'
    return b"{" + b"".join(unit % number for number in range(size // 56))[:-1] + b"}"


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":[' + b"{}," * ((HEADER_LIMIT - 20) // 3) + b"0]}",
        b'{"a":[' + b'{"":[]},' * ((HEADER_LIMIT - 20) // 8) + b"0]}",
        empty_tensors(HEADER_LIMIT),
    ],
    ids=["braces", "objects", "tensors"],
)
def test_the_largest_header_takes_less_than_64_mib(text):
    data = raw(text)
    tracemalloc.start()
    try:
        with pytest.raises(HeaderError):
            parse(data, 1 << 40, "m")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
