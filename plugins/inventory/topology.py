# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: topology
short_description: One topology file gives hosts, ranks, cables and fabric addresses
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Reads one YAML file that lists the nodes in cable order, and plans every fabric address from it.
  - Gives the groups C(ring) (all nodes), C(head) (rank 0) and C(workers) (the others).
  - >-
    Gives each host C(ansible_host), C(management_address), C(management_interface), C(ring_rank), C(ring_size), C(ring_shape),
    C(ring_head_address), C(fabric_mtu) and C(fabric_ports), a list of dictionaries with C(port), C(rail), C(netdev),
    C(rdma_device), C(address), C(prefix), C(subnet), C(peer), C(peer_netdev) and C(peer_address).
  - >-
    A leg is one rail of one cable. Leg number 2 * cable + rail has that /24 of O(supernet), counted from 0, and the node of
    rank r has the address r + 1 in it. O(legs) replaces that for single legs.
  - Everything that is wrong in the file is reported together, each with its place, what was found and what is allowed.
  - Any file name that ends in C(.yml) or C(.yaml) is accepted.
notes:
  - >-
    Ansible only warns about an inventory that it cannot read and goes on without hosts. Set
    C(any_unparsed_is_failed = true) in the section C([inventory]) of C(ansible.cfg) to stop there.
options:
  plugin:
    description: Marks the file as one for this plugin.
    type: str
    required: true
    choices:
      - gb10.ring.topology
  shape:
    description:
      - How the nodes are cabled.
      - V(ring) is 2 to 8 nodes, port 0 of each in port 1 of the next, and of the last in port 1 of the first. A ring of two has two
        cables.
      - V(pair) is two nodes and one cable.
      - V(switch) is 2 to 8 nodes with one port each on one switch. All nodes share one subnet a rail, and the C(peer) of each node
        in C(fabric_ports) is the next in the list, the first for the last.
    type: str
    required: true
    choices:
      - ring
      - pair
      - switch
  nodes:
    description: The nodes in cable order. The first has rank 0 and is the head.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Inventory name, a host name. No two nodes have the same.
        type: str
        required: true
      management_address:
        description: IPv4 address on O(management_interface), by which Ansible and the other nodes reach the node.
        type: str
        required: true
      port:
        description:
          - The port that the cable is in, V(0) (beside the RJ45 socket) or V(1).
          - Only for O(shape=pair), where it is 0 by default, and O(shape=switch), where it is 1 by default.
        type: int
        choices: [0, 1]
      netdevs:
        description: As O(netdevs), for this node. A port that is left out here keeps the setting of all nodes.
        type: dict
      rdma_devices:
        description: As O(rdma_devices), for this node.
        type: dict
      vars:
        description: More host variables, taken as they are. Names that the topology derives are refused.
        type: dict
        default: {}
  supernet:
    description:
      - IPv4 network, in CIDR form, from which every leg gets a /24.
      - It may not overlap the management network of any node.
    type: str
    default: 10.100.0.0/16
  mtu:
    description:
      - MTU of every fabric netdev, in bytes, from 1280 to 9216.
      - With 9000 RDMA uses its largest path MTU, 4096.
    type: int
    default: 9000
  management_interface:
    description: Name of the management interface, the same on every node, as NCCL needs it (NVIDIA nccl README).
    type: str
    default: enP7s7
  management_prefix:
    description: Prefix length of the management networks. Used only to find overlaps with O(supernet).
    type: int
    default: 24
  netdevs:
    description:
      - The fabric's netdevs, a mapping of port (V(0), V(1)) to the list of its rail 0 and its rail 1.
      - >-
        The default is C({0: [enp1s0f0np0, enP2p1s0f0np0], 1: [enp1s0f1np1, enP2p1s0f1np1]}), the names of DGX OS
        (NVIDIA connect-three-sparks README).
    type: dict
  rdma_devices:
    description:
      - RDMA devices, in the shape of O(netdevs).
      - Derived from the netdev's name by default, C(enp1s0f0np0) has C(rocep1s0f0). Needed for netdevs with other names.
    type: dict
  legs:
    description:
      - Subnets and addresses of single legs, in place of the planned ones. Legs that are not listed keep theirs.
      - No two legs may share a subnet, and none may overlap the management network of a node.
    type: list
    elements: dict
    default: []
    suboptions:
      between:
        description:
          - The cable, by the names of its two nodes in any order. C(NAME:PORT) in place of a name tells two cables between the same nodes
            apart, as in a ring of two.
          - Required for O(shape=ring). May be left out for O(shape=pair), and must be for O(shape=switch), where a rail is one leg of all nodes.
        type: list
        elements: str
      rail:
        description: The rail, V(0) or V(1).
        type: int
        required: true
        choices: [0, 1]
      subnet:
        description:
          - IPv4 network of the leg, in CIDR form, a /24, which NCCL compares (E(NCCL_IB_SUBNET_PREFIX_LEN)).
          - The leg keeps its share of O(supernet) when it is left out.
        type: str
      addresses:
        description: Mapping of node names to their IPv4 addresses in the subnet. A node that is left out keeps the address rank + 1.
        type: dict
"""

EXAMPLES = r"""
# ring.yml: three nodes, port 0 of each cabled to port 1 of the next
plugin: gb10.ring.topology
shape: ring
nodes:
  - name: spark1
    management_address: 192.0.2.11
  - name: spark2
    management_address: 192.0.2.12
  - name: spark3
    management_address: 192.0.2.13

# pair.yml: two nodes, the cable is in port 1 of both
# plugin: gb10.ring.topology
# shape: pair
# supernet: 172.20.0.0/20
# nodes:
#   - name: spark1
#     management_address: 192.0.2.11
#     port: 1
#   - name: spark2
#     management_address: 192.0.2.12
#     port: 1
#     vars:
#       ansible_user: admin

# Addresses of one leg as in NVIDIA's plan for three nodes (connect-three-sparks README), added to ring.yml
# legs:
#   - between: [spark1, spark3]
#     rail: 0
#     subnet: 192.168.2.0/24
#     addresses:
#       spark1: 192.168.2.1
#       spark3: 192.168.2.2

# Look at the plan:
#   ansible-playbook playbooks/plan.yml -i ring.yml
"""

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import groups, host_variables
from ansible_collections.gb10.ring.plugins.module_utils.topology.model import Topology, TopologyError
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology


class InventoryModule(BaseInventoryPlugin):
    """Reads the file, lets the core judge and plan, and fills the inventory."""

    NAME = "gb10.ring.topology"
    trusted_by_default = (
        True  # as group_vars are: a node's own vars may be templates, and the derived values are checked
    )

    def verify_file(self, path: str) -> bool:
        return super().verify_file(path) and path.endswith((".yml", ".yaml"))

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        # Not _read_config_data(): it stops at the first wrong type and lets unknown keys pass.
        try:
            data = loader.load_from_file(path, cache="none")
        except AnsibleError as error:
            raise AnsibleParserError(f"{path}: not valid YAML") from error
        try:
            topology = parse_topology(data)
        except TopologyError as error:
            raise AnsibleParserError(error.message(path)) from None  # Ansible would print the cause as well
        self._fill(topology)

    def _fill(self, topology: Topology) -> None:
        members = groups(topology)
        for group in members:
            self.inventory.add_group(group)
        for host, variables in host_variables(topology).items():
            for group, names in members.items():
                if host in names:
                    self.inventory.add_host(host, group)
            for name, value in variables.items():
                self.inventory.set_variable(host, name, value)
