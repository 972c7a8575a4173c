# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: budget_rows
short_description: The disk budget of a checkpoint, one row a node
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Reads C(checkpoint_budget), the result of M(gb10.ring.checkpoint_stage) with C(phase=budget) that the role C(checkpoint)
    registers, of every host in O(hosts), and writes its numbers for people.
  - Hosts without such a result contribute nothing.
positional: hosts
extends_documentation_fragment:
  - gb10.ring.hosts
seealso:
  - module: gb10.ring.checkpoint_stage
"""

EXAMPLES = r"""
- name: Show the budget of all nodes
  gb10.ring.report:
    title: checkpoint budget
    checks: []
    rows: "{{ hostvars | gb10.ring.budget_rows(ansible_play_hosts) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - >-
      Dictionaries with C(node), C(needed), C(reusable), C(reclaimable), C(free), C(after), C(ceiling) and C(verdict), which is
      C(fits), C(nothing to fetch) or how much is missing. Every value is text.
  type: list
  elements: dict
"""

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.budget import table


def budget_rows(hostvars, hosts):
    results = [hostvars[host].get("checkpoint_budget") or {} for host in hosts]
    return table(result["budget"] for result in results if result.get("budget"))


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"budget_rows": budget_rows}
