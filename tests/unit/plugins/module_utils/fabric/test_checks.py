# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the legs, and the output of ping."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.checks import (
    Ping,
    can_ping,
    parse_ping,
    ping_argv,
    settled,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.links import Link
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

PORT = parse_ports(PORTS, 9000)[0]
LABEL = "enp1s0f0np0 (port 0, rail 0, 10.100.0.0/24 to spark2)"
OWN = ("10.100.0.1/24",)


def link(mtu: int = 9000, up: bool = True, carrier: bool = True, ipv4: tuple[str, ...] = OWN) -> Link:
    return Link("enp1s0f0np0", mtu, up, carrier, ipv4)


SUMMARY = "\n--- 10.100.0.2 ping statistics ---\n"


# Recorded from iputils 20221126 (Debian 12) and 20240905 (Debian 13).
@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        (
            "PING 10.100.0.2 (10.100.0.2) from 10.100.0.1 enp1s0f0np0: 8972(9000) bytes of data.\n"
            "8980 bytes from 10.100.0.2: icmp_seq=1 ttl=64 time=0.255 ms\n"
            f"{SUMMARY}2 packets transmitted, 2 received, 0% packet loss, time 1018ms\n",
            "",
            Ping(2, 2),
        ),
        (f"{SUMMARY}2 packets transmitted, 0 received, 100% packet loss, time 1007ms\n\n", "", Ping(2, 0)),
        (
            f"{SUMMARY}2 packets transmitted, 0 received, +2 errors, 100% packet loss, time 1022ms\n\n",
            "ping: local error: message too long, mtu=1500\nping: local error: message too long, mtu=1500\n",
            Ping(2, 0, "local error: message too long, mtu=1500"),
        ),
        (
            f"{SUMMARY}2 packets transmitted, 0 received, +2 errors, 100% packet loss, time 1023ms\n\n",
            "ping: sendmsg: Message too long\nping: sendmsg: Message too long\n",
            Ping(2, 0, "sendmsg: Message too long"),
        ),
        (
            "From 10.100.0.1 icmp_seq=1 Destination Host Unreachable\n"
            f"{SUMMARY}2 packets transmitted, 0 received, +1 errors, 100% packet loss, time 1003ms\n\n",
            "ping: Warning: source address might be selected on device other than: enp1s0f1np1\n",
            Ping(2, 0, "From 10.100.0.1 icmp_seq=1 Destination Host Unreachable"),
        ),
        ("", "ping: SO_BINDTODEVICE nope: No such device\n", Ping(0, 0, "SO_BINDTODEVICE nope: No such device")),
    ],
)
def test_parse_ping(stdout, stderr, expected):
    assert parse_ping(stdout, stderr) == expected


@pytest.mark.parametrize(
    ("ping", "ok"), [(Ping(2, 2), True), (Ping(2, 1), False), (Ping(2, 0), False), (Ping(0, 0), False)]
)
def test_ping_needs_every_reply(ping, ok):
    assert ping.ok is ok


def test_ping_argv():
    assert ping_argv(PORT, 9000, 2) == [
        *("ping", "-M", "do", "-s", "8972", "-c", "2", "-i", "0.2", "-W", "2", "-I", "enp1s0f0np0", "10.100.0.2")
    ]


@pytest.mark.parametrize(
    ("seen", "pingable", "is_settled"),
    [
        (link(), True, True),
        (None, False, True),
        (link(carrier=False), False, False),
        (link(ipv4=()), False, False),
        (link(ipv4=("10.100.0.9/24",)), False, False),
        (link(ipv4=(*OWN, "10.0.0.1/8")), True, False),
        (link(mtu=1500), False, False),
        (link(mtu=9216), True, False),
    ],
)
def test_when_to_ping_and_when_to_wait(seen, pingable, is_settled):
    assert can_ping(PORT, seen, 9000) is pingable
    assert settled(PORT, seen, 9000) is is_settled
