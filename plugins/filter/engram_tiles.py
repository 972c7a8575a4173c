# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engram_tiles
short_description: Whether the Engram rows of all nodes together are every row once
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Puts together what M(gb10.ring.engram_info) registered in the variable O(name) of every host in O(hosts): the ranges of all ranks have to
    tile each table exactly, by one rule, for one number of ranks, which is that of O(hosts), for one revision and of tables that are as large
    everywhere.
  - Where C(preflight.reachable) names a host already, C(checkpoint.engram_tiles) is left out, since that says why nothing is known of its rows.
positional: hosts, name, node, ring
options:
  _input:
    description: The C(hostvars) mapping.
    type: dict
    required: true
  hosts:
    description: Inventory names, for example C(ansible_play_hosts_all). The first one carries the check.
    type: list
    elements: str
    required: true
  name:
    description: Name of the registered variable.
    type: str
    default: checkpoint_engram_info
  node:
    description: Keep only the checks of this node. All nodes' by default.
    type: str
  ring:
    description:
      - Inventory names of all nodes of the group, for example C(groups['ring']). O(hosts) by default.
      - Where one of them is not in O(hosts), as C(--limit) does, C(checkpoint.engram_tiles) judges nothing and has the severity V(info).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Refuse rows that nobody holds
  gb10.ring.report:
    title: engram
    checks: "{{ hostvars | gb10.ring.engram_tiles(ansible_play_hosts_all) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - Checks, each a dictionary with C(id), C(node), C(ok), C(severity), C(found), C(expected) and C(cure).
    - Those that M(gb10.ring.engram_info) returned, and C(checkpoint.engram_tiles).
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_tiles import (
    TilesError,
    registered,
    tiles_check,
    untold_tiles_check,
)
from ansible_collections.gb10.ring.plugins.module_utils.report.gather import unreachable


def engram_tiles(hostvars, hosts, name="checkpoint_engram_info", node=None, ring=()):
    """The checks as dictionaries."""
    if not hosts:
        raise AnsibleFilterError("gb10.ring.engram_tiles: hosts is empty, expected inventory names")
    told = any(unreachable(hostvars[host]) for host in hosts)
    left_out = [host for host in ring if host not in hosts]
    try:
        results = {host: registered(host, hostvars[host].get(name)) for host in hosts}
        held = {host: found.get("engram") for host, found in results.items()}
        together = untold_tiles_check(left_out, hosts[0]) if left_out else tiles_check(held, hosts[0])
    except TilesError as error:
        raise AnsibleFilterError(f"gb10.ring.engram_tiles: {name}: {error}") from None
    checks = [check for found in results.values() for check in found.get("checks") or ()]
    checks += [] if told else [together.to_dict()]
    return [check for check in checks if node in (None, check["node"])]


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"engram_tiles": engram_tiles}
