# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that bring files of a checkpoint onto a node."""

    DOCUMENTATION = r"""
options:
  plan:
    description: The value RV(gb10.ring.checkpoint_plan#module:plan).
    type: dict
    required: true
  phase:
    description:
      - With V(budget) the node only says what would be done and whether its disk allows it, as C(checks). It does not fail on them.
      - With V(stage) it does it, and refuses when the disk does not allow it.
    type: str
    choices: [budget, stage]
    default: stage
  root:
    description: Directory of all checkpoints on the node. Revisions, staging and receipts share one file system.
    type: path
    default: /var/lib/gb10-ring/checkpoints
  bucket:
    description: Bucket that holds the checkpoint. Needed with O(phase=stage).
    type: str
  node:
    description: Inventory name of this node, which the checks carry. The name of the host that the task runs for unless given.
    type: str
  disk_ceiling_percent:
    description:
      - How full the file system may get, in percent of its size, counting as kubelet does what is not available as used.
      - The default is where kubelet begins to delete images that are not in use (its C(imageGCHighThresholdPercent)).
    type: int
    default: 85
  workers:
    description: Connections at a time, over all files. Each takes 4 MiB of memory.
    type: int
    default: 8
  stall_timeout_s:
    description: Seconds without a byte of a file, over all attempts and connections, after which that file has failed.
    type: int
    default: 300
  url_expiry_s:
    description:
      - Seconds for which a presigned address is good. When they are over, the addresses are signed anew and the transfer goes on.
      - At most 604800, seven days. Addresses signed with temporary credentials end with these.
    type: int
    default: 86400
  python_path:
    description: Directory on the node that holds awscrt, which computes CRC-64/NVME. It is filled when the node lacks awscrt.
    type: path
    default: /var/lib/gb10-ring/python
  wheel_dir:
    description: Directory on the controller that holds wheels of awscrt for the architectures of the nodes.
    type: path
  part_mib:
    description: Mebibytes of a part, which is one request and what is fetched again after a crash. 8 to 64.
    type: int
    default: 32
  rate_limit:
    description: Bytes a second that all connections of this node take together. V(0) for no limit.
    type: int
    default: 0
  progress:
    description:
      - Whether lines during the task say how far each node is.
      - With V(auto) they come when the controller runs at a terminal and there are 256 MiB or more to fetch.
    type: str
    choices: [auto, "on", "off"]
    default: auto
  peers:
    description:
      - Other nodes' web servers that have files, by path of the file. They are asked before the object store, in their order.
      - Each has C(url), and C(patience_s), the seconds for which an absent file is waited for, as long as the other node answers.
      - M(gb10.ring.checkpoint_fanout) makes it.
    type: dict
  lease_s:
    description:
      - Seconds after which the module ends when the controller has not touched its lease, a file beside the staging directory.
      - V(0) for a module whose result the controller waits for. Filled in by the action plugin.
    type: int
    default: 0
  sources_file:
    description: Path of a file on the node with the presigned addresses. Filled in by the action plugin, deleted when read.
    type: path
  ca_pem:
    description: Text of O(ca_bundle). Filled in by the action plugin.
    type: str
  wheel:
    description: Path of the awscrt wheel on the node. Filled in by the action plugin.
    type: path
"""
