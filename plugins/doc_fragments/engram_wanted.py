# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Which Engram rows the engine of a node reads."""

    DOCUMENTATION = r"""
options:
  engram:
    description:
      - Which Engram rows the engine of this node reads, and where.
      - A revision whose rows on this node were cut for another rank, another number of ranks, by another rule or for another placement
        cannot be served then, since the engine would read holes as zeros. Without this option nothing is said of that.
    type: dict
    suboptions:
      placement:
        description: Where the rows lie, as for O(gb10.ring.engram_rows#module:placement).
        type: str
        choices: [directory, shard, full]
        default: full
      rule:
        description: How the engine splits the tables. Empty where it is not known, with whole shards.
        type: str
        choices: ["", vllm, sglang]
        default: ""
      tensor_parallel:
        description: Number of ranks of the group.
        type: int
        default: 1
      rank:
        description: Rank of this node, from 0.
        type: int
        default: 0
      directory:
        description: Directory of the rows with O(engram.placement=directory). C(engram) below that of the checkpoint unless given.
        type: path
"""
