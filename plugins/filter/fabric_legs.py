# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_legs
short_description: All legs of the fabric from the variables of its hosts
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Puts the ends back together that P(gb10.ring.topology#inventory) gives each host in C(fabric_ports).
positional: hosts
options:
  _input:
    description: The C(hostvars) mapping.
    type: dict
    required: true
  hosts:
    description: Inventory names of all nodes, the group C(ring).
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Check that no node uses a subnet of the plan
  gb10.ring.preflight_check:
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"
    legs: "{{ hostvars | gb10.ring.fabric_legs(groups['ring']) }}"
"""

RETURN = r"""
_value:
  description:
    - Dictionaries in cable order, rail 0 before rail 1, with C(cable) (from 1; always 1 on a switch), C(rail), C(subnet) in CIDR form, and
      C(ends), a list of dictionaries with C(node), C(port), C(netdev) and C(address). In a ring the end in port 0 is first.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.module_utils.topology import view


def fabric_legs(hostvars, hosts):
    try:
        return view.fabric_legs(hostvars, hosts)
    except view.ViewError as error:
        raise AnsibleFilterError(f"fabric_legs: {error}") from error


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"fabric_legs": fabric_legs}
