# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.filter.host_values import FilterModule

host_values = FilterModule().filters()["host_values"]
HOSTVARS = {"a": {"x": "1", "r": {"k": "2"}}, "b": {"x": "3", "r": None}, "c": {}}


@pytest.mark.parametrize(
    ("hosts", "name", "key", "expected"),
    [
        (["a", "b"], "x", None, {"a": "1", "b": "3"}),
        (["c", "a"], "x", None, {"c": "", "a": "1"}),
        (["a", "b", "c"], "r", "k", {"a": "2", "b": "", "c": ""}),
        ([], "x", None, {}),
    ],
)
def test_host_values(hosts, name, key, expected):
    assert host_values(HOSTVARS, hosts, name, key) == expected
