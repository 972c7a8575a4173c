# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Firmware versions gathered from registered results."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.filter.fabric_firmware import FilterModule, fabric_firmware

HOSTVARS = {
    "spark1": {"found": {"firmware": ["28.45.4028"]}},
    "spark2": {"found": {"firmware": []}},
    "spark3": {"found": {"skipped": True}},
    "spark4": {"found": None},
    "spark5": {},
}


@pytest.mark.parametrize(
    ("hosts", "expected"), [(list(HOSTVARS), {"spark1": ["28.45.4028"]}), (["spark5"], {}), ([], {})]
)
def test_hosts_without_it_are_left_out(hosts, expected):
    assert fabric_firmware(HOSTVARS, hosts, "found") == expected


def test_it_has_its_name():
    assert FilterModule().filters() == {"fabric_firmware": fabric_firmware}
