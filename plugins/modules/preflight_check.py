#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_check
short_description: Check whether a machine can become a node, even one that does not answer
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Checks operating system, architecture, Python, systemd, privileges, tools, netplan, fabric netdevs, management address, clock, the
    data path's file system, and the platform, which is kernel, driver, memory, other engines, firewall and NCCL's own files. Reads only.
  - A node that cannot be reached, refuses the login, or has no Python gives a failed check, not an unreachable host, so that one report
    shows what is wrong on every node at once. Hand RV(checks) of all nodes to M(gb10.ring.report), which fails with all of them.
  - Does not fail on a failed check.
extends_documentation_fragment:
  - gb10.ring.attributes.looking
options:
  node:
    description: Inventory name of the node, used in the checks.
    type: str
    required: true
  ports:
    description:
      - Planned ports, the inventory's C(fabric_ports). Of each entry C(port) and C(netdev) are used, and C(subnet) to judge the firewall.
      - A GB10 powers a ConnectX off that has no cable, and its netdevs are then absent.
    type: list
    elements: dict
    default: []
  legs:
    description:
      - All legs of the plan, those of other nodes too, as the filter P(gb10.ring.fabric_legs#filter) gives them. Of each entry C(subnet),
        C(rail), and C(node) and C(port) of its C(ends) are used.
      - No address or route of the node may be in one of their subnets, other than on a netdev of O(ports) or of the netplan file of this
        collection. Empty leaves the check out.
    type: list
    elements: dict
    default: []
  management_interface:
    description: Netdev that should carry O(management_address). Empty leaves the check out.
    type: str
    default: ""
  management_address:
    description: IPv4 address, without prefix, that should be on O(management_interface) and nowhere else. Empty leaves the check out.
    type: str
    default: ""
  peers:
    description: IPv4 addresses of all nodes on the management plane, whose UDP to O(udp_ports) the firewall has to let in.
    type: list
    elements: str
    default: []
  udp_ports:
    description:
      - UDP ports at which the nodes talk on O(management_interface), those of the engine's supervisors and of the memory guards.
      - Empty, and an empty O(peers) or O(management_interface), leave the check out.
    type: list
    elements: int
    default: []
  data_path:
    description: Directory for checkpoints and state. It need not exist; the file system of its nearest parent is looked at.
    type: path
    default: /var/lib/gb10-ring
  min_python:
    description: Lowest Python version, as dotted numbers.
    type: str
    default: "3.10"
  tools:
    description: Programs that must be on PATH, which C(/usr/sbin) is added to.
    type: list
    elements: str
    default: [apt-get, ip, journalctl, modprobe, netplan, ping, swapoff, systemctl]
  expected_architectures:
    description: Machine names of C(uname -m) to accept. Empty accepts any.
    type: list
    elements: str
    default: [aarch64]
  expected_os:
    description:
      - Systems to accept, as C(ID) and C(VERSION_ID) of C(/etc/os-release) with a blank between. Empty accepts any.
      - DGX OS 7 calls itself C(ubuntu 24.04).
    type: list
    elements: str
    default: [ubuntu 24.04, debian 13]
  driver_pairs:
    description:
      - NVIDIA driver to expect with a kernel release, by that release. With any other kernel the driver only has to be loaded.
      - Empty leaves the check of the driver out, for machines without GPU.
    type: dict
    default:
      6.17.0-1031-nvidia: 580.173.02
      7.0.0-1019-nvidia: 580.178.04
  page_sizes:
    description: Sizes of a memory page to accept, in bytes.
    type: list
    elements: int
    default: [4096, 65536]
  time_sync:
    description: Whether the node has to keep its clock right by a time service.
    type: bool
    default: true
  swap:
    description: V(disabled) checks that swap in use could be switched off; V(unmanaged) leaves that check out.
    type: str
    choices: [disabled, unmanaged]
    default: disabled
  renderer:
    description:
      - What the ranks of the group run as. With V(kubernetes) an engine in a pod may be the group's own; with any other, and when empty,
        it is one that holds the memory of the group's, and C(platform.stale_engine) fails.
    type: str
    choices: ["", venv, docker, podman, kubernetes]
    default: ""
"""

EXAMPLES = r"""
- name: Look at every node
  gb10.ring.preflight_check:
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"
    legs: "{{ hostvars | gb10.ring.fabric_legs(groups['ring']) }}"
    management_interface: "{{ management_interface }}"
    management_address: "{{ management_address }}"
  register: preflight_checks

- name: Report everything that is wrong on any node
  gb10.ring.report:
    title: preflight
    checks: "{{ hostvars | gb10.ring.collected(ansible_play_hosts_all, 'preflight_checks') }}"
  run_once: true
"""

RETURN = r"""
checks:
  description:
    - Checks C(preflight.os), C(preflight.architecture), C(preflight.python), C(preflight.systemd), C(preflight.privileges),
      C(preflight.tools), C(preflight.netplan), C(preflight.port) for each physical port, C(preflight.management), C(preflight.overlap),
      C(preflight.data_path) and C(preflight.clock), each with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
    - Checks C(platform.kho), C(platform.driver), C(platform.page_size), C(platform.swap), C(platform.stale_engine),
      C(platform.lost_memory), C(platform.time_sync), C(rdma.firewall), C(rdma.forward) and C(platform.channels) where C(nft) is installed,
      C(rdma.nccl_conf), C(rdma.vendor_driver).
    - For a node that does not answer, C(preflight.reachable) alone; for one that cannot run the module, C(preflight.python) or
      C(preflight.module) alone.
  returned: always
  type: list
  elements: dict
facts:
  description: What kind of machine it is; empty for a node that did not answer.
  returned: always
  type: dict
  contains:
    architecture:
      description: Machine name of C(uname -m).
      type: str
      sample: aarch64
    python:
      description: Version of the Python that ran the module.
      type: str
      sample: 3.12.3
    os:
      description: The system's name for a person.
      type: str
      sample: Ubuntu 24.04.3 LTS, NVIDIA DGX Spark 7.5.0
    kernel:
      description: Kernel release.
      type: str
      sample: 6.17.0-1031-nvidia
    memtotal_kib:
      description: C(MemTotal) of C(/proc/meminfo), in KiB.
      type: int
      sample: 127600000
    boot_id:
      description: Identifies the running boot.
      type: str
      sample: 1f2e3d4c-0000-4000-8000-123456789abc
    platform:
      description: What has to be equal on all nodes; the filter P(gb10.ring.fleet_parity#filter) compares it.
      type: dict
      sample: {kernel: 6.17.0-1031-nvidia, driver: 580.173.02, page_size: 4096, kho: "off", oom_daemon: none}
    epoch:
      description: The node's clock during the look, in seconds since 1970.
      type: float
      sample: 1790000000.25
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.memory import firewall, platform, platform_look
from ansible_collections.gb10.ring.plugins.module_utils.report import machine, preflight
from ansible_collections.gb10.ring.plugins.module_utils.topology.overlap import planned_legs

SPEC = {
    "node": {"type": "str", "required": True},
    "ports": {"type": "list", "elements": "dict", "default": []},
    "legs": {"type": "list", "elements": "dict", "default": []},
    "management_interface": {"type": "str", "default": ""},
    "management_address": {"type": "str", "default": ""},
    "peers": {"type": "list", "elements": "str", "default": []},
    "udp_ports": {"type": "list", "elements": "int", "default": []},
    "data_path": {"type": "path", "default": "/var/lib/gb10-ring"},
    "min_python": {"type": "str", "default": "3.10"},
    "tools": {
        "type": "list",
        "elements": "str",
        "default": ["apt-get", "ip", "journalctl", "modprobe", "netplan", "ping", "swapoff", "systemctl"],
    },
    "expected_architectures": {"type": "list", "elements": "str", "default": ["aarch64"]},
    "expected_os": {"type": "list", "elements": "str", "default": ["ubuntu 24.04", "debian 13"]},
    "driver_pairs": {"type": "dict", "default": dict(platform.PAIRS)},
    "page_sizes": {"type": "list", "elements": "int", "default": [4096, 65536]},
    "time_sync": {"type": "bool", "default": True},
    "swap": {"type": "str", "choices": ["disabled", "unmanaged"], "default": "disabled"},
    "renderer": {"type": "str", "choices": ["", "venv", "docker", "podman", "kubernetes"], "default": ""},
}


def expected(options):
    """The options as the core takes them. Raises ValueError."""
    minimum = preflight.version(options["min_python"])
    if not minimum:
        raise ValueError(f"min_python is {options['min_python']!r}; dotted numbers such as 3.10 are expected")
    lacking = [number for number, port in enumerate(options["ports"]) if not {"port", "netdev"} <= set(port)]
    if lacking:
        raise ValueError(f"ports: port or netdev missing in entry {', '.join(map(str, lacking))}; use fabric_ports")
    try:
        legs = planned_legs(options["legs"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"legs: {error} in an entry is not usable; use the filter gb10.ring.fabric_legs") from error
    return preflight.Expected(
        node=options["node"],
        min_python=minimum,
        architectures=tuple(options["expected_architectures"]),
        systems=tuple(options["expected_os"]),
        ports=tuple(preflight.PlannedPort(int(port["port"]), port["netdev"]) for port in options["ports"]),
        management_interface=options["management_interface"],
        management_address=options["management_address"],
        data_path=options["data_path"],
        legs=legs,
    )


def expected_platform(options):
    """The options as the platform's checks take them."""
    return platform.Expected(
        node=options["node"],
        driver_pairs={str(kernel): str(driver) for kernel, driver in options["driver_pairs"].items()},
        page_sizes=tuple(options["page_sizes"]),
        time_sync=options["time_sync"],
        swap_off=options["swap"] == "disabled",
        legs=tuple(firewall.Leg(port["netdev"], port["subnet"]) for port in options["ports"] if "subnet" in port),
        channels=channels(options),
        renderer=options["renderer"],
    )


def channels(options):
    """What the other nodes send to this one on the management plane."""
    others = [peer for peer in options["peers"] if peer != options["management_address"]]
    netdev = options["management_interface"]
    return tuple(firewall.Leg(netdev, f"{peer}/32", port) for port in options["udp_ports"] for peer in others if netdev)


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        wanted = expected(module.params)
    except ValueError as error:
        module.fail_json(msg=f"{module.params['node']}: {error}")
    found = machine.look(module.params["tools"], wanted.data_path)
    seen = platform_look.look()
    checks = [*preflight.checks(found, wanted), *platform.checks(seen, expected_platform(module.params))]
    module.exit_json(
        changed=False,
        checks=[check.to_dict() for check in checks],
        facts={
            "architecture": found.architecture,
            "python": ".".join(map(str, found.python)),
            "os": preflight.system_title(found.os_release, found.dgx_release),
            "kernel": found.kernel,
            "memtotal_kib": seen.memory.get("MemTotal"),
            "platform": seen.facts(),
            "boot_id": machine.boot_id(),
            "epoch": time.time(),
        },
    )


if __name__ == "__main__":
    main()
