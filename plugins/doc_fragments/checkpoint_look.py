# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that look at what a node holds of a checkpoint."""

    DOCUMENTATION = r"""
options:
  node:
    description: Inventory name of this node, which the checks carry.
    type: str
    required: true
  verify:
    description:
      - With V(recorded), sizes and modification times are compared with those that the files had when they were verified.
      - >-
        With V(full), all of it is read again and its digests computed, at O(rate_limit) at most. What was read does not stay in the
        page cache.
    type: str
    choices: [recorded, full]
    default: recorded
  rate_limit:
    description:
      - Limit to reading again, in bytes a second. V(0) means none.
      - The default leaves most of the disk to an engine that serves. 460 GB take 13 minutes at it.
    type: int
    default: 600000000
  python_path:
    description: Directory on the node that holds awscrt, which O(verify=full) needs for CRC-64/NVME.
    type: path
    default: /var/lib/gb10-ring/python
"""
