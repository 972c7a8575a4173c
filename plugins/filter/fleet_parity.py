# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_parity
short_description: Compare what has to be equal on all nodes, and name the odd one out
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Compares C(facts.platform) of the registered variable O(variable) over O(hosts), property by property.
  - A property that all nodes have alike is one check that holds. Otherwise each node that differs from most has a check of its own that
    says what the others have; without a majority every node has one.
  - Nodes that did not answer, and properties that a node does not tell, are left out.
positional: hosts, variable, properties
options:
  _input:
    description: The C(hostvars) mapping.
    type: dict
    required: true
  hosts:
    description: Inventory names, for example C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
  variable:
    description: Name of the registered result of M(gb10.ring.preflight_check).
    type: str
    required: true
  properties:
    description: What to compare. Without it, all of them.
    type: list
    elements: str
    choices: [kernel, driver, page_size, kho, memory, swap, oom_daemon, thp, hotplug, rdma_core]
seealso:
  - module: gb10.ring.preflight_check
  - module: gb10.ring.report
"""

EXAMPLES = r"""
- name: Report everything that is wrong on any node, and what differs between them
  gb10.ring.report:
    title: preflight
    checks: >-
      {{ (hostvars | gb10.ring.collected(ansible_play_hosts_all, 'preflight_checks'))
      + (hostvars | gb10.ring.fleet_parity(ansible_play_hosts_all, 'preflight_checks')) }}
  run_once: true
"""

RETURN = r"""
_value:
  description: Checks C(parity.PROPERTY), each a dictionary with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.module_utils.memory import parity


def fleet_parity(hostvars, hosts, variable, properties=None):
    """The checks of parity.compare, as reports take them."""
    names = tuple(parity.PROPERTIES) if properties is None else properties
    try:
        checks = parity.compare(parity.facts_of(hostvars, hosts, variable), names)
    except ValueError as error:
        raise AnsibleFilterError(f"fleet_parity: {error}") from error
    return [check.to_dict() for check in checks]


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"fleet_parity": fleet_parity}
