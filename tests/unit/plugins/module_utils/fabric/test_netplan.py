# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The netplan file's text, the plan, and what netplan's complaints become."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.fabric.links import Link
from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan import (
    State,
    drift,
    explain_refusal,
    plan_netplan,
    render,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.plan import Change
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

PATH = "/etc/netplan/60-gb10-ring.yaml"
ALL = parse_ports(PORTS, 9000)
TWO = ALL[:2]
AS_PLANNED = {port.netdev: Link(port.netdev, 9000, up=True, carrier=True, ipv4=(port.cidr,)) for port in TWO}
DOWN = {port.netdev: Link(port.netdev, 1500, up=False, carrier=False, ipv4=()) for port in TWO}
WANTED = render(TWO, 9000)

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
    assert render(TWO, 9000) == GOLDEN


def test_text_is_yaml_of_every_port():
    content = yaml.safe_load(render(ALL, 1500))
    assert list(content["network"]) == ["version", "ethernets"]
    assert content["network"]["ethernets"] == {
        port.netdev: {
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


def link(**changed: object) -> dict[str, Link]:
    """Both links as planned, but for the first one's given fields."""
    fields = {"mtu": 9000, "up": True, "carrier": True, "ipv4": ("10.100.0.1/24",)} | changed
    return AS_PLANNED | {"enp1s0f0np0": Link("enp1s0f0np0", **fields)}


@pytest.mark.parametrize(
    ("links", "before"),
    [
        (AS_PLANNED, []),
        ({}, []),  # absent: hot-plug has powered the ports off
        (link(carrier=False, ipv4=(), mtu=1500), []),  # waits for its other end
        (link(ipv4=()), ["no IPv4 address, mtu 9000"]),
        (link(ipv4=("10.100.0.9/24",)), ["10.100.0.9/24, mtu 9000"]),
        (link(ipv4=("10.100.0.1/16",)), ["10.100.0.1/16, mtu 9000"]),
        (link(ipv4=("10.100.0.1/24", "192.168.0.1/24")), ["10.100.0.1/24, 192.168.0.1/24, mtu 9000"]),
        (link(mtu=1500), ["10.100.0.1/24, mtu 1500"]),
        (link(up=False, carrier=False), ["down, 10.100.0.1/24, mtu 9000"]),
        (DOWN, ["down, no IPv4 address, mtu 1500"] * 2),
    ],
)
def test_drift(links, before):
    assert [change.before for change in drift(TWO, 9000, links)] == before


@pytest.mark.parametrize(
    ("state", "changed", "rewrite", "activate"),
    [
        (State(WANTED, 0o600, AS_PLANNED), [], False, False),
        (State(None, None, DOWN), [PATH, "enp1s0f0np0", "enP2p1s0f0np0"], True, True),
        (State(None, None, {}), [PATH], True, True),
        (State("network: {}\n", 0o644, AS_PLANNED), [PATH], True, True),
        (State(WANTED, 0o644, AS_PLANNED), [PATH], True, False),  # a chmod is no reason to touch the network
        (State(WANTED, 0o600, link(mtu=1500)), ["enp1s0f0np0"], False, True),
    ],
)
def test_plan(state, changed, rewrite, activate):
    planned = plan_netplan(PATH, TWO, 9000, state)
    assert [change.what for change in planned.plan.changes] == changed
    assert (planned.rewrite, planned.activate, planned.text) == (rewrite, activate, WANTED)


def test_changes_in_full():
    planned = plan_netplan(PATH, TWO, 9000, State(None, None, link(mtu=1500)))
    assert planned.plan.changes == (
        Change(PATH, "", GOLDEN, "absent"),
        Change("enp1s0f0np0", "10.100.0.1/24, mtu 1500", "10.100.0.1/24, mtu 9000", "interface differs"),
    )
    planned = plan_netplan(PATH, TWO, 9000, State(GOLDEN, 0o640, AS_PLANNED))
    assert planned.plan.changes == (Change(PATH, "mode 0640", "mode 0600", "netplan wants it closed to others"),)


CURE = "Cure: repair that file, or move it out of the netplan directories; netplan ignores every file until then."


# Recorded from netplan 1.1.2.
@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "/tmp/copy/etc/netplan/50-x.yaml:3:1: Invalid YAML: tabs are not allowed for indent:\n\tethernets: {}\n^\n",
            "/etc/netplan/50-x.yaml, line 3: netplan does not accept it: Invalid YAML: tabs are not allowed for indent. "
            f"Nothing was changed. {CURE}",
        ),
        (
            "/tmp/copy/etc/netplan/50-x.yaml:6:46: Error in network definition: unknown wifi mode 'what'\n"
            '        "x": {password: "secret word", mode: what}\n                                             ^\n',
            "/etc/netplan/50-x.yaml, line 6: netplan does not accept it: Error in network definition: "
            f"unknown wifi mode 'what'. Nothing was changed. {CURE}",
        ),
        (
            "\n** (generate:22523): WARNING **: 22:55:18.434: `gateway4` has been deprecated, use default routes instead.\n"
            "See the 'Default routes' section of the documentation for more details.\n"
            "/tmp/copy/lib/netplan/00-y.yaml:3:84: Error in network definition: invalid unsigned int value 'abc'\n",
            "/lib/netplan/00-y.yaml, line 3: netplan does not accept it: Error in network definition: "
            f"invalid unsigned int value 'abc'. Nothing was changed. {CURE}",
        ),
        (
            "/tmp/copy/run/netplan/00-x.yaml: Error in network definition: enp1s0f0np0: 'set-name:' requires 'match:' "
            "properties\n",
            "/run/netplan/00-x.yaml: netplan does not accept it: Error in network definition: enp1s0f0np0: 'set-name:' "
            f"requires 'match:' properties. Nothing was changed. {CURE}",
        ),
        (
            f"/tmp/copy{PATH}:5:7: Error in network definition: unknown key 'x'\n",
            f"{PATH}, line 5: netplan does not accept it: Error in network definition: unknown key 'x'. "
            "Nothing was changed. This file is written by gb10.ring: please report it with the topology file.",
        ),
        (
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'netplan_cli'\n",
            "netplan generate failed on a copy of the machine's configuration: ModuleNotFoundError: "
            "No module named 'netplan_cli'. Nothing was changed.",
        ),
        (
            "",
            "netplan generate failed on a copy of the machine's configuration: no output. Nothing was changed.",
        ),
    ],
)
def test_explain_refusal(said, message):
    assert explain_refusal(said, "/tmp/copy", PATH) == message
