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
  - With O(placement=directory), which all revisions share, the shards that the rows were taken from have to be those of the revision, by
    its receipt, whichever revision C(engram-local.json) names.
  - Allocated blocks are compared too, and the bytes of the copy of the index. With O(verify=full) every row is held to the digest that was
    recorded of it.
  - With O(placement=full) the shards with tables have to be there, as long as their headers say, and without holes.
  - Does not fail on a failed check. P(gb10.ring.engram_tiles#filter) judges the rows of all nodes together.
extends_documentation_fragment:
  - gb10.ring.attributes.looking
  - gb10.ring.checkpoint_place
  - gb10.ring.checkpoint_look
  - gb10.ring.engram_rank
options:
  revision:
    description: Name of the revision that the rows should be of. The active one unless given.
    type: str
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

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_inspection, telling
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import ENGRAM_INFO_OPTIONS


def main() -> None:
    module = AnsibleModule(argument_spec=ENGRAM_INFO_OPTIONS, supports_check_mode=True)
    telling.tell(module, "engram", row_inspection.information)


if __name__ == "__main__":
    main()
