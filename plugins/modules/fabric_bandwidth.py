#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_bandwidth
short_description: Measure the RDMA bandwidth of every leg with ib_write_bw
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    A port can pass every look at link, PCIe and counters and still move 13 Gb/s. This module measures. Used three times, with
    O(state=listening) on all nodes, then O(state=measured) on one node after the other, then O(state=stopped) on all nodes.
  - >-
    Measured is, for each cable of the node and towards its peer, every rail alone and then both at once. Since each node measures what it
    sends, every leg is measured in both directions.
  - >-
    The receivers are transient systemd units that end when they were used, when told to, or when their time is up. RDMA device and GID
    index are looked up at the time of the call.
  - The fabric is busy for three times O(duration) a cable and node. Do not measure beside a serving engine.
extends_documentation_fragment:
  - gb10.ring.fabric_ports
options:
  state:
    description:
      - V(listening) starts a receiver for each measurement of each leg.
      - V(measured) sends, and returns the checks. Run it on one node at a time.
      - V(stopped) ends the receivers.
    type: str
    required: true
    choices: [listening, measured, stopped]
  node:
    description: Inventory name of this node, which the checks carry.
    type: str
    required: true
  nodes:
    description: How many nodes measure one after the other. Receivers wait for as long as that takes.
    type: int
    default: 8
  listening:
    description:
      - Inventory names of the nodes that listen, for example C(ansible_play_hosts_all). All of them by default.
      - With O(state=measured) legs to others, which C(--limit) has left out, are not measured, and a check of severity V(info) says so.
    type: list
    elements: str
    default: []
  earlier:
    description:
      - Result of M(gb10.ring.fabric_check) on this node. Its checks come first in RV(checks).
      - Legs that it found down are not measured.
    type: dict
    default: {}
  duration:
    description: Length of one measurement in seconds.
    type: int
    default: 5
  message_size:
    description: Bytes in a message.
    type: int
    default: 1048576
  first_port:
    description: First of the eight TCP ports on which receivers wait.
    type: int
    default: 12000
  minimum:
    description: Fewest Gb/s of a rail alone.
    type: float
    default: 80
  minimum_sum:
    description: Fewest Gb/s of both rails of a cable at once.
    type: float
    default: 170
  sysfs_root:
    description: Directory that stands for C(/sys).
    type: path
    default: /sys
attributes:
  check_mode:
    description: Skipped in check mode, since it loads the fabric.
    support: none
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Reports no change; every call measures anew.
    support: full
requirements:
  - C(ib_write_bw) of perftest and C(systemd-run) on the node
seealso:
  - module: gb10.ring.fabric_check
"""

EXAMPLES = r"""
- name: Listen on every node
  gb10.ring.fabric_bandwidth:
    state: listening
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"

- name: Measure, node after node
  gb10.ring.fabric_bandwidth:
    state: measured
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"
    earlier: "{{ fabric_checks }}"
  throttle: 1
  register: fabric_bandwidth_result

- name: Listen no more
  gb10.ring.fabric_bandwidth:
    state: stopped
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"
"""

RETURN = r"""
checks:
  description:
    - Those of O(earlier), then C(fabric.bandwidth) for each leg and C(fabric.bandwidth_sum) for each cable.
    - The sum is left out when a rail alone gave no result.
    - A C(fabric.bandwidth) of severity V(info) names the legs to nodes that are not in O(listening).
    - Each has C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure), and of a single leg C(netdevs), the node's own end of it.
  returned: O(state=measured)
  type: list
  elements: dict
legs_up:
  description: How many legs passed all earlier checks and are fast enough.
  returned: O(state=measured)
  type: int
  sample: 4
legs_total:
  description: How many legs the node has.
  returned: O(state=measured)
  type: int
  sample: 4
units:
  description: The receivers.
  returned: O(state=listening)
  type: list
  elements: str
  sample: [gb10-ring-bandwidth-12000.service]
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric import bandwidth, bandwidth_run
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PORT_OPTIONS, PortsError, parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.fabric.probe import look
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPEC = {
    "state": {"type": "str", "required": True, "choices": ["listening", "measured", "stopped"]},
    "ports": {"type": "list", "elements": "dict", "required": True, "options": PORT_OPTIONS},
    "node": {"type": "str", "required": True},
    "nodes": {"type": "int", "default": 8},
    "listening": {"type": "list", "elements": "str", "default": []},
    "earlier": {"type": "dict", "default": {}},
    "duration": {"type": "int", "default": 5},
    "message_size": {"type": "int", "default": 1048576},
    "first_port": {"type": "int", "default": 12000},
    "minimum": {"type": "float", "default": 80},
    "minimum_sum": {"type": "float", "default": 170},
    "sysfs_root": {"type": "path", "default": "/sys"},
}


def act(options):
    """What the state asks for; the module's result."""
    ports = parse_ports(options["ports"])
    settings = bandwidth.Settings(**{name: options[name] for name in bandwidth.Settings.__dataclass_fields__})
    if options["state"] == "stopped":
        bandwidth_run.stop(settings)
        return {}
    known = bandwidth_run.devices(ports, look(ports, Path(options["sysfs_root"])))
    if options["state"] == "listening":
        return {"units": bandwidth_run.listen(ports, known, settings, bandwidth.lifetime(options["nodes"], settings))}
    earlier = options["earlier"]
    up = bandwidth.measurable(ports, earlier.get("legs_down", []))
    measured = bandwidth.measurable(up, (), options["listening"])
    checks = [check.to_dict() for check in bandwidth_run.measure(options["node"], ports, measured, known, settings)]
    slow = sum(not check["ok"] for check in checks if check["id"] == "fabric.bandwidth")
    unmeasured = bandwidth.unmeasured_check(options["node"], up, options["listening"])
    return {
        "checks": [*earlier.get("checks", []), *checks, *([unmeasured.to_dict()] if unmeasured else [])],
        "legs_up": len(up) - slow,
        "legs_total": len(ports),
    }


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=False)
    try:
        result = act(module.params)
    except (HostError, PortsError) as error:
        module.fail_json(msg=f"{module.params['node']}: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
