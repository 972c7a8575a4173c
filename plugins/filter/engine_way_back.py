# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_way_back
short_description: Whether a group can go back to the configuration that passed last, and what the run ends with
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Looks at the registered results of M(gb10.ring.engine_passed) with O(gb10.ring.engine_passed#module:state=restored) of all nodes. A group can
    go back when every node has a configuration that passed, all of them passed together, and it is another one than the present.
  - The text names what did not pass, from C(ansible_failed_result) of the nodes that failed, and what came of going back.
positional: hosts, name, wanted, ready
options:
  _input:
    description: The C(hostvars) mapping.
    type: dict
    required: true
  hosts:
    description: Inventory names of the ranks.
    type: list
    elements: str
    required: true
  name:
    description: Name of the registered variable.
    type: str
    required: true
  wanted:
    description: Whether going back is wanted at all.
    type: bool
    required: true
  ready:
    description: Name of the registered result of M(gb10.ring.engine_ready) after the return.
    type: str
    default: ""
  allowed:
    description: Whether the group may be stopped for it.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: End the run with what did not pass
  ansible.builtin.fail:
    msg: "{{ (hostvars | gb10.ring.engine_way_back(ansible_play_hosts_all, 'engine_passed_result', true)).said }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: C(possible), whether the group can go back, and C(said), the text.
  type: dict
"""

from ansible_collections.gb10.ring.plugins.module_utils.engine.passed import way_back


def engine_way_back(hostvars, hosts, name, wanted, ready="", *, allowed=True):
    """possible and said."""
    results = {host: hostvars[host].get(name) or {} for host in hosts}
    failures = {host: str((hostvars[host].get("ansible_failed_result") or {}).get("msg") or "") for host in hosts}
    states = {host: str((hostvars[host].get(ready) or {}).get("state")) for host in hosts} if ready else {}
    return way_back(results, failures, bool(wanted), states, bool(allowed))


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"engine_way_back": engine_way_back}
