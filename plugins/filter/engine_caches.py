# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_caches
short_description: Add whether all nodes have the same compiled kernels
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Takes the checks of M(gb10.ring.engine_preflight) of all nodes and adds one C(engine.caches) for each node, from what was
    registered as C(engine_preflight_result). While no rank is to start they are warnings.
options:
  _input:
    description: Checks of all nodes.
    type: list
    elements: dict
    required: true
  hostvars:
    description: Variables of all hosts.
    type: dict
    required: true
  hosts:
    description: Hosts to compare.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Report what stands in the way
  gb10.ring.report:
    title: engine preflight
    checks: "{{ found | gb10.ring.engine_caches(hostvars, ansible_play_hosts) }}"
  vars:
    found: "{{ hostvars | gb10.ring.collected(ansible_play_hosts, 'engine_preflight_result') }}"
"""

RETURN = r"""
_value:
  description: The checks with those on the kernels.
  type: list
  elements: dict
"""

from ansible_collections.gb10.ring.plugins.module_utils.engine.before_start import parity


def engine_caches(checks, hostvars, hosts):
    """checks, and one on the compiled kernels of each of hosts."""
    results = {host: hostvars[host].get("engine_preflight_result") or {} for host in hosts}
    kernels = {host: result.get("kernels", []) for host, result in results.items()}
    return parity(checks, kernels, any(result.get("starts", True) for result in results.values()))


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"engine_caches": engine_caches}
