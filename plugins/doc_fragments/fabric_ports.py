# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that work on the fabric's netdevs of one node: C(ports), and by the part C(mtu) their MTU."""

    DOCUMENTATION = r"""
options:
  ports:
    description:
      - The fabric's netdevs of this node, in the shape of the host variable C(fabric_ports) of P(gb10.ring.topology#inventory).
      - Each is in a subnet of its own.
    type: list
    elements: dict
    required: true
    suboptions:
      port:
        description: Number of the QSFP cage. 0 is the one beside the RJ45 socket.
        type: int
        required: true
        choices: [0, 1]
      rail:
        description: Number of the PCIe function behind the cage.
        type: int
        required: true
        choices: [0, 1]
      netdev:
        description: Name of the interface, up to 15 characters.
        type: str
        required: true
      rdma_device:
        description: Name of the RDMA device of the same function.
        type: str
        required: true
      address:
        description: IPv4 address of the interface.
        type: str
        required: true
      prefix:
        description: Prefix length of the subnet, in bits.
        type: int
        required: true
      subnet:
        description: Subnet of the leg in CIDR form.
        type: str
        required: true
      peer:
        description: Inventory name of the node at the other end.
        type: str
        required: true
      peer_netdev:
        description: Name of the interface at the other end.
        type: str
        required: true
      peer_address:
        description: IPv4 address at the other end.
        type: str
        required: true
"""

    MTU = r"""
options:
  mtu:
    description: MTU of the interfaces in bytes, from 1280 to 9216. With 9000 RDMA uses its largest path MTU, 4096.
    type: int
    default: 9000
"""
