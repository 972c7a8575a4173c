# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: collected
short_description: Gather the checks that registered results hold on several hosts
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Returns one flat list of the C(checks) of the registered variables O(names) of every host in O(hosts), in their order.
  - Hosts on which a variable is not defined, or holds no C(checks), contribute nothing.
positional: hosts, names
extends_documentation_fragment:
  - gb10.ring.hosts
options:
  names:
    description: Name of the registered variable, or a list of names.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Report what every node said
  gb10.ring.report:
    title: fabric
    checks: "{{ hostvars | gb10.ring.collected(ansible_play_hosts_all, 'fabric_checks') }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: Checks, each a dictionary with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
  type: list
  elements: dict
"""

from ansible_collections.gb10.ring.plugins.module_utils.report.summary import collected


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"collected": collected}
