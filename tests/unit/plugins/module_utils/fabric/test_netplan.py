# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The netplan file's text, who renders a port, interfaces that differ, and what netplan's complaints become."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan import (
    Managers,
    Refusal,
    choose_renderers,
    describe,
    drift,
    explain_refusal,
    own_ports,
    render,
    wanted_state,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_change import state
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

ALL = parse_ports(PORTS, 9000)
TWO = ALL[:2]
FIRST, SECOND = (port.netdev for port in TWO)
WANTED = {port.netdev: wanted_state(port, 9000) for port in TWO}
AS_PLANNED = {port.netdev: state(port.cidr) for port in TWO}

GOLDEN = """\
# managed by gb10.ring: written from the topology file, changes made here are overwritten
network:
  version: 2
  ethernets:
    enp1s0f0np0:
      addresses:
        - 10.100.0.1/24
      mtu: 9000
      dhcp4: false
      dhcp6: false
      accept-ra: false
      link-local: []
      optional: true
    enP2p1s0f0np0:
      renderer: NetworkManager
      networkmanager:
        passthrough:
          ipv6.method: disabled
      addresses:
        - 10.100.1.1/24
      mtu: 9000
      dhcp4: false
      dhcp6: false
      accept-ra: false
      link-local: []
      optional: true
"""


def test_golden_text():
    assert render(TWO, 9000, {SECOND: "NetworkManager"}) == GOLDEN


@pytest.mark.parametrize("renderer", ["", "networkd", "NetworkManager"])
def test_ports_that_are_named_here(renderer):
    """One by its MAC address, and one that is not in the plan any more by two properties."""
    namings = {FIRST: {"macaddress": "4c:bb:47:01:00:00"}, SECOND: {"name": "eth*", "driver": ["mlx5_core", "a b"]}}
    content = yaml.safe_load(render(TWO[:1], 9000, dict.fromkeys((FIRST, SECOND), renderer), namings))
    entries = content["network"]["ethernets"]
    assert {name: (entry["match"], entry["set-name"]) for name, entry in entries.items()} == {
        name: (match, name) for name, match in namings.items()
    }
    assert [entry.get("renderer", "") for entry in entries.values()] == [renderer, renderer]
    assert entries[FIRST]["addresses"] == [TWO[0].cidr]
    left = {"match": namings[SECOND], "set-name": SECOND, "link-local": [], "optional": True}
    assert {key: value for key, value in entries[SECOND].items() if key not in ("renderer", "networkmanager")} == left
    off = {"ipv6.method": "disabled", "ipv4.method": "disabled"}
    assert entries[SECOND].get("networkmanager") == ({"passthrough": off} if renderer == "NetworkManager" else None)


def test_text_is_yaml_of_every_port():
    content = yaml.safe_load(render(ALL, 1500, dict.fromkeys([port.netdev for port in ALL], "networkd")))
    assert list(content["network"]) == ["version", "ethernets"]
    assert content["network"]["ethernets"] == {
        port.netdev: {
            "renderer": "networkd",
            "addresses": [port.cidr],
            "mtu": 1500,
            "dhcp4": False,
            "dhcp6": False,
            "accept-ra": False,
            "link-local": [],
            "optional": True,
        }
        for port in ALL
    }


# States as nmcli 1.52 and networkctl 257 print them.
@pytest.mark.parametrize(
    ("network_manager", "networkd", "expected"),
    [
        ({}, {FIRST: "configured"}, ""),  # no NetworkManager: netplan's default can only be networkd
        ({}, {}, ""),
        ({FIRST: "connecting (getting IP configuration)"}, {FIRST: "unmanaged"}, "NetworkManager"),
        ({FIRST: "connected"}, {FIRST: "configured"}, "NetworkManager"),
        ({FIRST: "unavailable"}, {}, "NetworkManager"),  # no carrier
        ({FIRST: "connected (externally)"}, {FIRST: "configured"}, "networkd"),
        ({FIRST: "unmanaged"}, {FIRST: "configuring"}, "networkd"),
        ({FIRST: "unmanaged"}, {FIRST: "unmanaged"}, ""),
        ({"enP7s7": "connected"}, {}, ""),  # the port is absent
    ],
)
def test_who_acts_on_a_port(network_manager, networkd, expected):
    assert Managers(network_manager, networkd).of(FIRST) == expected


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [
        ({}, "", ["NetworkManager", "NetworkManager"]),  # the absent one goes with the other
        ({}, "networkd", ["networkd", "networkd"]),
        ({FIRST: "", SECOND: ""}, "", ["", ""]),  # our file stays as it is
        ({FIRST: "networkd"}, "", ["networkd", "networkd"]),
    ],
)
def test_renderers(own, asked, expected):
    managers = Managers({FIRST: "connected"}, {})
    assert list(choose_renderers(TWO, managers, own, asked).values()) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, {}),
        ({"network": ""}, {}),
        ({"network": {"version": "2"}}, {}),
        ({"network": {"ethernets": {"a": {"mtu": "9000"}, "b": ""}}}, {"a": {"mtu": "9000"}}),
    ],
)
def test_own_ports(content, expected):
    assert own_ports(content) == expected


@pytest.mark.parametrize(
    ("links", "before"),
    [
        (AS_PLANNED, []),
        ({}, []),  # absent: hot-plug has powered the ports off
        (AS_PLANNED | {FIRST: state(mtu=1500, carrier=False)}, []),  # waits for its other end
        (AS_PLANNED | {FIRST: state()}, ["no address, mtu 9000"]),
        (AS_PLANNED | {FIRST: state("10.100.0.9/24")}, ["10.100.0.9/24, mtu 9000"]),
        (AS_PLANNED | {FIRST: state("10.100.0.1/16")}, ["10.100.0.1/16, mtu 9000"]),
        (AS_PLANNED | {FIRST: state("10.100.0.1/24", "fd00::1/64")}, ["10.100.0.1/24, fd00::1/64, mtu 9000"]),
        (AS_PLANNED | {FIRST: state("10.100.0.1/24", local="fe80::1/64")}, ["10.100.0.1/24, fe80::1/64, mtu 9000"]),
        (AS_PLANNED | {FIRST: state("10.100.0.1/24", mtu=1500)}, ["10.100.0.1/24, mtu 1500"]),
        (AS_PLANNED | {FIRST: state("10.100.0.1/24", up=False, carrier=False)}, ["down, 10.100.0.1/24, mtu 9000"]),
        (AS_PLANNED | {FIRST: state(master="bond0")}, ["no address, mtu 9000, in bond0"]),
    ],
)
def test_drift(links, before):
    changes = drift(WANTED, links, "interface differs")
    assert [change.before for change in changes] == before
    assert {change.after for change in changes} <= {"10.100.0.1/24, mtu 9000"}


def test_without_carrier_a_port_that_should_be_down_is_drift_too():
    wanted = {FIRST: {"up": False, "addresses": [], "mtu": 1500}}
    (change,) = drift(wanted, {FIRST: state("10.100.0.1/24", carrier=False)}, "was so before")
    assert (change.before, change.after) == ("no carrier, 10.100.0.1/24, mtu 9000", "down, no address, mtu 1500")
    assert describe(state()) == "no address, mtu 9000"


# Recorded from netplan 1.1.2.
@pytest.mark.parametrize(
    ("said", "refusal", "place"),
    [
        (
            "/tmp/copy/etc/netplan/50-x.yaml:3:1: Invalid YAML: tabs are not allowed for indent:\n\tethernets: {}\n^\n",
            Refusal("/etc/netplan/50-x.yaml", "3", "Invalid YAML: tabs are not allowed for indent"),
            "/etc/netplan/50-x.yaml, line 3",
        ),
        (
            "/tmp/copy/etc/netplan/50-x.yaml:6:46: Error in network definition: unknown wifi mode 'what'\n"
            '        "x": {password: "secret word", mode: what}\n                                             ^\n',
            Refusal("/etc/netplan/50-x.yaml", "6", "Error in network definition: unknown wifi mode 'what'"),
            "/etc/netplan/50-x.yaml, line 6",
        ),
        (
            "\n** (generate:22523): WARNING **: 22:55:18.434: `gateway4` has been deprecated, use default routes instead.\n"
            "See the 'Default routes' section of the documentation for more details.\n"
            "/tmp/copy/lib/netplan/00-y.yaml:3:84: Error in network definition: invalid unsigned int value 'abc'\n",
            Refusal("/usr/lib/netplan/00-y.yaml", "3", "Error in network definition: invalid unsigned int value 'abc'"),
            "/usr/lib/netplan/00-y.yaml, line 3",
        ),
        (
            "/tmp/copy/run/netplan/00-x.yaml: Error in network definition: e0: 'set-name:' requires 'match:' properties\n",
            Refusal(
                "/run/netplan/00-x.yaml",
                "",
                "Error in network definition: e0: 'set-name:' requires 'match:' properties",
            ),
            "/run/netplan/00-x.yaml",
        ),
        (
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'netplan_cli'\n",
            Refusal("", "", "ModuleNotFoundError: No module named 'netplan_cli'"),
            "",
        ),
        ("", Refusal("", "", "no output"), ""),
    ],
)
def test_explain_refusal(said, refusal, place):
    found = explain_refusal(said, "/tmp/copy")
    assert (found, found.place) == (refusal, place)
