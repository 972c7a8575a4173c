# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: site_checks
short_description: Gather the checks of all roles on several hosts, and say where there are none
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Returns the C(checks) of everything that the C(verify) tasks of O(roles) register, of every host in O(hosts), in their order.
  - Where a role has a result on some host but none on another, C(verify.looked) is a failed check of that other host, with what ended
    its tasks. A host that C(preflight.reachable) names already gets none.
positional: hosts, roles
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
  roles:
    description: Short names of roles of this collection, of C(preflight), C(fabric), C(rdma), C(memory), C(checkpoint), C(engine).
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Report what every role found on every node
  gb10.ring.report:
    title: verify
    checks: "{{ hostvars | gb10.ring.site_checks(ansible_play_hosts_all, verify_roles) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: Checks, each a dictionary with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.module_utils.report import gather


def site_checks(hostvars, hosts, roles):
    try:
        return gather.site_checks(hostvars, hosts, roles)
    except gather.RoleError as error:
        raise AnsibleFilterError(f"site_checks: {error}") from error


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"site_checks": site_checks}
