#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_info
short_description: Look at the ConnectX functions of a node
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Tells of every ConnectX netdev which port and rail it is, and its RDMA device, PCI function, driver, carrier, speed, MTU, PCIe link,
    firmware, IPv4 addresses and RoCE v2 GID. All of it is read from sysfs and from C(ip); no RDMA tool and no vendor package is needed.
  - >-
    A port is recognised by C(phys_port_name), else by the C(np0) or C(np1) that its name ends in, never by its PCI address. The two
    functions behind one port are told apart by their PCI domains.
  - >-
    A port without a cable may be absent altogether, because DGX OS powers an unused ConnectX off. That is a result like any other, with
    RV(ports[].present) false.
  - >-
    The RoCE v2 GID is found by value. Its index is 3 on many machines, 4 or 5 on others, and moves when addresses change.
  - With O(node) given it also returns the checks of the RDMA side. The module does not fail on a failed check.
extends_documentation_fragment:
  - gb10.ring.attributes.looking
  - gb10.ring.roots.etc
  - gb10.ring.roots.sysfs
options:
  ports:
    description:
      - >-
        The planned netdevs, the host variable C(fabric_ports) of P(gb10.ring.topology#inventory). Of each entry C(port), C(rail),
        C(netdev), C(rdma_device) and C(address) (IPv4 without prefix) are used.
      - Netdevs that it names are reported whatever their driver is, and those that it names but the node lacks are reported as absent.
    type: list
    elements: dict
    default: []
  node:
    description: Inventory name of the node, which the checks carry. Without it RV(checks) is empty.
    type: str
    default: ""
  expected_rate:
    description: Rate of every RDMA device in Gb/s, 0 for any. Each of the two PCIe functions of a GB10 port reports 200.
    type: float
    default: 200
  memlock:
    description: Limit that C(/etc/security/limits.d/90-gb10-ring.conf) should give all users. Empty leaves that check out.
    type: str
    default: unlimited
  packages:
    description: Packages that should be installed. Their versions are told by the check. Empty leaves it out.
    type: list
    elements: str
    default: []
  nccl_path:
    description:
      - NCCL library that will serve, or a directory that is searched for it, such as a venv or an unpacked or mounted image.
      - Empty leaves the check out.
    type: str
    default: ""
  nccl_image:
    description:
      - Container image that will serve, by name, digest or id. Its NCCL libraries are looked for without starting it.
      - The engine's is looked for by the id that the engine's record on the node has.
      - >-
        Where its layers are overlay directories they are read as they are; elsewhere a container is created, read and removed, which reads
        the whole image once.
      - Empty leaves the check out.
    type: str
    default: ""
  nccl_runtime:
    description: What has the image. V(auto) asks Docker, then Podman, those that are installed.
    type: str
    choices: [auto, docker, podman]
    default: auto
  nccl_required:
    description: Whether the directory and the image have to be on the node. V(false) makes the absence of either a warning.
    type: bool
    default: true
  nccl_subnet_aware:
    description: Whether that NCCL has to route by subnet, which a ring and a pair with mixed ports need.
    type: bool
    default: true
  dev_root:
    description: Directory that stands for C(/dev).
    type: path
    default: /dev
requirements:
  - C(ip) of iproute2 on the node
seealso:
  - module: gb10.ring.fabric_check
  - module: gb10.ring.rdma_settings
"""

EXAMPLES = r"""
- name: Look at the ConnectX functions
  gb10.ring.fabric_info:
    ports: "{{ fabric_ports }}"
  register: fabric_info_result

- name: Check the RDMA side of the planned ports
  gb10.ring.fabric_info:
    ports: "{{ fabric_ports }}"
    node: "{{ inventory_hostname }}"
  register: rdma_checks
"""

RETURN = r"""
ports:
  description:
    - >-
      An entry for each of the four functions behind the two ports, by port and rail, absent ones too; further ConnectX netdevs, of
      which port or rail is not known, come last.
    - Text is empty and a number null where the node does not tell.
  returned: success
  type: list
  elements: dict
  contains:
    port:
      description: Number of the QSFP cage. 0 is the one beside the RJ45 socket.
      type: int
      sample: 0
    rail:
      description: Number of the PCIe function behind the cage.
      type: int
      sample: 1
    netdev:
      description: Name of the interface. Empty for an absent one that is not planned.
      type: str
      sample: enP2p1s0f0np0
    present:
      description: Whether the netdev exists.
      type: bool
    planned:
      description: Whether O(ports) names the netdev.
      type: bool
    rdma_device:
      description: RDMA device of the same function.
      type: str
      sample: roceP2p1s0f0
    rdma_state:
      description: State of its port.
      type: str
      sample: "4: ACTIVE"
    rdma_rate:
      description: Rate of its port.
      type: str
      sample: 200 Gb/sec (4X HDR)
    gid_index:
      description: Index of the RoCE v2 GID that is the planned address, without plan the interface's first. Null when there is none.
      type: int
      sample: 3
    firmware:
      description: Firmware version.
      type: str
      sample: 28.45.4028
    sys_image_guid:
      description: Identifies the machine, the same on its four devices.
      type: str
      sample: 4cbb:4700:0000:4230
    pci_address:
      description: PCI function.
      type: str
      sample: "0002:01:00.0"
    driver:
      description: Driver of the function.
      type: str
      sample: mlx5_core
    master:
      description: Bond or bridge that the netdev is part of.
      type: str
      sample: ""
    carrier:
      description: Whether the netdev is set up and the other end is, too.
      type: bool
    carrier_changes:
      description: How often the carrier came or went since the netdev appeared.
      type: int
      sample: 2
    speed:
      description: Speed in Mb/s. Null without carrier.
      type: int
      sample: 200000
    mtu:
      description: MTU in bytes.
      type: int
      sample: 9000
    pcie_speed:
      description: Speed of the PCIe link, C(current_link_speed).
      type: str
      sample: 32.0 GT/s
    pcie_width:
      description: Lanes of the PCIe link, C(current_link_width).
      type: int
      sample: 4
    ipv4:
      description: IPv4 addresses in CIDR form.
      type: list
      elements: str
      sample: [10.100.1.1/24]
sys_image_guid:
  description: Identifies the machine. Empty without RDMA devices.
  returned: success
  type: str
  sample: 4cbb:4700:0000:4230
firmware:
  description: Firmware versions of the ConnectX, each once.
  returned: success
  type: list
  elements: str
  sample: [28.45.4028]
hotplug:
  description: Whether DGX OS powers an unused ConnectX off. Null where it has no such control.
  returned: success
  type: bool
checks:
  description:
    - Checks C(rdma.device), C(rdma.state) and C(rdma.rate) for each of O(ports), C(rdma.memlock), C(rdma.device_files), C(rdma.packages)
      and C(rdma.nccl_library). Of an absent device only C(rdma.device) is there, and of a port that is down no C(rdma.rate).
    - Each has C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure), and of a single leg C(netdevs), the node's own end of it.
  returned: success
  type: list
  elements: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric import (
    info,
    nccl_image,
    rdma,
    rdma_settings,
    rdma_user,
    rdma_user_look,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.links import read_links
from ansible_collections.gb10.ring.plugins.module_utils.fabric.sysfs import snapshot
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text
from ansible_collections.gb10.ring.plugins.module_utils.memory.platform_look import packages

SPEC = {
    "ports": {"type": "list", "elements": "dict", "default": []},
    "node": {"type": "str", "default": ""},
    "expected_rate": {"type": "float", "default": 200},
    "memlock": {"type": "str", "default": "unlimited"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "nccl_path": {"type": "str", "default": ""},
    "nccl_image": {"type": "str", "default": ""},
    "nccl_runtime": {"type": "str", "choices": ["auto", "docker", "podman"], "default": "auto"},
    "nccl_required": {"type": "bool", "default": True},
    "nccl_subnet_aware": {"type": "bool", "default": True},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "dev_root": {"type": "path", "default": "/dev"},
    "etc_root": {"type": "path", "default": "/etc"},
}
RECORD = "gb10-ring/engine.json"  # of the engine on this node, below /etc


def checks(options, planned, devices):
    """The RDMA side of every planned port, then what belongs to the machine."""
    node = options["node"]
    if not node:
        return []
    found = rdma.checks(node, planned, devices, options["expected_rate"])
    if options["memlock"]:
        path = Path(options["etc_root"]) / rdma_settings.LIMITS_FILE
        found.append(rdma.memlock_check(node, str(path), read_text(path) or "", options["memlock"]))
    present = {port.rdma_device for port in planned} & set(devices)
    opened = rdma_user.device_files_check(node, present, device_files(options))
    found += [opened] if opened else []
    if options["packages"]:
        found.append(rdma_user.packages_check(node, options["packages"], packages(options["packages"])))
    return [check.to_dict() for check in (*found, *nccl_checks(options))]


def image_libraries(image, runtime):
    """Where they were looked for, and what was found; why it could not be looked at is part of the finding, beside other checks."""
    try:
        return f"in image {image}", nccl_image.libraries(image, runtime)
    except HostError as error:
        return f"to be seen in image {image}: {error}", []


def nccl_checks(options):
    """The NCCL that will serve: in a venv, or in a container image."""
    node, path, image, runtime = (options[name] for name in ("node", "nccl_path", "nccl_image", "nccl_runtime"))
    to_come = [f"{path} is not on the node yet"] if path and not Path(path).exists() else []
    runs = nccl_image.run_as(image, read_text(Path(options["etc_root"]) / RECORD)) if image else ""
    to_come += [f"image {image} is not on the node yet"] if image and not nccl_image.is_there(runs, runtime) else []
    if to_come and not options["nccl_required"]:
        return [rdma_user.nccl_to_come(node, to_come)]
    places = [(f"below {path}", rdma_user_look.libraries(Path(path)))] if path else []
    places += [image_libraries(runs, runtime)] if image else []
    return [rdma_user.nccl_check(node, *place, options["nccl_subnet_aware"]) for place in places]


def device_files(options):
    return rdma_user_look.device_files(Path(options["sysfs_root"]), Path(options["dev_root"]))


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    try:
        planned = rdma.ports_from(options["ports"])
        seen = snapshot(Path(options["sysfs_root"]), [port.netdev for port in planned])
        functions = info.functions(seen, read_links(), planned)
        found = checks(options, planned, seen.devices)
    except (HostError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        ports=[function.to_dict() for function in functions],
        sys_image_guid=info.machine_guid(functions),
        firmware=info.firmware_of(functions),
        hotplug=seen.hotplug,
        checks=found,
    )


if __name__ == "__main__":
    main()
