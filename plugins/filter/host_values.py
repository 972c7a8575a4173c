# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: host_values
short_description: One value of each of several hosts, by inventory name
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Returns a mapping from each of O(hosts) to its variable O(name), or to the value of O(key) in it.
  - A host on which the variable or the key is not defined has an empty text.
positional: hosts, name, key
options:
  _input:
    description: The C(hostvars) mapping.
    type: dict
    required: true
  hosts:
    description: Inventory names.
    type: list
    elements: str
    required: true
  name:
    description: Name of the variable.
    type: str
    required: true
  key:
    description: Key in the variable, for example of a registered result.
    type: str
"""

EXAMPLES = r"""
- name: Show where every node is on the management plane
  ansible.builtin.debug:
    msg: "{{ hostvars | gb10.ring.host_values(groups['ring'], 'management_address') }}"
"""

RETURN = r"""
_value:
  description: Values by inventory name.
  type: dict
"""


def host_values(hostvars, hosts, name, key=None):
    """hostvars[host][name], or hostvars[host][name][key], by host."""
    values = {host: hostvars[host].get(name, "") for host in hosts}
    return values if key is None else {host: (value or {}).get(key, "") for host, value in values.items()}


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"host_values": host_values}
