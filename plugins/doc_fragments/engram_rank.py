# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Which Engram rows a node has, and where they lie."""

    DOCUMENTATION = r"""
options:
  tensor_parallel:
    description: Number of ranks of the group.
    type: int
    required: true
  rank:
    description: Rank of this node, from 0.
    type: int
    required: true
  rule:
    description:
      - How the engine splits the tables. V(vllm) gives each rank whole hash columns, V(sglang) even rows.
      - Rows that were cut by the other rule are read as zeros on every rank but the first, so there is no default.
    type: str
    choices: [vllm, sglang]
    required: true
  placement:
    description:
      - With V(directory) the rows lie in a directory of their own, O(directory), with a copy of the index. The revision has whole shards.
      - With V(shard) the slice is the shard in the revision, its other tensors included.
      - With V(full) there are no slices, the revision has whole shards.
    type: str
    choices: [directory, shard, full]
    default: full
  directory:
    description:
      - Directory on the node for O(placement=directory). It belongs to this checkpoint and this rank alone.
      - An absolute path, not within the directories of revisions or stagings of the checkpoint, whose shards slices would replace.
      - C(engram) below that of the checkpoint unless given.
    type: path
"""
