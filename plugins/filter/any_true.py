# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: any_true
short_description: Whether a registered result says yes on any host
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Looks at the value O(key) of the registered variable O(name) on each of O(hosts), and is true when one of them is true.
  - Hosts on which the variable or the key is not defined count as false.
  - It decides things that concern a group as a whole. When one rank of an engine has to start again, all of them have to.
positional: hosts, name, key
extends_documentation_fragment:
  - gb10.ring.hosts
  - gb10.ring.hosts.name
options:
  key:
    description: Key in the registered result.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Stop the group when any rank has to start again
  gb10.ring.engine_service:
    state: stopped
  when: hostvars | gb10.ring.any_true(ansible_play_hosts_all, 'engine_unit_result', 'restart')
"""

RETURN = r"""
_value:
  description: Whether the value is true on any of the hosts.
  type: bool
"""


def any_true(hostvars, hosts, name, key):
    """Whether hostvars[host][name][key] is true for any host."""
    return any(bool((hostvars[host].get(name) or {}).get(key)) for host in hosts)


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"any_true": any_true}
