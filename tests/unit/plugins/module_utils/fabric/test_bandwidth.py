# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls, output and verdicts of ib_write_bw."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.bandwidth import (
    Device,
    Rate,
    Settings,
    argv,
    cables,
    leg_check,
    lifetime,
    listening_port,
    measurable,
    parse,
    refused,
    sending_port,
    sum_check,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.tests.unit.fixtures import ib_write_bw
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

RING = parse_ports(PORTS)
PAIR = RING[:2]
SETTINGS = Settings()


def test_calls():
    sender = argv(Device("rocep1s0f0", 5), SETTINGS, 12000, "10.100.0.2")
    assert " ".join(sender) == (
        "ib_write_bw -d rocep1s0f0 -i 1 -x 5 -p 12000 -s 1048576 -D 5 -F --report_gbits 10.100.0.2"
    )
    assert argv(Device("rocep1s0f0", 5), SETTINGS, 12000) == sender[:-1]


@pytest.mark.parametrize(
    ("stdout", "stderr", "rc", "expected"),
    [
        (ib_write_bw.report(92.57), "", 0, Rate(92.57)),
        (ib_write_bw.report(13.1, ib_write_bw.FREQUENCY), "", 0, Rate(13.1)),
        # the last row of a run over all sizes, and one without a message rate
        (
            f"{ib_write_bw.COLUMNS} 2          5000           0.142947            0.012281            0.767588\n"
            " 65536      560845           0.00               98.02\n",
            "",
            0,
            Rate(98.02),
        ),
        ("", "Couldn't connect to 10.100.0.2:12000\n", 1, Rate(None, "Couldn't connect to 10.100.0.2:12000")),
        ("", "IB device rocep1s0f0 not found\n", 1, Rate(None, "IB device rocep1s0f0 not found")),
        (
            ib_write_bw.HEAD,
            " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n",
            1,
            Rate(None, "Completion with error at client"),
        ),
        (
            ib_write_bw.HEAD,
            "Failed to modify QP 264 to RTR\n Unable to Connect the HCA's through the link\n",
            1,
            Rate(None, "Failed to modify QP 264 to RTR"),
        ),
        # rows count only when the program ended well, and only in Gb/s
        (ib_write_bw.report(92.57), "Received 10 times ADDR_ERROR\n", 1, Rate(None, "Received 10 times ADDR_ERROR")),
        (" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n", "", 0, None),
        ("", "", 0, Rate(None, "no output")),
    ],
)
def test_parse(stdout, stderr, rc, expected):
    found = parse(stdout, stderr, rc)
    assert found == expected if expected else found.gbps is None


@pytest.mark.parametrize(
    ("rate", "is_refused"),
    [
        (Rate(None, "Couldn't connect to 10.100.0.2:12000"), True),
        (Rate(None, "IB device rocep1s0f0 not found"), False),
        (Rate(92.0), False),
    ],
)
def test_a_receiver_that_is_not_there_yet(rate, is_refused):
    assert refused(rate) is is_refused


@pytest.mark.parametrize("ports", [RING, PAIR], ids=["ring", "pair"])
def test_receivers_of_a_node_have_ports_of_their_own(ports):
    used = [listening_port(ports, port, together, SETTINGS) for port in ports for together in (False, True)]
    assert len(set(used)) == 2 * len(ports)
    assert set(used) <= set(range(12000, 12008))


def test_both_ends_of_a_leg_agree_on_the_port():
    # on a ring port 0 of this node meets port 1 of the next one, whose own plan has the same shape
    for number, peer in ((0, 2), (1, 3), (2, 0), (3, 1)):
        assert sending_port(RING, RING[number], False, SETTINGS) == listening_port(RING, RING[peer], False, SETTINGS)
    # a pair may use either port at either end
    other_end = RING[2:]
    for port, peer in zip(PAIR, other_end, strict=True):
        assert sending_port(PAIR, port, True, SETTINGS) == listening_port(other_end, peer, True, SETTINGS)


def test_cables_and_legs():
    assert [[port.netdev for port in legs] for legs in cables(list(reversed(RING)))] == [
        ["enp1s0f0np0", "enP2p1s0f0np0"],
        ["enp1s0f1np1", "enP2p1s0f1np1"],
    ]
    assert measurable(RING, ["enp1s0f0np0"]) == list(RING[1:])


def test_receivers_live_as_long_as_all_nodes_measure():
    assert lifetime(3, SETTINGS) == 330
    assert lifetime(8, Settings(duration=10)) > 8 * 2 * 3 * 10


@pytest.mark.parametrize(
    ("rate", "ok", "found", "cure"),
    [
        (Rate(92.57), True, "92.57 Gb/s from enp1s0f0np0", "try another cable"),
        (Rate(80.0), True, "80.00 Gb/s", "try another cable"),
        (Rate(79.99), False, "79.99 Gb/s", "try another cable on port 0 of spark1"),
        (Rate(25.1), False, "25.10 Gb/s", "try another cable"),
        (Rate(25.0), False, "25.00 Gb/s", "shut spark1 and spark2 down"),
        (Rate(13.0), False, "13.00 Gb/s", "shut spark1 and spark2 down"),
        (Rate(8.0), False, "8.00 Gb/s", "shut spark1 and spark2 down"),
        (Rate(7.9), False, "7.90 Gb/s", "try another cable"),
        (Rate(None, "Couldn't connect"), False, "no result (Couldn't connect)", "run ib_write_bw by hand"),
    ],
)
def test_verdict_of_a_leg(rate, ok, found, cure):
    check = leg_check("spark1", RING[0], rate, SETTINGS)
    assert (check.id, check.ok, check.expected) == ("fabric.bandwidth", ok, "at least 80 Gb/s")
    assert check.found.startswith(found)
    assert check.cure.startswith(cure)
    assert ("degraded" in check.found) is (rate.gbps is not None and 8 <= rate.gbps <= 25)


def test_a_slow_leg_is_not_degraded_where_less_is_expected():
    check = leg_check("vm1", RING[0], Rate(13.0), Settings(minimum=1))
    assert check.ok
    assert "degraded" not in check.found


@pytest.mark.parametrize(
    ("rates", "ok", "found"),
    [
        ((92.57, 97.28), True, "189.85 Gb/s (92.57 Gb/s + 97.28 Gb/s) from port 0 to spark2"),
        ((85.0, 85.0), True, "170.00 Gb/s"),
        ((92.0, 77.9), False, "169.90 Gb/s"),
        ((92.0, None), False, "92.00 Gb/s (92.00 Gb/s + no result (gone))"),
        ((180.0, None), False, "180.00 Gb/s"),
    ],
)
def test_verdict_of_a_cable(rates, ok, found):
    given = {port.netdev: Rate(rate, "" if rate else "gone") for port, rate in zip(PAIR, rates, strict=True)}
    check = sum_check("spark1", PAIR, given, SETTINGS)
    assert (check.id, check.ok) == ("fabric.bandwidth_sum", ok)
    assert check.found.startswith(found)
    assert check.expected == "at least 170 Gb/s over both rails at once"
