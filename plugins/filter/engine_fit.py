# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_fit
short_description: Whether what a node is to be brought is what the engine's profile reads
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Compares the rule by which Engram rows are to be cut, and the edit of C(config.json), with the engine of a profile.
  - A profile without the key C(engram) is held to the rule of its engine.
  - With O(switches) also whether the engine can be stopped and started on the nodes, which one that runs in pods cannot.
positional: placement, rule, tensor_parallel, node
options:
  _input:
    description: The profile, as P(gb10.ring.engine_profile#lookup) gives it. Nothing is said with an empty one.
    type: dict
    required: true
  placement:
    description: Where the rows are to lie.
    type: str
    required: true
    choices: [directory, shard, full]
  rule:
    description: The rule that they are to be cut by. Empty with whole shards of which nothing is said.
    type: str
    required: true
  tensor_parallel:
    description: Number of ranks that C(config.json) is to be edited for, up to 64. 0 for no edit.
    type: int
    required: true
  node:
    description: Inventory name of the node that carries the checks.
    type: str
    required: true
  switches:
    description: Whether the engine is to be stopped and started.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Refuse what the engine would not read
  gb10.ring.report:
    title: engine and checkpoint
    checks: "{{ checkpoint_engine | gb10.ring.engine_fit('shard', 'vllm', 3, inventory_hostname) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: Failed checks for M(gb10.ring.report), C(checkpoint.engram_rule), C(checkpoint.config_edit) and C(checkpoint.renderer). None when all fits.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import engine_fit as core


def engine_fit(engine, placement, rule, tensor_parallel, node, *, switches=False):
    """The checks as plain data."""
    try:
        found = core.checks(engine, placement, rule, tensor_parallel, node, switches=switches)
    except core.FitError as error:
        raise AnsibleFilterError(f"gb10.ring.engine_fit: {error}") from None
    return [check.to_dict() for check in found]


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"engine_fit": engine_fit}
