#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_netplan
short_description: Give the fabric's interfaces their addresses by a netplan file
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Owns one netplan file, which gives each fabric interface its address and MTU, without DHCP, IPv6 and a wait at boot. Other
    netplan files are never changed, and the renderer that the machine uses stays.
  - >-
    Before anything is changed, C(netplan generate) judges a copy of the machine's whole configuration with the new file in it.
    When it refuses, the module fails with the file and line, and nothing has changed.
  - >-
    Then the file is replaced and C(netplan apply) is run. When that fails, the earlier file comes back and is applied again.
  - >-
    The interfaces are compared as well as the file. One with other addresses or another MTU, or one that was set down, is applied
    again. One that is absent (DGX OS powers unused ports off) or has no carrier cannot be judged and is no change.
extends_documentation_fragment:
  - gb10.ring.fabric_ports
options:
  path:
    description: The file, directly in C(/etc/netplan), with the name ending in C(.yaml).
    type: path
    default: /etc/netplan/60-gb10-ring.yaml
attributes:
  check_mode:
    description: Can run in check mode and says what it would change. The configuration is judged by netplan then too.
    support: full
  diff_mode:
    description: Shows the file before and after, and each interface that differs.
    support: full
  idempotent:
    description: Changes nothing when the file and the interfaces with carrier are as planned.
    support: full
requirements:
  - netplan 1.0 or newer on the node
  - C(ip) of iproute2 on the node
seealso:
  - module: gb10.ring.fabric_check
"""

EXAMPLES = r"""
- name: Give the fabric its addresses
  gb10.ring.fabric_netplan:
    ports: "{{ fabric_ports }}"
    mtu: "{{ fabric_mtu }}"
"""

RETURN = r"""
path:
  description: The file.
  returned: success
  type: str
  sample: /etc/netplan/60-gb10-ring.yaml
reasons:
  description: What was changed and why, or would be in check mode, one line each.
  returned: success
  type: list
  elements: str
  sample:
    - "/etc/netplan/60-gb10-ring.yaml: absent"
    - "enp1s0f0np0: interface differs"
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric import netplan, netplan_host
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PORT_OPTIONS, PortsError, parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

ROOT = Path("/")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "dict", "required": True, "options": PORT_OPTIONS},
            "mtu": {"type": "int", "default": 9000},
            "path": {"type": "path", "default": "/etc/netplan/60-gb10-ring.yaml"},
        },
        supports_check_mode=True,
    )
    name = module.params["path"]
    try:
        ports = parse_ports(module.params["ports"], module.params["mtu"])
        path = netplan_host.locate(name, ROOT)
        state = netplan_host.read_state(path)
        planned = netplan.plan_netplan(name, ports, module.params["mtu"], state)
        if planned.plan.changed:
            netplan_host.validate(path, planned.text, ROOT)
            if not module.check_mode:
                netplan_host.apply(planned, path, state)
    except (HostError, PortsError) as error:
        module.fail_json(msg=str(error))
    plan = planned.plan
    module.exit_json(changed=plan.changed, diff=plan.diff(), path=name, reasons=plan.reasons())


if __name__ == "__main__":
    main()
