# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports as the modules get them."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PortsError, parse_ports
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS


def test_parse():
    ports = parse_ports(PORTS, 9000)
    assert [port.cidr for port in ports] == ["10.100.0.1/24", "10.100.1.1/24", "10.100.4.1/24", "10.100.5.1/24"]
    assert ports[3].label == "enP2p1s0f1np1 (port 1, rail 1, 10.100.5.0/24 to spark3)"


@pytest.mark.parametrize(
    ("options", "mtu", "message"),
    [
        ([], 9000, "ports is empty, expected the netdevs of the fabric (fabric_ports)"),
        (PORTS, 576, "mtu is 576, expected 1280 to 9216 bytes"),
        (
            [{**PORTS[0], "netdev": "eth0:\n  x"}],
            9000,
            "ports[0].netdev is 'eth0:\n  x', expected an interface name of up to 15 characters",
        ),
        (
            [PORTS[0], {**PORTS[1], "address": "10.100.1.1/24", "prefix": 32, "peer_address": "spark2"}],
            9000,
            "ports[1].prefix is 32, expected 1 to 31; ports[1].address is '10.100.1.1/24', expected an IPv4 address; "
            "ports[1].peer_address is 'spark2', expected an IPv4 address",
        ),
        (
            [PORTS[0], {**PORTS[1], "netdev": "enp1s0f0np0"}],
            9000,
            "netdev enp1s0f0np0 is given twice, expected one entry for each netdev",
        ),
        (
            [PORTS[0], {**PORTS[1], "address": "10.100.0.3"}],
            9000,
            "enp1s0f0np0 and enP2p1s0f0np0 are both in 10.100.0.0/24, expected a subnet for each",
        ),
    ],
)
def test_refusal(options, mtu, message):
    with pytest.raises(PortsError) as caught:
        parse_ports(options, mtu)
    assert str(caught.value) == message
