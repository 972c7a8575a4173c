#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: topology_file
short_description: Write a topology file from what the cabling probe heard
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Takes the results of M(gb10.ring.fabric_cabling) of all hosts, recognises a ring, a pair or a switch, and writes the file that
    P(gb10.ring.topology#inventory) reads, with the nodes in cable order and the first of O(hosts) as rank 0.
  - Nodes are called by their own host names. Their management addresses are those by which Ansible reaches them.
  - Where the cables are nothing of the kind, it fails and says which plugs to exchange or to move, and writes no file.
  - Names of interfaces and RDMA devices are written where they are not those of DGX OS.
  - Runs on the controller; use it with C(run_once).
extends_documentation_fragment:
  - gb10.ring.attributes.changing
options:
  path:
    description: The file on the controller, whose name ends in C(.yml) or C(.yaml).
    type: path
    required: true
  hosts:
    description: Inventory names of all nodes. The first gets rank 0.
    type: list
    elements: str
    required: true
  name:
    description: Name of the variable in which each host's result was registered.
    type: str
    default: fabric_cabling_result
  supernet:
    description:
      - IPv4 network, in CIDR form, from which every leg gets a /24.
      - The first of C(10.100.0.0/16), C(10.101.0.0/16) and so on in which no node has an address, by default.
    type: str
  overwrite:
    description: Replace a file that is there with other content. Refused by default.
    type: bool
    default: false
seealso:
  - module: gb10.ring.fabric_cabling
  - plugin: gb10.ring.topology
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Write the topology file
  gb10.ring.topology_file:
    path: ring.yml
    hosts: "{{ ansible_play_hosts_all }}"
  run_once: true
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
content:
  description: Its content, empty when the cables do not make a ring, a pair or a switch.
  returned: always
  type: str
checks:
  description:
    - What was found, compared with the ring, pair or switch that comes closest, in the shape of P(gb10.ring.cabling_verdict#filter).
  returned: always
  type: list
  elements: dict
"""
