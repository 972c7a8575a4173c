# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against a change, with its cure."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.foreign import Claim
from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan import Refusal
from ansible_collections.gb10.ring.plugins.module_utils.fabric.objections import (
    foreign_check,
    management_check,
    netplan_check,
    queue_pairs,
    serving_check,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_change import state
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

OWN = "/etc/netplan/60-gb10-ring.yaml"
OTHER = Claim("/etc/netplan/50-cloud-init.yaml", ("ethernets", "x"), ("enp1s0f0np0",), "by name")
BLOCKED = Claim(
    "/etc/netplan/1.yaml", ("ethernets", "all"), ("enp1s0f0np0",), "match name en*", blocked="it is for enP7s7 too"
)


@pytest.mark.parametrize(
    ("refusals", "found", "cure"),
    [
        ([], "all accepted", "netplan generate"),
        ([Refusal("/etc/netplan/1.yaml", "3", "tabs")], "/etc/netplan/1.yaml, line 3: tabs", "fabric_quarantine: true"),
        ([Refusal(OWN, "", "unknown key")], f"{OWN}: unknown key", "please report it"),
        ([Refusal("", "", "no output")], "no output", "run 'netplan generate'"),
    ],
)
def test_netplan(refusals, found, cure):
    check = netplan_check("spark1", OWN, refusals)
    assert (check.ok, check.found) == (not refusals, found)
    assert cure in check.cure


@pytest.mark.parametrize(
    ("claims", "migrate", "ok", "found", "cure"),
    [
        ([], False, True, "no other definition", ""),
        ([OTHER], False, False, f"{OTHER.file}: ethernets.x defines enp1s0f0np0 (by name)", "fabric_foreign: migrate"),
        ([OTHER], False, False, "", "cloud-init writes its file again"),
        ([OTHER], True, True, "to be migrated: /etc/netplan/50-cloud-init.yaml", ""),
        ([OTHER, BLOCKED], True, False, "it is for enP7s7 too", "for the other interfaces only"),
    ],
)
def test_foreign(claims, migrate, ok, found, cure):
    check = foreign_check("spark1", claims, migrate)
    assert check.ok is ok
    assert found in check.found
    assert cure in check.cure


@pytest.mark.parametrize(
    ("links", "management", "found"),
    [
        ({"enP7s7": state("198.51.100.1/24", "fe80::1/64")}, ("enP7s7",), ""),
        ({}, (), ""),
        ({}, ("enp1s0f0np0",), "enp1s0f0np0 is planned as 10.100.0.1/24, and is a management interface"),
        (
            {"enP7s7": state("10.100.1.77/16")},
            ("enP7s7",),
            "enP7s7 has 10.100.1.77/16, inside enP2p1s0f0np0 (port 0, rail 1",
        ),
    ],
)
def test_management(links, management, found):
    check = management_check("spark1", parse_ports(PORTS, 9000), links, management)
    assert check.ok is not bool(found)
    assert found in check.found
    assert "supernet" in check.cure


@pytest.mark.parametrize(
    ("serving", "allowed", "ok"),
    [((), False, True), (("engine is active",), False, False), (("engine is active",), True, True)],
)
def test_serving(serving, allowed, ok):
    check = serving_check("spark1", serving, allowed)
    assert check.ok is ok
    assert "fabric_apply_while_serving: true" in check.cure


# Shape: rdma-resource(8) of iproute2 with -j; the kernel's own GSI pair has a comm in brackets and no pid
QPS = """[{"ifindex":0,"ifname":"rocep1s0f0","port":1,"lqpn":1,"type":"GSI","state":"RTS","sq-psn":0,"comm":"ib_core"},
{"ifindex":0,"ifname":"rocep1s0f0","port":1,"lqpn":281,"type":"RC","state":"RTS","pid":4242,"comm":"python3"},
{"ifindex":1,"ifname":"roceP2p1s0f0","port":1,"lqpn":282,"type":"RC","state":"RTS","pid":4242,"comm":"python3"}]"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", []), ("[]", []), ("Failed to open", []), (QPS, ["process 4242 (python3) holds RDMA queue pairs"])],
)
def test_queue_pairs(text, expected):
    assert queue_pairs(text) == expected
