# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: site_rows
short_description: One summary row a node from the results of all roles
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Reads C(fabric_checks), C(checkpoint_checks) and C(engine_checks), which the roles' verify tasks register, of every host in O(hosts).
positional: hosts
extends_documentation_fragment:
  - gb10.ring.hosts
"""

EXAMPLES = r"""
- name: Report the site
  gb10.ring.report:
    title: verify
    checks: []
    rows: "{{ hostvars | gb10.ring.site_rows(ansible_play_hosts_all) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: Dictionaries with C(node), C(legs up), C(revision), C(files), C(bytes), C(engine); every value is text.
  type: list
  elements: dict
"""

from ansible_collections.gb10.ring.plugins.module_utils.report.summary import site_rows


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"site_rows": site_rows}
