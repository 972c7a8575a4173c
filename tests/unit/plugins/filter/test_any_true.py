# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.filter.any_true import FilterModule

any_true = FilterModule().filters()["any_true"]


@pytest.mark.parametrize(
    ("hostvars", "expected"),
    [
        ({"a": {"r": {"restart": False}}, "b": {"r": {"restart": True}}}, True),
        ({"a": {"r": {"restart": False}}, "b": {"r": {"restart": False}}}, False),
        ({"a": {}, "b": {"r": {"skipped": True}}}, False),
        ({"a": {"r": None}, "b": {"other": {"restart": True}}}, False),
    ],
)
def test_any_true(hostvars, expected):
    assert any_true(hostvars, ["a", "b"], "r", "restart") is expected


def test_only_the_named_hosts_count():
    assert any_true({"a": {"r": {"restart": False}}, "b": {"r": {"restart": True}}}, ["a"], "r", "restart") is False
