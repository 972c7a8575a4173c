#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_publish
short_description: Put a directory of the controller into the object store, with a manifest of all digests
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Uploads every file of O(source) under O(prefix), with the CRC-64/NVME of the whole object, and skips what is equal there already.
  - >-
    An upload that broke off goes on with the parts that the store has; each is compared with the file first. This needs the right to
    list unfinished uploads, without which it starts over.
  - >-
    C(checkpoint-manifest.json) is written last, when everything is there and the store has confirmed size and checksum. So a
    manifest stands for a whole checkpoint.
  - Nothing is deleted. Objects below O(prefix) that are not in O(source) are named in RV(published.extra).
  - >-
    A file is read once, for upload, SHA-256, CRC-64/NVME and the CRC-64/NVME of each 16 MiB. One that differs from an object of
    its size is read twice.
  - >-
    Hidden files are left out. Unfinished downloads, dangling links, shards that an index names and that are not there, and a blob of
    a Hugging Face cache whose SHA-256 is not that of its name are errors.
  - Runs on the controller. No node is touched. Use it with C(run_once).
extends_documentation_fragment:
  - gb10.ring.checkpoint_s3
options:
  source:
    description:
      - Directory on the controller. Symbolic links are resolved.
      - Either a plain one, a snapshot of a Hugging Face cache, or the C(models--OWNER--NAME) above it.
    type: path
    required: true
  source_revision:
    description: Snapshot to publish of a C(models--OWNER--NAME). The one that its C(refs/main) names, or the only one, unless given.
    type: str
  bucket:
    description: Bucket to write to.
    type: str
    required: true
  name:
    description: Name of the checkpoint for the manifest. The last component of O(prefix) unless given.
    type: str
  files:
    description: Paths below O(source) to publish. With an empty list, all of them.
    type: list
    elements: str
    default: []
  upload_part_mib:
    description:
      - Size of the parts of an upload in MiB, from 16 to 4096. A file of one part is uploaded whole.
      - More where an object would have more than the 10,000 parts that S3 allows.
    type: int
    default: 64
  workers:
    description: Files uploaded at a time. Each has one part in memory.
    type: int
    default: 4
  progress:
    description: Whether to show every few seconds how far it is. With V(auto), when the output is a terminal.
    type: str
    choices: [auto, "on", "off"]
    default: auto
attributes:
  check_mode:
    description: Says what would be uploaded. Files are read where an object of their size is there; nothing is written.
    support: full
  diff_mode:
    description: A table of the files that are there and that will be there.
    support: full
  idempotent:
    description: A second run finds everything equal. It reads all files again to know that.
    support: full
requirements:
  - boto3 and awscrt on the controller
seealso:
  - module: gb10.ring.checkpoint_plan
"""

EXAMPLES = r"""
- name: Publish a plain directory
  gb10.ring.checkpoint_publish:
    source: /srv/DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
    bucket: models
    prefix: bot-lab-21/DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
  run_once: true

- name: Publish a model from the Hugging Face cache to a store of one's own
  gb10.ring.checkpoint_publish:
    source: ~/.cache/huggingface/hub/models--bot-lab-21--DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
    endpoint_url: http://192.0.2.10:8333
    profile: writer
    bucket: models
    prefix: bot-lab-21/DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
  run_once: true
"""

RETURN = r"""
published:
  description: What the prefix holds now, or in check mode would hold.
  returned: success
  type: dict
  contains:
    name:
      description: Name of the checkpoint, as the manifest has it.
      type: str
      returned: always
      sample: small
    revision:
      description: The name that a plan of these files gets. Empty in check mode while something is to be uploaded.
      type: str
      returned: always
      sample: 6d2f1f7a3c0b9e55
    files:
      description: Number of files of the checkpoint.
      type: int
      returned: always
      sample: 54
    bytes:
      description: Size of all files together.
      type: int
      returned: always
      sample: 460082619454
    upload:
      description: C(files) and C(bytes) of them that were not equal in the store already.
      type: dict
      returned: always
      sample: {files: 54, bytes: 460082619454}
    resumed_bytes:
      description: Bytes of these that a run which broke off had brought into the store.
      type: int
      returned: always
      sample: 0
    seconds:
      description: How long the uploads took.
      type: float
      returned: always
      sample: 2310.4
    mb_per_s:
      description: Bytes that were sent in this time, in MB/s.
      type: float
      returned: always
      sample: 199.1
    manifest:
      description: Key of the manifest.
      type: str
      returned: always
      sample: small/checkpoint-manifest.json
    extra:
      description: Paths of objects below the prefix that are not of this checkpoint. A plan of the whole prefix takes them in.
      type: list
      elements: str
      returned: always
      sample: []
"""
