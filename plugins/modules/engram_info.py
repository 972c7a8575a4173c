#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engram_info
short_description: Look at the Engram rows that a node holds
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Compares what C(engram-local.json) says, and the files beside it, with the rows that follow from the revision's C(config.json).
  - Does not fail on a failed check. P(gb10.ring.engram_tiles#filter) judges the rows of all nodes together.
options:
  root:
    description: Directory of all checkpoints on the node.
    type: path
    default: /var/lib/gb10-ring/checkpoints
  name:
    description: Name of the checkpoint.
    type: str
    required: true
  revision:
    description: Name of the revision that the rows should be of. The active one unless given.
    type: str
  node:
    description: Inventory name of this node, which the checks carry.
    type: str
    required: true
  tensor_parallel:
    description: Number of ranks of the group.
    type: int
    required: true
  rank:
    description: Rank of this node, from 0.
    type: int
    required: true
  rule:
    description: How the engine splits the tables, as in M(gb10.ring.engram_rows).
    type: str
    choices: [vllm, sglang]
    required: true
  placement:
    description: Where the rows lie, as in M(gb10.ring.engram_rows).
    type: str
    choices: [directory, shard, full]
    default: full
  directory:
    description: Directory of O(placement=directory). C(engram) below that of the checkpoint unless given.
    type: path
  verify:
    description:
      - With V(recorded), sizes, modification times and allocated blocks are compared with what was recorded when the rows were verified.
      - With V(full), every row is read again and held to the recorded digest, at O(rate_limit) at most.
    type: str
    choices: [recorded, full]
    default: recorded
  rate_limit:
    description: Limit to reading again, in bytes a second. V(0) means none.
    type: int
    default: 600000000
  python_path:
    description: Directory on the node that holds awscrt, which O(verify=full) needs.
    type: path
    default: /var/lib/gb10-ring/python
attributes:
  check_mode:
    description: Runs the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Never changes anything.
    support: full
seealso:
  - module: gb10.ring.engram_rows
  - plugin: gb10.ring.engram_tiles
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Look at the rows of this node's rank
  gb10.ring.engram_info:
    name: DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
    node: "{{ inventory_hostname }}"
    tensor_parallel: 3
    rank: "{{ ring_rank }}"
    rule: vllm
    placement: directory
  register: checkpoint_engram_info
"""

RETURN = r"""
checks:
  description: C(checkpoint.engram), and C(checkpoint.engram_unused) where slices lie that no engine is told of.
  returned: success
  type: list
  elements: dict
  sample:
    - id: checkpoint.engram
      node: spark2
      ok: true
      severity: error
      found: rows 1:128000880:256002934,14:128004290:256009984 by rule vllm, slices of 67.6 GB, as they were verified
      expected: rows 1:128000880:256002934,14:128004290:256009984 for rank 1 of 3 by rule vllm in /srv/engram
      cure: run the playbook that stages the checkpoint
engram:
  description:
    - C(path), C(placement), C(rule), C(tensor_parallel), C(rank), C(revision) and C(ranges) of the rows that are there, and when they
      were verified (C(created)).
    - C(tables) are the rows of each whole table. C(allocated) is what the slices take on the disk, in bytes. C(verified_rows) is 0 where
      the check failed.
  returned: success
  type: dict
  sample:
    path: /var/lib/gb10-ring/checkpoints/small/engram
    placement: directory
    rule: vllm
    tensor_parallel: 3
    rank: 1
    revision: 6d2f1f7a3c0b9e55
    ranges: {"1": [128000880, 256002934], "14": [128004290, 256009984]}
    tables: {"1": 384006168, "14": 384016682}
    allocated: 67586048000
    verified_rows: 256007748
    created: "2026-11-29T22:00:00Z"
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_inspection
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import DEFAULT_PYTHON_PATH
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import ROOT_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    options = {
        **ROOT_OPTIONS,
        "name": {"type": "str", "required": True},
        "revision": {"type": "str"},
        "node": {"type": "str", "required": True},
        "tensor_parallel": {"type": "int", "required": True},
        "rank": {"type": "int", "required": True},
        "rule": {"type": "str", "choices": ["vllm", "sglang"], "required": True},
        "placement": {"type": "str", "choices": ["directory", "shard", "full"], "default": "full"},
        "directory": {"type": "path"},
        "verify": {"type": "str", "choices": ["recorded", "full"], "default": "recorded"},
        "rate_limit": {"type": "int", "default": 600_000_000},
        "python_path": {"type": "path", "default": DEFAULT_PYTHON_PATH},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    try:
        checks, state = row_inspection.information(module.params)
    except (HostError, ManifestError) as error:
        module.fail_json(msg=f"{module.params['node']}: {error}")
    module.exit_json(changed=False, checks=[check.to_dict() for check in checks], engram=state)


if __name__ == "__main__":
    main()
