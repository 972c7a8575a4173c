# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node has to show before its change is confirmed."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.checks import Ping
from ansible_collections.gb10.ring.plugins.module_utils.fabric.links import Link
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.fabric.proof import proof, reachable_check
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

(PORT,) = parse_ports(PORTS[:1], 9000)
ALL = ["presence", "carrier", "address", "mtu", "ping"]


@pytest.mark.parametrize(
    ("link", "ping", "ids", "bad"),
    [
        (None, None, ["presence"], ["presence"]),
        (Link(PORT.netdev, 9000, True, False, ()), None, ["presence", "carrier"], ["carrier"]),
        (Link(PORT.netdev, 9000, True, True, ()), None, ALL[:4], ["address"]),
        (Link(PORT.netdev, 1500, True, True, (PORT.cidr,)), Ping(2, 0), ALL, ["mtu", "ping"]),
        (Link(PORT.netdev, 9000, True, True, (PORT.cidr,)), Ping(2, 2), ALL, []),
    ],
)
def test_proof(link, ping, ids, bad):
    checks = proof("spark1", [PORT], 9000, {PORT.netdev: link} if link else {}, {PORT.netdev: ping} if ping else {})
    assert [check.id.removeprefix("fabric.") for check in checks] == ids
    assert [check.id.removeprefix("fabric.") for check in checks if not check.ok] == bad


@pytest.mark.parametrize("problem", ["", "Connection timed out"])
def test_reachable(problem):
    check = reachable_check("spark1", problem)
    assert (check.ok, check.found) == (not problem, problem or "answers over a new connection")
