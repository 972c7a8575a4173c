#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_cabling
short_description: Hear which port of which node is at the other end of each cable
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Sends small broadcast frames of the local experimental EtherType 0x88B5 on every fabric netdev of the node, four a second, and
    lists the frames that it hears on each. A frame says which machine, node, netdev, port and rail it is from.
  - Needs no address, no LLDP daemon and no IPv6. It works on ports that are in use, and next to traffic.
  - >-
    All nodes have to probe at the same time, whatever the number of forks. So start it on all nodes with O(phase=start), then collect it
    with O(phase=collect). The filter P(gb10.ring.cabling_verdict#filter) says what it means.
  - >-
    It uses the netdevs of O(ports), and those of the driver C(mlx5_core) in ports and rails that O(ports) leaves out, since a cable may
    be in a port that nobody planned.
  - >-
    It listens for O(duration), and until 2 seconds after all nodes have started: O(started_s) before its result is asked for. It goes on
    for up to O(carrier_timeout) while a port has no carrier, and for O(duration) from the moment when a port got it.
  - When nobody asks for the result, the probe ends by itself after two minutes.
options:
  node:
    description: Inventory name of this node, which its frames carry.
    type: str
    required: true
  run:
    description: >-
      A word for this run, the same on all nodes, of up to 64 letters and digits. Frames with another word are those of a stranger.
    type: str
    required: true
  phase:
    description:
      - V(start) starts the probe in the background and returns at once.
      - V(collect) waits for its end on the node and returns its result. Give it the same O(duration) and O(carrier_timeout), by which it
        knows how long to wait.
      - V(whole) does both, for a node alone.
    type: str
    choices: [start, collect, whole]
    default: whole
  ports:
    description:
      - Netdevs with their places, in the shape of the host variable C(fabric_ports) of P(gb10.ring.topology#inventory).
      - Each entry has C(port), C(rail) and C(netdev); other keys are allowed.
    type: list
    elements: dict
    default: []
  bring_up:
    description:
      - Set netdevs that are down up for the time of the probe, and down again at its end, in case of an error too.
      - Without it they are listed as not probed. Check mode works as if it were V(false).
    type: bool
    default: true
  duration:
    description: How long to send and listen at least, in seconds.
    type: int
    default: 4
  carrier_timeout:
    description: How long to wait for carrier on ports that have none, in seconds.
    type: int
    default: 6
  started_s:
    description: With V(collect), how many seconds ago the probe had been started on all nodes, as far as the caller knows.
    type: float
    default: 0
  sysfs_root:
    description: Where the kernel's sysfs is mounted. Netdevs, their drivers and RDMA devices are looked up below it.
    type: path
    default: /sys
attributes:
  check_mode:
    description: Probes in check mode too, since frames change nothing, but sets no netdev up.
    support: full
  diff_mode:
    description: Changes nothing that stays, so there is nothing to show.
    support: none
  idempotent:
    description: Leaves nothing behind.
    support: full
requirements:
  - C(ip) of iproute2 on the node
  - root, for raw sockets
seealso:
  - plugin: gb10.ring.cabling_verdict
    plugin_type: filter
  - module: gb10.ring.topology_file
"""

EXAMPLES = r"""
- name: Start the probe on every node
  gb10.ring.fabric_cabling:
    phase: start
    node: "{{ inventory_hostname }}"
    run: "{{ fabric_cabling_run }}"
    ports: "{{ fabric_ports }}"

- name: Collect what each node heard
  gb10.ring.fabric_cabling:
    phase: collect
    node: "{{ inventory_hostname }}"
    run: "{{ fabric_cabling_run }}"
  register: fabric_cabling_result
"""

RETURN = r"""
node:
  description: As given.
  returned: unless O(phase=start)
  type: str
nonce:
  description: The word of O(run).
  returned: unless O(phase=start)
  type: str
hostname:
  description: The node's own name, without its domain.
  returned: unless O(phase=start)
  type: str
machine:
  description: A name of the machine that no other has.
  returned: unless O(phase=start)
  type: str
  sample: 4cbb:4703:0000:4230
machine_source:
  description: Where RV(machine) is from, V(sys_image_guid) of the adapter or a digest of V(machine-id).
  returned: unless O(phase=start)
  type: str
addresses:
  description: The node's IPv4 addresses, a list in CIDR form for each netdev.
  returned: unless O(phase=start)
  type: dict
  sample:
    enP7s7: [192.0.2.11/24]
ports:
  description: One entry a netdev.
  returned: unless O(phase=start)
  type: list
  elements: dict
  contains:
    netdev:
      description: Its name.
      type: str
    port:
      description: Number of the cage.
      type: int
    rail:
      description: Number of the PCIe function behind the cage.
      type: int
    rdma_device:
      description: Name of the RDMA device of the same function, empty where there is none.
      type: str
    mac:
      description: Its address, empty when it does not exist.
      type: str
    present:
      description: Whether it exists.
      type: bool
    was_up:
      description: Whether it was set up before the probe.
      type: bool
    probed:
      description: Whether frames were sent and listened for.
      type: bool
    carrier:
      description: Whether it had carrier at the end of the probe.
      type: bool
    sent:
      description: How many frames it sent.
      type: int
    heard:
      description: Senders of the probe, each a dictionary with C(nonce), C(machine), C(node), C(netdev), C(port), C(rail), C(count).
      type: list
      elements: dict
    others:
      description: Addresses of senders of other broadcasts and multicasts, at most 8.
      type: list
      elements: str
"""

import re
import socket
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric import cabling_job, cabling_nics
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_probe import observe
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_window import Timing
from ansible_collections.gb10.ring.plugins.module_utils.fabric.frames import Hello, encode
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

GRACE = 15  # seconds beyond the longest that a probe can take


def prepare(options, bring_up):
    """The work of the probe; what can fail beforehand fails here, in the foreground."""
    found = cabling_nics.read_fabric(Path(options["sysfs_root"]), options["ports"])
    sender = Hello(options["run"], found.machine, options["node"], "-", 0, 0)
    encode(sender, "00:00:00:00:00:00")
    timing = Timing(options["duration"], options["carrier_timeout"])
    fixed = {"node": options["node"], "nonce": options["run"], "machine": found.machine, "machine_source": found.source}

    def work(wanted):
        ports = observe(found.nics, sender, timing, bring_up, wanted)
        return {
            **fixed,
            "hostname": socket.gethostname().split(".")[0],
            "addresses": cabling_nics.read_addresses(),
            "ports": [{**port, "rdma_device": found.rdma_devices.get(port["netdev"], "")} for port in ports],
        }

    return work


def perform(options, check_mode):
    """The module's result."""
    if not re.fullmatch(r"[A-Za-z0-9]{1,64}", options["run"]):
        raise HostError(f"run is '{options['run']}', expected up to 64 letters and digits")
    if options["phase"] == "collect":
        longest = 2 * options["duration"] + options["carrier_timeout"] + GRACE
        return cabling_job.collect(options["run"], longest, since=max(0.0, options["started_s"]))
    work = prepare(options, options["bring_up"] and not check_mode)
    if options["phase"] == "whole":
        return work(lambda: 0.0)
    cabling_job.start(options["run"], work)
    return {}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "run": {"type": "str", "required": True},
            "phase": {"type": "str", "choices": ["start", "collect", "whole"], "default": "whole"},
            "ports": {"type": "list", "elements": "dict", "default": []},
            "bring_up": {"type": "bool", "default": True},
            "duration": {"type": "int", "default": 4},
            "carrier_timeout": {"type": "int", "default": 6},
            "started_s": {"type": "float", "default": 0},
            "sysfs_root": {"type": "path", "default": "/sys"},
        },
        supports_check_mode=True,
    )
    try:
        result = perform(module.params, module.check_mode)
    except (HostError, ValueError) as error:
        module.fail_json(msg=f"{module.params['node']}: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
