#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engram_rows
short_description: Bring the Engram rows of one rank onto a node, and nothing else of the tables
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Reads C(config.json), the index and the headers of the shards by ranged GET on the controller, computes which rows of each Engram
    table the rank reads, and fetches these from the object store, or from a whole shard on the node. Everything else of the shards is a
    hole in a sparse file of full size.
  - >-
    C(engram-local.json), by which engines know what is there, is removed before anything changes and written last, when every row has
    been verified. Rows are held to the checksums of chunks in C(checkpoint-manifest.json), are read back from the disk, and where
    nobody published checksums O(verify_share) of them is fetched a second time and compared.
  - >-
    With another number of ranks, rank, rule or revision only rows that are not there are fetched. Rows that the rank does not own any
    more are given back to the file system. A slice that a process has open, or that another revision has too, is not changed: its rows
    are copied.
  - Credentials stay on the controller. The node gets presigned addresses, which are in no file that outlives the task.
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
      - >-
        With V(shard) the slice is the shard in the revision, its other tensors included. The revision has to be staged without these
        shards, see O(gb10.ring.checkpoint_stage#module:sliced).
      - With V(full) nothing is brought, the revision has whole shards. The result says what the engine has to be told.
    type: str
    choices: [directory, shard, full]
    default: full
  directory:
    description:
      - Directory on the node for O(placement=directory). It belongs to this checkpoint and this rank alone.
      - C(engram) below that of the checkpoint unless given.
    type: path
  whole_directories:
    description:
      - Directories on the node that may hold whole shards, to take rows from. Revisions of the checkpoint are looked at anyway.
      - What comes from there is verified as what comes from the store.
    type: list
    elements: path
    default: []
  verify_share:
    description:
      - Share of the bytes, from 0 to 1, that is fetched a second time and compared, of shards without published checksums of chunks.
      - With V(1) every row is.
    type: float
    default: 0.01
  root:
    description: Directory of all checkpoints on the node.
    type: path
    default: /var/lib/gb10-ring/checkpoints
  bucket:
    description: Bucket that holds the checkpoint.
    type: str
  node:
    description: Inventory name of this node, which the checks carry. The name of the host that the task runs for unless given.
    type: str
  disk_ceiling_percent:
    description: How full the file system may get, in percent of its size, counting what is not available as used.
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
    description: Seconds for which a presigned address is good. When they are over, the addresses are signed anew and the transfer goes on.
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
    description: Whether lines during the task say how far each node is. With V(auto) when the controller runs at a terminal.
    type: str
    choices: [auto, "on", "off"]
    default: auto
  peers:
    description:
      - Other nodes' web servers that have whole shards, by path of the shard. They are asked before the object store, in their order.
      - Each has C(url) and C(patience_s), as for M(gb10.ring.checkpoint_stage).
    type: dict
  lease_s:
    description:
      - Seconds after which the module ends when the controller has not touched its lease, a file beside the staging directory.
      - V(0) for a module whose result the controller waits for. Filled in by the action plugin.
    type: int
    default: 0
  rows:
    description: Which bytes of which shards the rank needs. Filled in by the action plugin.
    type: dict
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
    description: Says which bytes would be fetched, kept and given back. Nothing is fetched or written on the node.
    support: full
  diff_mode:
    description: Ranges of bytes of each file, and what C(engram-local.json) says, before and after.
    support: full
  idempotent:
    description: A second run with the same options finds everything in place.
    support: full
requirements:
  - boto3 on the controller
  - Python 3.10 or newer on the node
seealso:
  - module: gb10.ring.checkpoint_stage
  - module: gb10.ring.engram_info
  - plugin: gb10.ring.engram_ranges
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Bring the rows of this node's rank into a directory beside the revision
  gb10.ring.engram_rows:
    plan: "{{ checkpoint_plan_result.plan }}"
    tensor_parallel: 3
    rank: "{{ ring_rank }}"
    rule: vllm
    placement: directory
    bucket: models
    prefix: bot-lab-21/DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
    wheel_dir: /opt/gb10-ring/wheels
  register: engram

- name: Show what the engine has to be told
  ansible.builtin.debug:
    var: engram.environment
"""

RETURN = r"""
revision:
  description: Name of the revision that the rows are of.
  returned: success
  type: str
  sample: 6d2f1f7a3c0b9e55
path:
  description: Directory that the engine reads rows from.
  returned: success
  type: str
  sample: /var/lib/gb10-ring/checkpoints/small/engram
ranges:
  description: The half-open range of rows of each table, by the number of its layer.
  returned: success
  type: dict
  sample: {"1": [128000880, 256002934], "14": [128004290, 256009984]}
rows_text:
  description: The same as one text, as C(SPARK_ENGRAM_ROWS) has it.
  returned: success
  type: str
  sample: "1:128000880:256002934,14:128004290:256009984"
environment:
  description: Environment variables that make an engine of O(rule) read these rows.
  returned: success
  type: dict
  sample: {DSV41_ENGRAM_DISK: "1", DSV41_ENGRAM_DIR: /var/lib/gb10-ring/checkpoints/small/engram}
sliced:
  description: Paths that the revision has to be staged without. Empty unless O(placement=shard).
  returned: success
  type: list
  elements: str
  sample: [model-00047-of-00048.safetensors, model-00048-of-00048.safetensors]
summary:
  description:
    - What was found to be done. C(fetch) has C(files) and C(bytes) to bring, C(keep_bytes) are there already.
    - C(punch_bytes) are given back, C(link) files are links to those of another revision.
  returned: success
  type: dict
  sample: {fetch: {files: 2, bytes: 67585366216}, keep_bytes: 0, punch_bytes: 0, link: 0}
moved:
  description: Bytes that came from the object store, from other nodes and from this node, bytes of earlier runs, and how long it took.
  returned: when rows were brought
  type: dict
  sample: {s3_bytes: 67585366216, peer_bytes: 0, disk_bytes: 0, resumed_bytes: 0, seconds: 80.2, mb_per_s: 842.7}
replaced:
  description: Paths whose objects were replaced while the task ran.
  returned: when there are any
  type: list
  elements: str
  sample: []
expired:
  description: Paths whose addresses expired. The action plugin signs new ones and goes on.
  returned: when there are any
  type: list
  elements: str
  sample: []
reason:
  description: What to tell about RV(replaced) and RV(expired).
  returned: when there are any
  type: str
  sample: the object changed since it was planned
needs_sources:
  description: Whether there are rows to bring and no addresses were given.
  returned: when nothing was done
  type: bool
  sample: true
checks:
  description: C(checkpoint.engram_budget) and, on a node without awscrt, C(checkpoint.runtime).
  returned: with O(phase=budget)
  type: list
  elements: dict
  sample:
    - id: checkpoint.engram_budget
      node: spark1
      ok: true
      severity: error
      found: 105.3 GB used + 67.6 GB to come = 172.9 GB of 983.5 GB (17.6 %)
      expected: at most 85 % = 836.0 GB
      cure: ""
needed:
  description: Bytes that the file system of the checkpoints has to give for the rows. 0 when O(directory) lies on another one.
  returned: with O(phase=budget)
  type: int
  sample: 67585372160
needs_runtime:
  description: Whether the node lacks awscrt and needs it.
  returned: when nothing was done
  type: bool
  sample: false
machine:
  description: Processor architecture of the node.
  returned: when nothing was done
  type: str
  sample: aarch64
python:
  description: Version of the node's Python.
  returned: when nothing was done
  type: str
  sample: "3.12"
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_frontend
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import ENGRAM_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_plan import RowPlanError
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    module = AnsibleModule(argument_spec=ENGRAM_OPTIONS, supports_check_mode=True)
    try:
        request = row_frontend.Request.from_options(module.params)
        view = row_frontend.view(request)
        result = view.result()
        if request.options["phase"] == "budget":
            told = {"checks": view.checks(), "needed": view.needed()}
            module.exit_json(changed=False, **told, **view.runtime(), **result)
        if module.check_mode:
            module.exit_json(changed=view.staging.changed, diff=view.diff(), **view.runtime(), **result)
        view.refuse()
        if not view.staging.changed:
            row_frontend.tidy(request)
            module.exit_json(changed=False, diff=[], **view.runtime(), **result)
        if view.needs_sources or not row_frontend.ready(view, module.params["wheel"]):
            module.exit_json(changed=False, **view.runtime(), **result)
        done = row_frontend.bring(request)
    except (HostError, ManifestError, RowPlanError) as error:
        module.fail_json(msg=f"{module.params['node'] or 'this node'}: {error}")
    module.exit_json(changed=True, diff=done.seen.diff(), **done.result())


if __name__ == "__main__":
    main()
