# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.options import merged, words


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"a": True, "b": 1, "c": 0.8, "d": "x y"}, ["--a", "--b", "1", "--c", "0.8", "--d", "x y"]),
        ({"names": ["a", "b"]}, ["--names", "a", "b"]),
        ({"json": {"a": [1, 2], "b": False, "c": "é"}}, ["--json", '{"a":[1,2],"b":false,"c":"\\u00e9"}']),
        ({"z": 1, "a": 2}, ["--z", "1", "--a", "2"]),
    ],
)
def test_words(options, expected):
    assert words(options) == expected


@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"o": {"x": 1, "y": {"p": 1, "q": 2}}}, {"o": {"y": {"q": 3}}}, {"o": {"x": 1, "y": {"p": 1, "q": 3}}}),
        ({"o": {"x": 1}}, {"o": {"x": None}}, {"o": {"x": None}}),
        ({"l": [1, 2]}, {"l": [3]}, {"l": [3]}),
        ({"o": {"x": 1}}, {"o": None}, {"o": None}),
    ],
)
def test_merged(base, over, expected):
    before = str(base)
    assert merged(base, over) == expected
    assert str(base) == before
