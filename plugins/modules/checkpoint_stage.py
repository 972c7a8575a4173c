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
  - What is written does not stay in the page cache, which on a GB10 is memory that the GPU lacks.
extends_documentation_fragment:
  - gb10.ring.checkpoint_s3
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
  description: What was found to be done, C(files) and C(bytes) for each of C(fetch), C(link), C(staged) and C(keep).
  returned: success
  type: dict
  sample:
    fetch: {files: 52, bytes: 460082613480}
    link: {files: 0, bytes: 0}
    staged: {files: 2, bytes: 5974}
    keep: {files: 0, bytes: 0}
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

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import frontend
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import STAGE_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    module = AnsibleModule(argument_spec=STAGE_OPTIONS, supports_check_mode=True)
    try:
        request = frontend.Request.from_options(module.params)
        view = frontend.view(request)
        result = view.result()
        if request.phase == "budget":
            told = {"checks": view.checks(), "budget": view.arithmetic(), "lacking": view.lacking()}
            module.exit_json(changed=False, **told, **view.runtime(), **result)
        view.refuse()
        if not (module.check_mode or view.staging.changed):
            frontend.tidy(request)
        if module.check_mode or not view.staging.changed:
            module.exit_json(changed=view.staging.changed, diff=view.diff(), **view.runtime(), **result)
        if view.needs_sources or not frontend.ready(view, module.params["wheel"]):
            module.exit_json(changed=False, **view.runtime(), **result)
        done = frontend.stage(request)
    except (HostError, ManifestError) as error:
        module.fail_json(msg=f"{module.params['node'] or 'this node'}: {error}")
    module.exit_json(changed=True, diff=done.seen.diff(), **done.result())


if __name__ == "__main__":
    main()
