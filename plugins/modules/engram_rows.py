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
    nobody published checksums they are fetched a second time and compared, see O(verify_share).
  - >-
    With another number of ranks, rank, rule or revision only rows that are not there are fetched. Rows that the rank does not own any
    more are given back to the file system. A slice that a process has open, or that another revision has too, is not changed: its rows
    are copied.
  - >-
    With O(placement=shard) the revision has to be staged without the shards with tables, see
    O(gb10.ring.checkpoint_stage#module:sliced). With O(placement=full) nothing is brought; the result says what the engine has to be told.
  - Rows that a running engine of the node reads are not made others; the group has to be stopped first.
  - Credentials stay on the controller. The node gets presigned addresses, which are in no file that outlives the task.
extends_documentation_fragment:
  - gb10.ring.checkpoint_s3
  - gb10.ring.checkpoint_bring
  - gb10.ring.engram_rank
options:
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
      - With V(1) every row is, and no changed bit passes. Below 1 one is found by chance.
      - Rows that complete a whole shard of this node to the checksum of the whole object need no second reading.
    type: float
    default: 1.0
  verify:
    description:
      - >-
        With V(full) and O(phase=budget) all rows that would stay as they are, or that another revision has and that would be linked to,
        are read again, at O(verify_rate_limit) at most, and held to the digests that were recorded when they were verified. Those that
        are wrong are fetched again.
      - With V(recorded), sizes, modification times and allocated blocks are compared. The index beside slices is always read.
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
  rows:
    description:
      - Which bytes of which shards the rank needs, RV(rows) of the task with O(phase=budget), so that the store is not asked for it again.
      - The action plugin fills it in where it is not given, or was of other files, another rank or another placement.
    type: dict
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
placement:
  description: The value of O(placement).
  returned: success
  type: str
  sample: shard
held:
  description: Revision that the rows were of which were there before, empty when there were none.
  returned: success
  type: str
  sample: 0c4a5f2d17be9a31
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
    - C(punch_bytes) are given back, C(link) files are links to those of another revision. C(paths) are the files that change.
  returned: success
  type: dict
  sample:
    fetch: {files: 2, bytes: 67585366216}
    keep_bytes: 0
    punch_bytes: 0
    link: 0
    paths: [model-00047-of-00048.safetensors, model-00048-of-00048.safetensors]
moved:
  description:
    - Bytes that came from the object store, from other nodes and from this node, bytes of earlier runs, and how long it took.
    - C(second_bytes) came from the object store for a second time, to be compared. They are not in C(s3_bytes).
  returned: when rows were brought
  type: dict
  sample:
    s3_bytes: 67585366216
    peer_bytes: 0
    disk_bytes: 0
    resumed_bytes: 0
    second_bytes: 0
    seconds: 80.2
    mb_per_s: 842.7
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
  description:
    - C(checkpoint.engram_budget) and, on a node without awscrt, C(checkpoint.runtime).
    - C(checkpoint.engram_place) where files that are not ours lie in the place of slices, or C(engram-local.json) cannot be read.
    - >-
      C(checkpoint.engram_served) where rows that a running engine of this node reads would become those of another revision or rank, as
      C(/etc/gb10-ring/engine.json) and systemd say.
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
stages:
  description: Whether O(phase=stage) would change anything.
  returned: with O(phase=budget)
  type: bool
  sample: true
needed:
  description: Bytes that the file system of the checkpoints has to give for the rows. 0 when O(directory) lies on another one.
  returned: with O(phase=budget)
  type: int
  sample: 67585372160
damaged:
  description: What was read again and is not as recorded, by directory and name in C(engram-local.json). For the option O(damaged).
  returned: with O(phase=budget)
  type: dict
  sample:
    /var/lib/gb10-ring/checkpoints/small/engram/model-00048-of-00048.safetensors:header: digest crc64nvme:1f02c9e66ab0d3c7 instead of
      crc64nvme:8d43ab10cd77e2f1
rows:
  description: Which bytes of which shards the rank needs, and which files that follows from. For the option O(rows).
  returned: with O(phase=budget)
  type: dict
  sample: {rank: 1, tp: 3, rule: vllm, placement: full, layers: {"1": [128000880, 256002934]}, targets: [], index_path: "", made_of: {}}
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

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import bringing, row_frontend
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import ENGRAM_OPTIONS


def main() -> None:
    bringing.run(AnsibleModule(argument_spec=ENGRAM_OPTIONS, supports_check_mode=True), row_frontend.WORK)


if __name__ == "__main__":
    main()
