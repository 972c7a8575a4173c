#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_stage
short_description: Bring a revision of a checkpoint onto a node, verified and whole
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Compares a plan of M(gb10.ring.checkpoint_plan) with what the node holds and fetches what is missing, over O(workers) connections.
  - >-
    Finished files and finished parts of an earlier run are kept, however it ended; files equal to one of another revision become
    hard links to it.
  - >-
    Every file is checked against size and digest of the plan as it arrives, with the object pinned by its ETag. A broken connection
    is resumed where it broke. 5xx answers, resets, short answers and silence are tried again with growing pauses.
  - >-
    The revision appears under C(revisions) in one rename when all its files are there, and its receipt is written last. Files of a
    staged revision that have gone wrong are fetched again and swapped in one by one.
  - >-
    A run whose controller is interrupted ends on the nodes too, at once or, where it runs by itself (256 MiB or more), a minute
    after the controller's last sign. The next run goes on with what has come.
  - Credentials stay on the controller. The node gets presigned addresses, which are in no file that outlives the task.
  - >-
    A file of which another revision has an older state is made from a copy of that when the chunk checksums of both are known. Only
    changed chunks are fetched, and the others are read back and compared.
  - What is written does not stay in the page cache, which on a GB10 is memory that the GPU lacks.
extends_documentation_fragment:
  - gb10.ring.engram_wanted
  - gb10.ring.checkpoint_s3
  - gb10.ring.checkpoint_bring
options:
  replaced_ok:
    description:
      - Whether the task may end without the files whose objects were replaced while it ran, naming them in RV(replaced).
      - Otherwise it fails on them. In both cases everything else has come and is kept.
    type: bool
    default: false
  supersedes:
    description: Name of a revision whose unfinished staging is gone on with, because an object of it was replaced.
    type: str
  sliced:
    description:
      - Paths of files that are not staged, because M(gb10.ring.engram_rows) brings slices of them into the revision, RV(gb10.ring.engram_rows#module:sliced).
      - The revision cannot be activated before that.
    type: list
    elements: str
    default: []
  also_needed:
    description: Bytes that the budget counts beside those of the files, as RV(gb10.ring.engram_rows#module:needed).
    type: int
    default: 0
  verify:
    description:
      - >-
        With V(full) and O(phase=budget) every file of the revision that is there is read again, at O(verify_rate_limit) at most, and
        one whose digest is wrong is fetched again. So is every file of another revision that would be linked to; one whose digest is
          wrong is fetched, and stays as it is where it lies.
      - With V(recorded), sizes and modification times are compared with those that the files had when they were verified.
    type: str
    choices: [recorded, full]
    default: recorded
  verify_rate_limit:
    description: Limit to reading again, in bytes a second. V(0) means none.
    type: int
    default: 600000000
  damaged:
    description: The value RV(damaged) of a call with O(phase=budget), so that O(phase=stage) need not read everything once more.
    type: dict
  in_place:
    description:
      - >-
        Consent to replace the active revision file by file where the disk does not hold both revisions. No engine may have the
        files open. There is no way back to the old revision then but staging it again.
      - A replacement that was interrupted goes on with the next call, or back when the old revision is asked for.
    type: bool
    default: false
  keep:
    description: Revisions that M(gb10.ring.checkpoint_prune) is going to keep, for the RV(frees) of O(phase=budget).
    type: int
    default: 2
attributes:
  check_mode:
    description: Says what would be fetched, linked and kept. Nothing is fetched or written.
    support: full
  diff_mode:
    description: A table of the files that are there and that will be there.
    support: full
  idempotent:
    description: A second run with the same plan finds everything in place.
    support: full
requirements:
  - boto3 on the controller
  - Python 3.10 or newer on the node
seealso:
  - module: gb10.ring.checkpoint_plan
  - module: gb10.ring.checkpoint_activate
  - module: gb10.ring.checkpoint_info
"""

EXAMPLES = r"""
- name: Ask every node whether the checkpoint fits
  gb10.ring.checkpoint_stage:
    plan: "{{ checkpoint_plan_result.plan }}"
    phase: budget
  register: checkpoint_budget

- name: Stage the checkpoint for three ranks
  gb10.ring.checkpoint_stage:
    plan: "{{ checkpoint_plan_result.plan }}"
    bucket: models
    prefix: bot-lab-21/DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
    wheel_dir: /opt/gb10-ring/wheels
"""

RETURN = r"""
revision:
  description: Name of the revision.
  returned: success
  type: str
  sample: 6d2f1f7a3c0b9e55
path:
  description: Directory of the revision on the node.
  returned: success
  type: str
  sample: /var/lib/gb10-ring/checkpoints/small/revisions/6d2f1f7a3c0b9e55
summary:
  description:
    - What was found to be done, C(files) and C(bytes) for each of C(fetch), C(link), C(staged) and C(keep).
    - C(reused) is what of the files to fetch is copied from older states of them, because their chunks are equal.
  returned: success
  type: dict
  sample:
    fetch: {files: 52, bytes: 460082613480}
    link: {files: 0, bytes: 0}
    staged: {files: 2, bytes: 5974}
    keep: {files: 0, bytes: 0}
    reused: {files: 0, bytes: 0}
moved:
  description: Bytes that came from the object store and from other nodes, bytes that earlier runs had fetched, and how long it took.
  returned: when files were fetched
  type: dict
  sample: {s3_bytes: 460082613480, peer_bytes: 0, disk_bytes: 0, resumed_bytes: 0, seconds: 402.1, mb_per_s: 1144.2}
replaced:
  description: Paths whose objects were replaced while the task ran.
  returned: when there are any
  type: list
  elements: str
  sample: [model-00017-of-00048.safetensors]
expired:
  description: Paths whose addresses expired. The action plugin signs new ones and goes on.
  returned: when files were fetched
  type: list
  elements: str
  sample: []
reason:
  description: What to tell about RV(replaced) and RV(expired).
  returned: when there are any
  type: str
  sample: the object changed since it was planned
needs_sources:
  description: Whether there are files to fetch and no addresses were given.
  returned: when nothing was done
  type: bool
  sample: true
checks:
  description: C(checkpoint.revision), C(checkpoint.budget) and, on a node without awscrt, C(checkpoint.runtime).
  returned: with O(phase=budget)
  type: list
  elements: dict
  sample:
    - id: checkpoint.budget
      node: spark1
      ok: true
      severity: error
      found: 105.3 GB used + 460.1 GB to come = 565.4 GB of 983.5 GB (57.5 %)
      expected: at most 85 % = 836.0 GB
      cure: ""
budget:
  description:
    - The arithmetic behind C(checkpoint.budget), in bytes. P(gb10.ring.budget_rows#filter) makes a table of all nodes' budgets.
    - C(needed) is what the disk has to give, C(reusable) what it has of this plan already.
    - C(reclaimable) is what deleting old revisions and unfinished stagings would give back, without the active one.
    - C(used) includes C(reserved), the blocks that only root may take, as kubelet counts. C(short) is 0 when it fits.
  returned: with O(phase=budget)
  type: dict
  sample:
    node: spark1
    needed: 460082619454
    reusable: 0
    reclaimable: 0
    free: 878247510784
    reserved: 50000000000
    used: 105300000000
    size: 983547510784
    after: 565382619454
    ceiling: 836015384166
    short: 0
standing:
  description:
    - The active revision C(current), the C(record) of the switch that is under way or was the last, revisions that are C(complete),
      and the one that the engine's unit C(serves).
  returned: with O(phase=budget)
  type: dict
  sample:
    current: 6d2f1f7a3c0b9e55
    record: {active: 6d2f1f7a3c0b9e55, previous: 0c4a5f2d17be9a31, target: "", downtime_s: 9.4, left: ""}
    complete: [0c4a5f2d17be9a31, 6d2f1f7a3c0b9e55]
    serves: 6d2f1f7a3c0b9e55
damaged:
  description: Files whose bytes are wrong although size and time are right, with what was found; of other revisions C(../REVISION/PATH).
  returned: with O(phase=budget)
  type: dict
  sample: {}
in_place:
  description:
    - How the old revision makes room, empty when it stays. C(old) is its name, C(files) are those that are replaced.
    - C(frees), C(peak), C(after) and C(limit) are bytes, the last three of all that is in use on the disk.
  returned: with O(phase=budget)
  type: dict
  sample: {}
manifests:
  description: Directory on the node with the manifests of its revisions. That of a revision which is replaced in place stays there.
  returned: with O(phase=budget)
  type: str
  sample: /var/lib/gb10-ring/checkpoints/small/manifests
frees:
  description: Bytes that pruning gives back once the revision is active.
  returned: with O(phase=budget)
  type: int
  sample: 0
lacking:
  description: Paths of the files that have to be fetched.
  returned: with O(phase=budget)
  type: list
  elements: str
  sample: [model-00001-of-00048.safetensors]
needs_runtime:
  description: Whether the node lacks awscrt and needs it.
  returned: with O(phase=budget)
  type: bool
  sample: false
machine:
  description: Processor architecture of the node.
  returned: with O(phase=budget)
  type: str
  sample: aarch64
python:
  description: Version of the node's Python.
  returned: with O(phase=budget)
  type: str
  sample: "3.12"
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import bringing, frontend
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import STAGE_OPTIONS


def main() -> None:
    bringing.run(AnsibleModule(argument_spec=STAGE_OPTIONS, supports_check_mode=True), frontend.WORK)


if __name__ == "__main__":
    main()
