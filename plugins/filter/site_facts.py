# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: site_facts
short_description: What a report shows beside the checks, from the results of all roles
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Puts legs, versions, disks, memory and Engram rows of every host in O(hosts) together, from what the roles' C(verify) tasks registered.
  - A part that was not looked at is null.
positional: hosts
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
"""

EXAMPLES = r"""
- name: Report the site as a page
  gb10.ring.report:
    title: verify
    checks: []
    site: "{{ hostvars | gb10.ring.site_facts(ansible_play_hosts_all) }}"
    html_path: reports/verify.html
  run_once: true
"""

RETURN = r"""
_value:
  description: C(shape), C(mtu), C(legs), C(nodes) and C(versions), as C(site) of C(docs/report.schema.json) has them.
  type: dict
"""

from ansible_collections.gb10.ring.plugins.module_utils.report.site import site


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"site_facts": site}
