# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the bytes lie that a digest was recorded of, by the header of the file itself."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_again
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.parts import Part

TENSORS = {"w": ([4, 2], [0, 8]), "none": ([0, 2], [8, 8]), "one": ([], [8, 9])}


@pytest.fixture
def shard(tmp_path):
    entries = {name: {"dtype": "U8", "shape": shape, "data_offsets": at} for name, (shape, at) in TENSORS.items()}
    text = json.dumps(entries).encode()
    path = tmp_path / "s"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(9))
    return path, 8 + len(text)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("w[1:3]", (2, 4)),
        ("w[0:4]", (0, 8)),
        ("w", (0, 8)),
        ("w[0:5]", None),
        ("w[3:3]", None),
        ("w[3:2]", None),
        ("w[-3:2]", None),
        ("w[a:b]", None),
        ("w[1:2:3]", None),
        ("w[1]", None),
        ("w[]", None),
        ("w[0:" + "9" * 5000 + "]", None),
        ("none", (8, 0)),
        ("none[0:0]", None),
        ("none[0:1]", None),
        ("one[0:1]", None),
        ("other", None),
        ("", None),
    ],
)
def test_the_place_of_rows(shard, name, place):
    path, start = shard
    expected = {f"s:{name}": Part(start + place[0], place[1])} if place else {}
    with path.open("rb") as handle:
        assert row_again._places(handle.fileno(), "s", [f"s:{name}"]) == expected
        assert row_again._places(handle.fileno(), "s", ["s:header"]) == {"s:header": Part(0, start)}
