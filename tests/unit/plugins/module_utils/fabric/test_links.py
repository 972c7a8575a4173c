# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of ip -j addr."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.links import Link, parse_links

FIXTURES = Path(__file__).parents[3] / "fixtures/fabric"


# Recorded with the iproute2 of Ubuntu 24.04 and of Debian 13: one leg as planned, one with a stranger's address beside its own,
# one without carrier.
@pytest.mark.parametrize("version", ["6.1.0", "6.15.0"])
def test_recorded_output(version):
    links = parse_links((FIXTURES / f"ip-addr-iproute2-{version}.json").read_text(encoding="utf-8"))
    assert links == {
        "lo": Link("lo", 65536, up=True, carrier=True, ipv4=("127.0.0.1/8",)),
        "enp1s0f0np0": Link("enp1s0f0np0", 9000, up=True, carrier=True, ipv4=("10.100.0.1/24",)),
        "enP2p1s0f0np0": Link(
            "enP2p1s0f0np0", 9000, up=True, carrier=True, ipv4=("10.100.1.1/24", "192.168.100.10/24")
        ),
        "enp1s0f1np1": Link("enp1s0f1np1", 1500, up=True, carrier=False, ipv4=()),
        "enP7s7": Link("enP7s7", 1500, up=True, carrier=True, ipv4=("192.0.2.11/24",)),
    }


def test_set_down_and_empty_entries():
    text = '[{}, {"ifname": "eth0", "flags": ["BROADCAST", "MULTICAST"], "mtu": 1500, "addr_info": []}]'
    assert parse_links(text) == {"eth0": Link("eth0", 1500, up=False, carrier=False, ipv4=())}


@pytest.mark.parametrize("text", ["", 'Object "addr" is unknown', "{"])
def test_not_json(text):
    with pytest.raises(ValueError, match="Expecting"):
        parse_links(text)


@pytest.mark.parametrize(
    ("link", "text"),
    [
        (Link("a", 9000, True, True, ("10.0.0.1/24",)), "10.0.0.1/24, mtu 9000"),
        (Link("a", 1500, True, False, ()), "no carrier, no IPv4 address, mtu 1500"),
        (Link("a", 1500, False, False, ("10.0.0.1/24", "10.0.1.1/24")), "down, 10.0.0.1/24, 10.0.1.1/24, mtu 1500"),
    ],
)
def test_describe(link, text):
    assert link.describe() == text
