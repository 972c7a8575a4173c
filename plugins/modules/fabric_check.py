#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_check
short_description: Check the fabric's interfaces and ping the other end of each leg
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Looks at every fabric interface of the node, presence, carrier, IPv4 address and MTU, and pings the other end of each leg with
    unfragmented packets of the full MTU, all legs at once.
  - >-
    Looks again until everything holds or O(timeout) has passed, since an interface gets carrier only when both ends are up and its
    address after that.
  - Changes nothing and does not fail on a failed check. M(gb10.ring.report) judges the checks of all nodes together.
extends_documentation_fragment:
  - gb10.ring.fabric_ports
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
attributes:
  check_mode:
    description: Runs the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Never changes anything.
    support: full
requirements:
  - C(ip) of iproute2 and C(ping) of iputils on the node
seealso:
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
    - The checks of every leg, C(fabric.presence), C(fabric.carrier), C(fabric.address), C(fabric.mtu) and C(fabric.ping).
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
      description: What a failure means, here always V(error).
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
  sample:
    - id: fabric.mtu
      node: spark1
      ok: true
      severity: error
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
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric.checks import leg_reports
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PORT_OPTIONS, PortsError, parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.fabric.probe import observe
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "dict", "required": True, "options": PORT_OPTIONS},
            "mtu": {"type": "int", "default": 9000},
            "node": {"type": "str", "required": True},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    mtu = module.params["mtu"]
    try:
        ports = parse_ports(module.params["ports"], mtu)
        seen = observe(ports, mtu, module.params["timeout"])
    except (HostError, PortsError) as error:
        module.fail_json(msg=str(error))
    legs = leg_reports(module.params["node"], ports, mtu, seen.links, seen.pings)
    module.exit_json(
        changed=False,
        checks=[check.to_dict() for leg in legs for check in leg.checks],
        legs_up=sum(leg.up for leg in legs),
        legs_total=len(legs),
    )


if __name__ == "__main__":
    main()
