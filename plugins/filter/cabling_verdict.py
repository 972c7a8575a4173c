# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cabling_verdict
short_description: What the cabling probe of all nodes means
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Puts together what M(gb10.ring.fabric_cabling) registered in the variable O(name) of every host in O(hosts), and compares it with the
    cables that C(fabric_ports) and C(ring_shape) of these hosts plan.
  - Hosts where none of them has C(fabric_ports) are compared with the ring, pair or switch that comes closest to what was heard. The
    first host then has rank 0.
  - A host of O(ring) that is not in O(hosts) is left out of the run, as C(--limit) does. Cables that lead to it are not judged, which is one
    check of severity V(info) for each host that has some; what the others hear of each other is judged as always.
  - An error when C(fabric_ports) of two hosts contradict each other, or name a host without C(fabric_ports) or in neither list.
  - Each finding names the ends by node and port, and says which plugs to exchange or to move. The kinds are listed in
    C(docs/cabling.md).
positional: hosts, name, node, ring
options:
  _input:
    description: The C(hostvars) mapping.
    type: dict
    required: true
  hosts:
    description: Inventory names in rank order, for example C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
  name:
    description: Name of the registered variable.
    type: str
    default: fabric_cabling_result
  node:
    description: Keep only the checks of this node. All nodes' by default.
    type: str
  ring:
    description: Inventory names of all nodes that C(fabric_ports) may name, for example C(groups['ring']). O(hosts) by default.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Refuse wrong cables
  gb10.ring.report:
    title: cables
    checks: "{{ (hostvars | gb10.ring.cabling_verdict(ansible_play_hosts_all)).checks }}"
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - A dictionary with C(kind), which is V(as_planned) or the kind of the worst finding, C(shape), C(order) (the nodes in cable order),
      C(findings) and C(checks).
    - A finding has C(kind), C(ends), C(found), C(expected), C(cure) and C(severity).
    - A check has C(id) (V(fabric.cabling)), C(node), C(ok), C(severity), C(found), C(expected) and C(cure). Each node has at least one.
  type: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling import verdict
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_plan import planned


def cabling_verdict(hostvars, hosts, name="fabric_cabling_result", node=None, ring=()):
    """The verdict as a dictionary."""
    variables = {host: hostvars[host] for host in dict.fromkeys([*hosts, *ring])}
    results = [found[name] for host in hosts if "ports" in ((found := variables[host]).get(name) or {})]
    ports = {host: found["fabric_ports"] for host, found in variables.items() if "fabric_ports" in found}
    try:
        plan = planned(variables[hosts[0]].get("ring_shape", "ring"), ports) if ports else None
        found = verdict(results, list(hosts), plan).to_dict()
    except (KeyError, ValueError) as error:
        raise AnsibleFilterError(f"cabling_verdict of {name}: {error}") from error
    return {**found, "checks": [check for check in found["checks"] if node in (None, check["node"])]}


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"cabling_verdict": cabling_verdict}
