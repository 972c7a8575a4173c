#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_info
short_description: Look at the RDMA devices of the fabric ports
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Reads state, rate, firmware, netdev and GID table of each planned RDMA device from sysfs; no RDMA tool is needed.
  - Finds the RoCE v2 GID by the planned IPv4 address. Its index is 3 on many machines, and 4 or 5 on others; it moves with address changes.
  - An absent device is a result like any other. The module does not fail on a failed check.
options:
  node:
    description: Inventory name of the node, used in the checks.
    type: str
    required: true
  ports:
    description:
      - Planned ports, the inventory's C(fabric_ports).
      - Of each entry C(port), C(rail), C(netdev), C(rdma_device) and C(address) (IPv4 without prefix) are used.
    type: list
    elements: dict
    required: true
  expected_rate:
    description: Rate of every port, in Gb/s. Each of the two PCIe functions of a GB10 port reports 200.
    type: float
    default: 200
  memlock:
    description: Limit that C(/etc/security/limits.d/90-gb10-ring.conf) should give all users; empty leaves that check out.
    type: str
    default: unlimited
  sysfs_root:
    description: Directory that stands for C(/sys).
    type: path
    default: /sys
  proc_root:
    description: Directory that stands for C(/proc).
    type: path
    default: /proc
  etc_root:
    description: Directory that stands for C(/etc).
    type: path
    default: /etc
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: none
    details: Nothing is ever changed.
  idempotent:
    description: When run twice in a row with the same arguments, the second run reports no change.
    support: full
"""

EXAMPLES = r"""
- name: Look at the RDMA devices
  gb10.ring.rdma_info:
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"
  register: rdma_checks
"""

RETURN = r"""
checks:
  description:
    - Checks C(rdma.device), C(rdma.state), C(rdma.rate) and C(rdma.gid) for each port, C(rdma.memlock), and C(rdma.cma) where the kernel
      reports CMA memory. Of an absent device only C(rdma.device) is there, and of a port that is down no C(rdma.rate) and C(rdma.gid).
    - Each has C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
  returned: success
  type: list
  elements: dict
devices:
  description: The planned devices, in the order of O(ports).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the RDMA device.
      type: str
      sample: rocep1s0f0
    present:
      description: Whether sysfs has the device.
      type: bool
    port:
      description: Physical port, 0 or 1.
      type: int
    rail:
      description: PCIe function behind the port, 0 or 1.
      type: int
    netdevs:
      description: Network devices of the same function.
      type: list
      elements: str
      sample: [enp1s0f0np0]
    state:
      description: Port state.
      type: str
      sample: "4: ACTIVE"
    rate:
      description: Port rate.
      type: str
      sample: 200 Gb/sec (4X HDR)
    link_layer:
      description: Link layer.
      type: str
      sample: Ethernet
    fw_ver:
      description: Firmware version.
      type: str
      sample: 28.45.4028
    sys_image_guid:
      description: Identifies the machine, the same on its four devices.
      type: str
      sample: 4cbb:4700:0000:4230
    gid_index:
      description: Index of the RoCE v2 GID that is the planned address; null when there is none.
      type: int
      sample: 3
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric import rdma, rdma_machine, rdma_settings
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text
from ansible_collections.gb10.ring.plugins.module_utils.memory.swap import meminfo_kib

SPEC = {
    "node": {"type": "str", "required": True},
    "ports": {"type": "list", "elements": "dict", "required": True},
    "expected_rate": {"type": "float", "default": 200},
    "memlock": {"type": "str", "default": "unlimited"},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "proc_root": {"type": "path", "default": "/proc"},
    "etc_root": {"type": "path", "default": "/etc"},
}


def machine_checks(options):
    """Checks that belong to the machine rather than to one port."""
    node, found = options["node"], []
    if options["memlock"]:
        path = Path(options["etc_root"]) / rdma_settings.LIMITS_FILE
        found.append(rdma.memlock_check(node, str(path), read_text(path) or "", options["memlock"]))
    meminfo = read_text(Path(options["proc_root"]) / "meminfo") or ""
    cma = rdma.cma_check(node, meminfo_kib(meminfo, "CmaTotal"), meminfo_kib(meminfo, "CmaFree"))
    return found + ([cma] if cma else [])


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    try:
        ports = rdma.ports_from(options["ports"])
        devices = rdma_machine.devices(Path(options["sysfs_root"]))
        checks = rdma.checks(options["node"], ports, devices, options["expected_rate"]) + machine_checks(options)
    except (HostError, ValueError) as error:
        module.fail_json(msg=f"{options['node']}: {error}")
    module.exit_json(
        changed=False,
        devices=[rdma.describe(port, devices.get(port.rdma_device)) for port in ports],
        checks=[check.to_dict() for check in checks],
    )


if __name__ == "__main__":
    main()
