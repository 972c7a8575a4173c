# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ladder of a leg, what follows from what, and the checks of a node as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.checks import Ping
from ansible_collections.gb10.ring.plugins.module_utils.fabric.info import Function
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ladder import (
    Expected,
    Route,
    Seen,
    firmware_check,
    leg_checks,
    leg_reports,
    node_checks,
    parse_devinfo,
    parse_route,
    roce_mtu,
    subnet_check,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.links import Link
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

PORT = parse_ports(PORTS, 9000)[0]
NETDEV = PORT.netdev
LABEL = "enp1s0f0np0 (port 0, rail 0, 10.100.0.0/24 to spark2)"
OWN = ("10.100.0.1/24",)
EXPECTED = Expected(mtu=9000)
FUNCTION = Function(
    *(0, 0, NETDEV),
    present=True,
    planned=True,
    rdma_device="rocep1s0f0",
    rdma_state="4: ACTIVE",
    gid_index=3,
    firmware="28.45.4028",
    pci_address="0000:01:00.0",
    driver="mlx5_core",
    carrier=True,
    carrier_changes=2,
    speed=200000,
    mtu=9000,
    pcie_speed="32.0 GT/s",
    pcie_width=4,
    ipv4=OWN,
)
GOOD = Ping(2, 2)
ROUTE = Route(NETDEV, "10.100.0.1")
ALL = ["presence", "pcie", "carrier", "flaps", "speed", "address", "mtu", "route", "ping", "gid", "active_mtu"]


def link(mtu: int = 9000, up: bool = True, carrier: bool = True, ipv4: tuple[str, ...] = OWN) -> Link:
    return Link(NETDEV, mtu, up, carrier, ipv4)


def seen(
    found: Link | None, ping: Ping | None = None, function: Function | None = FUNCTION, route: Route | None = ROUTE
) -> Seen:
    one = {"links": found, "pings": ping, "functions": function, "routes": route}
    return Seen(**{name: {NETDEV: value} if value is not None else {} for name, value in one.items()})


def rungs(what: Seen, expected: Expected = EXPECTED) -> list[str]:
    return [check.id.removeprefix("fabric.") for check in leg_checks("spark1", PORT, expected, what)]


def failing(what: Seen, expected: Expected = EXPECTED) -> list[str]:
    return [check.id.removeprefix("fabric.") for check in leg_checks("spark1", PORT, expected, what) if not check.ok]


def without(*names: str) -> list[str]:
    return [name for name in ALL if name not in names]


@pytest.mark.parametrize(
    ("what", "there", "bad"),
    [
        (seen(link(), GOOD), ALL, []),
        (seen(None), ["presence"], ["presence"]),
        (seen(link(carrier=False)), ALL[:4], ["carrier"]),
        (seen(link(up=False, carrier=False)), ALL[:4], ["carrier"]),
        (seen(link(), Ping(2, 1)), ALL, ["ping"]),
        (seen(link(ipv4=())), without("route", "ping", "gid"), ["address"]),
        (seen(link(ipv4=(*OWN, "192.168.0.1/24")), GOOD), ALL, ["address"]),
        (seen(link(mtu=1500)), without("ping", "active_mtu"), ["mtu"]),
        (seen(link(), GOOD, route=Route("wlP9s9", "192.168.1.7", "192.168.1.1")), ALL, ["route"]),
        (seen(link(), GOOD, route=Route("", reason="Network is unreachable")), ALL, ["route"]),
        (seen(link(), GOOD, route=Route(NETDEV, "10.100.0.9")), ALL, ["route"]),
        (seen(link(), GOOD, replace(FUNCTION, speed=100000)), ALL, ["speed"]),
        (seen(link(), GOOD, replace(FUNCTION, speed=None)), ALL, ["speed"]),
        (seen(link(), GOOD, replace(FUNCTION, pcie_speed="16.0 GT/s")), ALL, ["pcie"]),
        (seen(link(), GOOD, replace(FUNCTION, pcie_width=1)), ALL, ["pcie"]),
        (seen(link(), GOOD, replace(FUNCTION, pcie_speed="", pcie_width=None)), ALL, ["pcie"]),
        (seen(link(), GOOD, replace(FUNCTION, carrier_changes=21)), ALL, ["flaps"]),
        (seen(link(), GOOD, replace(FUNCTION, carrier_changes=None)), without("flaps"), []),
        (seen(link(), GOOD, replace(FUNCTION, gid_index=None)), ALL, ["gid"]),
        (seen(link(), GOOD, replace(FUNCTION, rdma_device="", gid_index=None)), ALL, ["gid"]),
        (seen(link(), GOOD, replace(FUNCTION, master="bond0")), ["presence"], ["presence"]),
        (seen(link(), GOOD, replace(FUNCTION, driver="r8169")), ["presence"], ["presence"]),
        (seen(link(), GOOD, replace(FUNCTION, port=1)), ["presence"], ["presence"]),
        (seen(link(), GOOD, replace(FUNCTION, rail=1)), ["presence"], ["presence"]),
        (seen(link(), GOOD, replace(FUNCTION, port=None, rail=None)), ALL, []),
        (seen(link(), GOOD, None, None), ["presence", "carrier", "address", "mtu", "ping"], []),
    ],
)
def test_the_ladder(what, there, bad):
    checks = leg_checks("spark1", PORT, EXPECTED, what)
    assert (rungs(what), failing(what)) == (there, bad)
    assert {(check.node, check.netdevs) for check in checks} == {("spark1", (NETDEV,))}
    assert all(check.found and check.expected and check.cure for check in checks)


@pytest.mark.parametrize(
    ("expected", "left_out"),
    [
        (replace(EXPECTED, speed=0), ["speed"]),
        (replace(EXPECTED, pcie_speed=""), ["pcie"]),
        (replace(EXPECTED, rdma=False), ["gid", "active_mtu"]),
    ],
)
def test_what_is_not_expected_is_left_out(expected, left_out):
    assert rungs(seen(link(), GOOD), expected) == without(*left_out)


def test_expectations_can_be_changed():
    virtual = replace(FUNCTION, driver="virtio_net", speed=10000, pcie_speed="16.0 GT/s", pcie_width=1)
    expected = Expected(9000, speed=10000, pcie_speed="16.0 GT/s", pcie_width=1, driver="virtio_net", flaps=1)
    assert failing(seen(link(), GOOD, virtual), expected) == ["flaps"]
    assert failing(seen(link(), GOOD, replace(virtual, driver="veth")), replace(expected, driver="")) == ["flaps"]


@pytest.mark.parametrize(
    ("verbs", "mtu", "bad"),
    [
        ({"rocep1s0f0": 1024}, 9000, ["active_mtu"]),
        ({"rocep1s0f0": 4096}, 9000, []),
        ({"rocep1s0f0": 1024}, 1500, ["mtu", "active_mtu"]),
    ],
)
def test_verbs_know_the_active_mtu_better(verbs, mtu, bad):
    assert failing(replace(seen(link(mtu=mtu), GOOD if mtu == 9000 else None), verbs=verbs)) == bad


@pytest.mark.parametrize(
    ("what", "ping", "found", "expected", "cure"),
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
def test_failed_check_says_what_to_do(what, ping, found, expected, cure):
    (failed,) = [check for check in leg_checks("spark1", PORT, EXPECTED, seen(what, ping)) if not check.ok]
    assert (failed.found, failed.expected, failed.severity) == (found, expected, "error")
    assert failed.cure.startswith(cure)


def test_a_leg_is_up_when_it_was_pinged_and_all_checks_hold():
    ports = parse_ports(PORTS, 9000)
    links = {port.netdev: Link(port.netdev, 9000, True, True, (port.cidr,)) for port in ports[:3]}
    pings = {ports[0].netdev: Ping(2, 2), ports[1].netdev: Ping(2, 0)}
    legs = leg_reports("spark1", ports, EXPECTED, Seen(links, pings))
    assert [leg.up for leg in legs] == [True, False, False, False]
    assert [len(leg.checks) for leg in legs] == [5, 5, 4, 1]


@pytest.mark.parametrize(
    ("change", "found", "expected"),
    [
        ({"master": "bond0"}, "enp1s0f0np0 is part of bond0", "netdev enp1s0f0np0 (port 0, rail 0)"),
        ({"port": 1}, "enp1s0f0np0 is on port 1", "netdev enp1s0f0np0 (port 0, rail 0)"),
        ({"driver": ""}, "enp1s0f0np0 has driver none, not mlx5_core", "netdev enp1s0f0np0"),
        ({"pcie_width": 1}, f"32.0 GT/s x1 at 0000:01:00.0 on {LABEL}", "32.0 GT/s x4"),
        ({"pcie_speed": "", "pcie_width": None}, "unknown x? at 0000:01:00.0", "32.0 GT/s x4"),
        ({"speed": 100000}, f"100000 Mb/s on {LABEL}", "200000 Mb/s"),
        ({"carrier_changes": 99}, f"99 carrier changes on {LABEL}", "up to 20"),
        (
            {"gid_index": None},
            "no RoCE v2 GID for 10.100.0.1 at rocep1s0f0 on enp1s0f0np0",
            "a RoCE v2 GID equal to 10.100.0.1",
        ),
        ({"rdma_device": "", "gid_index": None}, "no RDMA device at enp1s0f0np0", "a RoCE v2 GID"),
    ],
)
def test_what_the_hardware_rungs_say(change, found, expected):
    what = seen(link(), GOOD, replace(FUNCTION, **change))
    (failed,) = [check for check in leg_checks("spark1", PORT, EXPECTED, what) if not check.ok]
    assert failed.found.startswith(found)
    assert failed.expected.startswith(expected)


def test_a_route_that_leaves_the_fabric_is_named():
    what = seen(link(), GOOD, route=Route("wlP9s9", "192.168.1.7", "192.168.1.1"))
    (failed,) = [check for check in leg_checks("spark1", PORT, EXPECTED, what) if not check.ok]
    assert failed.found == "10.100.0.2 of spark2 goes by wlP9s9 via 192.168.1.1 from 192.168.1.7"
    assert failed.expected == "by enp1s0f0np0 from 10.100.0.1"


def test_flaps_do_not_take_a_leg_down():
    (leg,) = leg_reports("spark1", [PORT], EXPECTED, seen(link(), GOOD, replace(FUNCTION, carrier_changes=99)))
    assert leg.up
    assert [check.severity for check in leg.checks if not check.ok] == ["info"]


# Recorded from iproute2 6.1 and 6.15.
@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        (
            '[{"dst":"10.100.0.2","dev":"enp1s0f0np0","prefsrc":"10.100.0.1","flags":[],"uid":0,"cache":[]}]',
            Route("enp1s0f0np0", "10.100.0.1"),
        ),
        (
            '[{"dst":"10.100.0.2","gateway":"192.168.1.1","dev":"wlP9s9","prefsrc":"192.168.1.7","flags":[],"uid":0,"cache":[]}]',
            Route("wlP9s9", "192.168.1.7", "192.168.1.1"),
        ),
        ("", Route("", reason="unreachable")),
        ("[]", Route("", reason="unreachable")),
    ],
)
def test_parse_route(stdout, expected):
    assert parse_route(stdout, "unreachable") == expected


def test_a_route_that_is_no_json():
    with pytest.raises(ValueError, match="Expecting value"):
        parse_route("no JSON")


def test_parse_devinfo():
    text = (
        "hca_id:\trocep1s0f0\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
        "\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t4096 (5)\n\nhca_id:\troceP2p1s0f0\n\t\tport:\t1\n"
        "\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t1024 (3)\n"
    )
    assert parse_devinfo(text) == {"rocep1s0f0": 4096, "roceP2p1s0f0": 1024}
    assert parse_devinfo("No IB devices found\n") == {}


@pytest.mark.parametrize(
    ("mtu", "active"), [(9000, 4096), (4200, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (1280, 1024), (300, 0)]
)
def test_roce_mtu(mtu, active):
    assert roce_mtu(mtu) == active


def addresses(**given: str) -> dict[str, Link]:
    """Netdev (with _ for -) -> addresses, comma between them."""
    return {name: Link(name, 9000, True, True, tuple(text.split(","))) for name, text in given.items()}


@pytest.mark.parametrize(
    ("links", "found"),
    [
        (addresses(enp1s0f0np0="10.100.0.1/24", enP2p1s0f0np0="10.100.1.1/24", enP7s7="192.168.1.5/24"), ""),
        # both twins in one subnet, as NVIDIA's script plans a pair
        (
            addresses(enp1s0f0np0="192.168.0.1/24", enP2p1s0f0np0="192.168.0.3/24"),
            "192.168.0.3/24 on enP2p1s0f0np0 and 192.168.0.1/24 on enp1s0f0np0",
        ),
        # the management plane inside a leg's subnet
        (
            addresses(enp1s0f0np0="10.100.0.1/24", enP7s7="10.100.0.9/16"),
            "10.100.0.9/16 on enP7s7 and 10.100.0.1/24 on enp1s0f0np0",
        ),
        (addresses(enp1s0f0np0="10.100.0.1/24,10.100.0.9/24"), ""),  # one netdev: fabric.address tells
        (addresses(docker0="172.17.0.1/16", br0="172.17.0.2/16"), ""),  # not the fabric's
        (addresses(lo="127.0.0.1/8", enp1s0f0np0="10.100.0.1/24"), ""),
    ],
)
def test_subnets(links, found):
    ports = parse_ports(PORTS, 9000)
    check = subnet_check("spark1", ports, links)
    assert check.ok is not bool(found)
    assert check.netdevs == tuple(sorted(port.netdev for port in ports if port.netdev in found))
    assert check.found == (found or "no two interfaces in one subnet")


@pytest.mark.parametrize(
    ("fleet", "bad"),
    [
        ({"spark1": ["28.45.4028"], "spark2": ["28.45.4028"], "spark3": ["28.45.4028"]}, []),
        ({"spark1": ["28.45.4028"], "spark2": ["28.47.1026"], "spark3": ["28.45.4028"]}, ["spark2"]),
        ({"spark1": ["28.45.4028"], "spark2": ["28.47.1026"]}, ["spark1", "spark2"]),
        (
            {"spark1": ["a"], "spark2": ["a"], "spark3": ["b"], "spark4": ["b"]},
            ["spark1", "spark2", "spark3", "spark4"],
        ),
        ({"spark1": ["a", "b"], "spark2": ["b", "a"]}, []),
        ({"spark1": ["a"]}, []),
        ({"spark1": ["a"], "spark2": []}, []),
        ({}, []),
    ],
)
def test_firmware(fleet, bad):
    checks = [firmware_check(node, fleet) for node in fleet]
    assert [check.node for check in checks if check and not check.ok] == bad
    assert all(check.severity == "warning" for check in checks if check)


def test_the_odd_one_out_is_named():
    fleet = {"spark1": ["28.45.4028"], "spark2": ["28.47.1026"], "spark3": ["28.45.4028"]}
    check = firmware_check("spark2", fleet)
    assert check is not None
    assert check.found == "28.47.1026"
    assert check.expected == "28.45.4028 on all nodes (spark1 28.45.4028; spark3 28.45.4028)"


def test_a_node_takes_its_own_cabling_checks():
    cabling = [
        {"id": "fabric.cabling", "node": node, "ok": node == "spark1", "found": "f", "expected": "e", "other": 1}
        for node in ("spark1", "spark2")
    ]
    checks = node_checks("spark2", parse_ports(PORTS, 9000), {}, {}, cabling)
    assert [(check.id, check.ok) for check in checks] == [("fabric.cabling", False), ("fabric.subnet", True)]
