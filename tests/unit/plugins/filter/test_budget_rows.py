# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.filter.budget_rows import FilterModule

NUMBERS = {
    "node": "spark1",
    "needed": 460 * 10**9,
    "reusable": 0,
    "reclaimable": 3 * 10**9,
    "free": 500 * 10**9,
    "reserved": 0,
    "used": 500 * 10**9,
    "size": 10**12,
    "after": 960 * 10**9,
    "ceiling": 850 * 10**9,
    "short": 110 * 10**9,
}
ROW = {
    "node": "spark1",
    "needed": "460.0 GB",
    "reusable": "0 B",
    "reclaimable": "3.0 GB",
    "free": "500.0 GB",
    "after": "960.0 GB of 1.00 TB",
    "ceiling": "850.0 GB",
    "verdict": "110.0 GB short",
}


@pytest.mark.parametrize(
    ("results", "rows"),
    [
        ({"spark1": {"checkpoint_budget": {"budget": NUMBERS}}}, [ROW]),
        ({"spark1": {"checkpoint_budget": {"budget": NUMBERS}}, "spark2": {}}, [ROW]),
        ({"spark2": {"checkpoint_budget": {"unreachable": True}}}, []),
        ({}, []),
    ],
)
def test_rows_of_all_nodes_that_answered(results, rows):
    assert FilterModule().filters()["budget_rows"](results, list(results)) == rows
