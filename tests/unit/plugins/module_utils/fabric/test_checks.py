# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the legs, and the output of ping."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.checks import (
    Ping,
    can_ping,
    leg_checks,
    leg_reports,
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
        *("ping", "-M", "do", "-s", "8972", "-c", "2", "-W", "2", "-I", "enp1s0f0np0", "10.100.0.2")
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


@pytest.mark.parametrize(
    ("seen", "ping", "verdicts"),
    [
        (None, None, {"presence": False}),
        (link(carrier=False), None, {"presence": True, "carrier": False}),
        (link(up=False, carrier=False), None, {"presence": True, "carrier": False}),
        (link(), Ping(2, 2), {"presence": True, "carrier": True, "address": True, "mtu": True, "ping": True}),
        (link(), Ping(2, 1), {"presence": True, "carrier": True, "address": True, "mtu": True, "ping": False}),
        (link(ipv4=()), None, {"presence": True, "carrier": True, "address": False, "mtu": True}),
        (
            link(ipv4=(*OWN, "192.168.0.1/24")),
            Ping(2, 2),
            {"presence": True, "carrier": True, "address": False, "mtu": True, "ping": True},
        ),
        (link(mtu=1500), None, {"presence": True, "carrier": True, "address": True, "mtu": False}),
    ],
)
def test_verdicts(seen, ping, verdicts):
    checks = leg_checks("spark1", PORT, 9000, seen, ping)
    assert {check.id: check.ok for check in checks} == {f"fabric.{name}": ok for name, ok in verdicts.items()}
    assert {check.node for check in checks} == {"spark1"}
    assert all(check.found and check.expected and check.cure for check in checks)


@pytest.mark.parametrize(
    ("seen", "ping", "found", "expected", "cure"),
    [
        (
            None,
            None,
            "no netdev enp1s0f0np0",
            "netdev enp1s0f0np0 (port 0, rail 0) for 10.100.0.0/24 to spark2",
            "plug in the cable of port 0",
        ),
        (
            link(carrier=False),
            None,
            f"no carrier on {LABEL}",
            "carrier from enp1s0f1np1 of spark2",
            "seat the cable from port 0 of spark1 to spark2 (enp1s0f1np1)",
        ),
        (
            link(up=False, carrier=False),
            None,
            f"set down, no carrier on {LABEL}",
            "carrier from enp1s0f1np1 of spark2",
            "run 'netplan apply' on spark1",
        ),
        (
            link(ipv4=(*OWN, "192.168.0.1/24")),
            Ping(2, 2),
            f"10.100.0.1/24, 192.168.0.1/24 on {LABEL}",
            "10.100.0.1/24 and no other IPv4 address",
            "remove 192.168.0.1/24: look for enp1s0f0np0 in /etc/netplan",
        ),
        (
            link(ipv4=()),
            None,
            f"no IPv4 address on {LABEL}",
            "10.100.0.1/24 and no other IPv4 address",
            "run the fabric role again",
        ),
        (link(mtu=1500), None, f"1500 bytes on {LABEL}", "9000 bytes", "run the fabric role again"),
        (
            link(),
            Ping(2, 0, "", small=True),
            f"0 of 2 replies from 10.100.0.2 on {LABEL}, small ones pass",
            "every reply to unfragmented packets of 9000 bytes",
            "set mtu 9000 at the other end, enp1s0f1np1 of spark2",
        ),
        (
            link(),
            Ping(2, 0, "sendmsg: Message too long", small=False),
            f"0 of 2 replies from 10.100.0.2 on {LABEL} (sendmsg: Message too long)",
            "every reply to unfragmented packets of 9000 bytes",
            "see that port 0 of spark1 is cabled to enp1s0f1np1 of spark2",
        ),
    ],
)
def test_failed_check_says_what_to_do(seen, ping, found, expected, cure):
    (failed,) = [check for check in leg_checks("spark1", PORT, 9000, seen, ping) if not check.ok]
    assert (failed.found, failed.expected, failed.severity) == (found, expected, "error")
    assert failed.cure.startswith(cure)


def test_a_leg_is_up_when_it_was_pinged_and_all_checks_hold():
    ports = parse_ports(PORTS, 9000)
    links = {port.netdev: Link(port.netdev, 9000, True, True, (port.cidr,)) for port in ports[:3]}
    pings = {ports[0].netdev: Ping(2, 2), ports[1].netdev: Ping(2, 0)}
    legs = leg_reports("spark1", ports, 9000, links, pings)
    assert [leg.up for leg in legs] == [True, False, False, False]
    assert [len(leg.checks) for leg in legs] == [5, 5, 4, 1]
