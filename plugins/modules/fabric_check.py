#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_check
short_description: Climb the ladder of fabric checks on a node
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Looks at every leg of the node from the cheap to the expensive, presence, PCIe link, carrier, speed, IPv4 address, MTU and route, and
    pings the other end with unfragmented packets of the full MTU, all legs at once; then at the RoCE v2 GID and RDMA's active MTU.
    Every node pings, so that each leg is tried in both directions.
  - Looks for addresses that put two interfaces of the node in one subnet, and compares the firmware with that of the other nodes.
  - >-
    Looks again until interfaces and pings are as they should be or O(timeout) has passed, since an interface gets carrier only when
    both ends are up and its address after that.
  - Changes nothing and does not fail on a failed check. M(gb10.ring.report) judges the checks of all nodes together.
  - >-
    RDMA's active MTU is what C(ibv_devinfo) says. Where that is not installed it follows from the interface's MTU by the kernel's rule,
    the largest of 256 to 4096 that leaves 96 bytes for headers.
extends_documentation_fragment:
  - gb10.ring.fabric_ports
  - gb10.ring.fabric_ports.mtu
  - gb10.ring.attributes.looking
  - gb10.ring.roots.sysfs
options:
  node:
    description: Inventory name of this node, which the checks carry.
    type: str
    required: true
  timeout:
    description:
      - How long to wait for everything to hold, in seconds. With 0 it looks once.
      - Pings under way are let finish, so a failing run takes up to about 5 seconds more.
    type: int
    default: 30
  expected_speed:
    description: Speed of every interface in Mb/s, 0 for any. Both functions of a GB10 port report 200000.
    type: int
    default: 200000
  expected_pcie_speed:
    description: Speed of every function's PCIe link, as sysfs writes it. Empty leaves speed and width out.
    type: str
    default: 32.0 GT/s
  expected_pcie_width:
    description: Lanes of every function's PCIe link.
    type: int
    default: 4
  expected_driver:
    description: Driver of every interface. Empty for any.
    type: str
    default: mlx5_core
  expected_flaps:
    description: Carrier changes since the interface appeared that are no news.
    type: int
    default: 20
  rdma:
    description: Look at GID and active MTU too. A node without RDMA modules has neither.
    type: bool
    default: true
  cabling:
    description:
      - Checks C(fabric.cabling) of any nodes, from the cabling probe. Those about O(node) become part of the result.
    type: list
    elements: dict
    default: []
  firmware:
    description:
      - Firmware versions of all nodes, by inventory name, as P(gb10.ring.fabric_firmware#filter) gathers them.
      - Empty leaves the comparison out.
    type: dict
    default: {}
requirements:
  - C(ip) of iproute2 and C(ping) of iputils on the node
seealso:
  - module: gb10.ring.fabric_info
  - module: gb10.ring.fabric_netplan
  - module: gb10.ring.report
"""

EXAMPLES = r"""
- name: Check the fabric
  gb10.ring.fabric_check:
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"
    mtu: "{{ fabric_mtu }}"
  register: fabric_checks
"""

RETURN = r"""
checks:
  description:
    - >-
      The checks of every leg, C(fabric.presence), C(fabric.pcie), C(fabric.carrier), C(fabric.flaps), C(fabric.speed),
      C(fabric.address), C(fabric.mtu), C(fabric.route), C(fabric.ping), C(fabric.gid) and C(fabric.active_mtu).
    - Then those of the node, C(fabric.subnet), C(fabric.firmware) and C(fabric.cabling).
    - Those that cannot hold after an earlier failure of the same leg are left out.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Name of the check.
      type: str
    node:
      description: Inventory name of the node.
      type: str
    ok:
      description: Whether it held.
      type: bool
    severity:
      description: >-
        What a failure means, V(info) for C(fabric.flaps), V(warning) for C(fabric.firmware), V(error) for the others.
      type: str
    found:
      description: What was found, with the leg.
      type: str
    expected:
      description: What should have been found.
      type: str
    cure:
      description: What to do about a failure.
      type: str
    netdevs:
      description: The node's own fabric interfaces that it is about. Absent where it is about none.
      type: list
      elements: str
  sample:
    - id: fabric.mtu
      node: spark1
      ok: true
      severity: error
      netdevs: [enp1s0f0np0]
      found: 9000 bytes on enp1s0f0np0 (port 0, rail 0, 10.100.0.0/24 to spark2)
      expected: 9000 bytes
      cure: run the fabric role again; if it stays, another netplan file sets the mtu of enp1s0f0np0
legs_up:
  description: How many legs passed all checks, the ping among them.
  returned: success
  type: int
  sample: 4
legs_total:
  description: How many legs the node has.
  returned: success
  type: int
  sample: 4
legs_down:
  description: Interfaces of the legs that did not.
  returned: success
  type: list
  elements: str
  sample: []
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric import ladder
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PORT_OPTIONS, PortsError, parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.fabric.probe import survey
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPEC = {
    "ports": {"type": "list", "elements": "dict", "required": True, "options": PORT_OPTIONS},
    "mtu": {"type": "int", "default": 9000},
    "node": {"type": "str", "required": True},
    "timeout": {"type": "int", "default": 30},
    "expected_speed": {"type": "int", "default": 200000},
    "expected_pcie_speed": {"type": "str", "default": "32.0 GT/s"},
    "expected_pcie_width": {"type": "int", "default": 4},
    "expected_driver": {"type": "str", "default": "mlx5_core"},
    "expected_flaps": {"type": "int", "default": 20},
    "rdma": {"type": "bool", "default": True},
    "cabling": {"type": "list", "elements": "dict", "default": []},
    "firmware": {"type": "dict", "default": {}},
    "sysfs_root": {"type": "path", "default": "/sys"},
}


def expectation(options):
    names = ("speed", "pcie_speed", "pcie_width", "driver", "flaps")
    return ladder.Expected(
        mtu=options["mtu"], rdma=options["rdma"], **{name: options[f"expected_{name}"] for name in names}
    )


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    try:
        ports = parse_ports(options["ports"], options["mtu"])
        seen = survey(ports, options["mtu"], options["timeout"], Path(options["sysfs_root"]))
    except (HostError, PortsError) as error:
        module.fail_json(msg=str(error))
    legs = ladder.leg_reports(options["node"], ports, expectation(options), seen)
    whole = ladder.node_checks(options["node"], ports, seen.links, options["firmware"], options["cabling"])
    module.exit_json(
        changed=False,
        checks=[check.to_dict() for check in (*(check for leg in legs for check in leg.checks), *whole)],
        legs_up=sum(leg.up for leg in legs),
        legs_total=len(legs),
        legs_down=[port.netdev for port, leg in zip(ports, legs, strict=True) if not leg.up],
    )


if __name__ == "__main__":
    main()
