#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_info
short_description: Look at the checkpoint that a node holds
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Reports the revisions of a checkpoint and which one is active, and checks the active one against its receipt.
  - With O(verify=full) a file for which the store had no checksum is left out.
  - Does not fail on a failed check. M(gb10.ring.report) judges the checks of all nodes together, and
    P(gb10.ring.same_revision#filter) whether they have the same revision active.
extends_documentation_fragment:
  - gb10.ring.engram_wanted
  - gb10.ring.attributes.looking
  - gb10.ring.checkpoint_place
  - gb10.ring.checkpoint_look
options:
  revision:
    description: Name of the revision that should be active. Without it, any.
    type: str
  tensor_parallel:
    description:
      - Number of ranks that C(config.json) should be fitted to, as M(gb10.ring.checkpoint_config) does it. V(0) stands for the file as
        it was staged.
      - Without it, both are right.
    type: int
  disk_ceiling_percent:
    description: How full the file system may be before a warning, in percent of its size.
    type: int
    default: 85
seealso:
  - module: gb10.ring.checkpoint_stage
  - module: gb10.ring.report
  - plugin: gb10.ring.same_revision
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Look at the checkpoint
  gb10.ring.checkpoint_info:
    name: DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
    node: "{{ inventory_hostname }}"
  register: checkpoint_checks

- name: Read all of it again, as fast as the disk allows
  gb10.ring.checkpoint_info:
    name: DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
    node: "{{ inventory_hostname }}"
    verify: full
    rate_limit: 0
  register: checkpoint_checks
"""

RETURN = r"""
checks:
  description:
    - >-
      C(checkpoint.current), C(checkpoint.files), C(checkpoint.extra), C(checkpoint.config), C(checkpoint.disk), C(checkpoint.switch),
      which says whether a switch of the group or a replacement in place has not ended here, and C(checkpoint.unfinished) for each other
      revision whose staging or deletion has not ended.
    - Files, extra and config are left out when there is no receipt to compare with.
  returned: success
  type: list
  elements: dict
  sample:
    - id: checkpoint.files
      node: spark1
      ok: true
      severity: error
      found: 54 files, 460.1 GB, sizes and times as verified
      expected: 54 files as in receipts/6d2f1f7a3c0b9e55.json
      cure: ""
checkpoint:
  description:
    - C(path) of the checkpoint, C(current) revision, C(revisions), C(unfinished) staging in bytes by revision, figures of the C(disk)
      in bytes, and the revision that the checks C(looked_at). What is left of a revision that was being deleted counts as unfinished, with
      C(.pruned-) before its name.
    - Of a revision, C(bytes) is what its files hold, C(allocated) what they take on the disk and C(frees) what deleting it gives back.
    - C(wrong) names the files that are not as the receipt has them by size and modification time. C(complete) says that there are none.
    - C(standing) is RV(gb10.ring.checkpoint_stage#module:standing).
  returned: success
  type: dict
  sample:
    path: /var/lib/gb10-ring/checkpoints/small
    current: 6d2f1f7a3c0b9e55
    looked_at: 6d2f1f7a3c0b9e55
    revisions:
      - revision: 6d2f1f7a3c0b9e55
        active: true
        created: "2026-11-29T22:00:00Z"
        receipt: /var/lib/gb10-ring/checkpoints/small/receipts/6d2f1f7a3c0b9e55.json
        files: 54
        bytes: 460082619454
        allocated: 460082675712
        frees: 460082675712
        complete: true
        wrong: {}
        derived: tp3
    unfinished: {}
    standing:
      current: 6d2f1f7a3c0b9e55
      record: {active: 6d2f1f7a3c0b9e55, previous: "", target: "", downtime_s: null}
      complete: [6d2f1f7a3c0b9e55]
      serves: 6d2f1f7a3c0b9e55
    disk: {size: 983547510784, used: 565400000000, available: 418147510784, reserved: 0}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import inspection, telling
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import CHECKPOINT_INFO_OPTIONS


def main() -> None:
    module = AnsibleModule(argument_spec=CHECKPOINT_INFO_OPTIONS, supports_check_mode=True)
    telling.tell(module, "checkpoint", inspection.information)


if __name__ == "__main__":
    main()
