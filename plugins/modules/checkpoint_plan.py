#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_plan
short_description: Ask the object store which files a checkpoint consists of
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Lists the objects below a prefix, or takes the given list, and asks for size, ETag and checksum of each.
  - Each file gets one digest, from the first of O(checksum_sources) that has one for it. The plan says which source that was.
  - Sources that contradict each other, or the size of an object, are an error before a byte is moved.
  - C(checkpoint-manifest.json), which M(gb10.ring.checkpoint_publish) writes, is about the checkpoint and never a file of it.
  - Runs on the controller. Nothing is sent to a node and nothing is written. Use it with C(run_once).
  - Fails with one message that names every missing file, every file without a checksum and every key that cannot be a file name.
extends_documentation_fragment:
  - gb10.ring.checkpoint_s3
options:
  bucket:
    description: Bucket that holds the checkpoint.
    type: str
    required: true
  name:
    description:
      - Name of the checkpoint, which becomes a directory on the nodes.
      - Letters, digits, C(.), C(_) and C(-). The last component of O(prefix) unless given.
    type: str
  files:
    description:
      - Paths below O(prefix) that make up the checkpoint. With an empty list, everything below O(prefix).
      - With a list, the key needs no permission to list the bucket.
    type: list
    elements: str
    default: []
  require_checksum:
    description:
      - Whether a file without a usable checksum is an error.
      - With V(false) such a file gets the digest C(etag:...), and only its size and its ETag are held to.
    type: bool
    default: true
  checksum_sources:
    description:
      - Where a digest may come from, in the order in which they count.
      - V(manifest) is the C(checkpoint-manifest.json) that M(gb10.ring.checkpoint_publish) wrote.
      - >-
        V(list) is every list of digests, found by its name or given in O(digest_lists). C(MD5SUMS), C(SHA256SUMS) and these with an
        ending (C(MD5SUMS.body)) hold lines of md5sum or sha256sum. C(checkpoint-files.json) and C(huggingface-files.json) hold
        what the Hugging Face API says of a repository (C(/api/models/OWNER/NAME/revision/REVISION?blobs=true)), with the SHA-256 of
        large files and the git blob id of small ones. A list may cover some files only.
      - V(object) is the checksum of the whole object that the store keeps, CRC-64/NVME, CRC-32C, CRC-32 or SHA-256, in this order.
      - V(etag) is the MD5 that the ETag of a single-part object without KMS or customer encryption is.
      - Only CRCs are computed from parts in any order, at several GB/s. MD5 and SHA-256 take a second of one core for half a GB.
    type: list
    elements: str
    choices: [manifest, list, object, etag]
    default: [manifest, list, object, etag]
  digest_lists:
    description: Paths below O(prefix) of the lists of digests to read, instead of those found by their names.
    type: list
    elements: str
    default: []
  revision:
    description:
      - Name of this state of the checkpoint, in the same characters as O(name).
      - Computed unless given, so that equal contents have equal names.
    type: str
  tensor_parallel:
    description:
      - Number of ranks that M(gb10.ring.checkpoint_config) will fit C(config.json) to. A plan whose C(config.json) cannot be is refused,
        before the first byte moves.
      - V(0) stands for the file as it is, which is then not read.
    type: int
    default: 0
attributes:
  check_mode:
    description: Runs the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Never changes anything.
    support: full
requirements:
  - boto3 on the controller
seealso:
  - module: gb10.ring.checkpoint_stage
  - module: gb10.ring.checkpoint_config
  - module: gb10.ring.checkpoint_publish
"""

EXAMPLES = r"""
- name: Plan everything below a prefix, with credentials from the environment of the controller
  gb10.ring.checkpoint_plan:
    bucket: models
    prefix: bot-lab-21/DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
  run_once: true
  register: checkpoint_plan_result

- name: Plan two files of a store of one's own
  gb10.ring.checkpoint_plan:
    endpoint_url: http://192.0.2.10:8333
    profile: reader
    bucket: models
    prefix: small
    files:
      - config.json
      - model.safetensors
  run_once: true
  register: checkpoint_plan_result

- name: Plan a public mirror by the SHA-256 that its list gives, where nodes reach the store at another address
  gb10.ring.checkpoint_plan:
    endpoint_url: https://store.example.com
    node_endpoint_url: http://10.0.0.5:9000
    anonymous: true
    bucket: mirror
    prefix: small
    checksum_sources: [list]
  run_once: true
  register: checkpoint_plan_result
"""

RETURN = r"""
plan:
  description: What the checkpoint consists of, for the option O(gb10.ring.checkpoint_stage#module:plan).
  returned: success
  type: dict
  contains:
    name:
      description: Name of the checkpoint.
      type: str
      returned: always
      sample: small
    revision:
      description: Name of this state. Unless given, 16 hexadecimal digits that follow from paths, sizes and digests.
      type: str
      returned: always
      sample: 6d2f1f7a3c0b9e55
    files:
      description:
        - Every file with C(path), C(size) in bytes, C(etag), C(digest) as C(algorithm:hexadecimal digits) and C(digest_source).
        - C(algorithm) is C(crc64nvme), C(crc32c), C(crc32), C(sha256), C(md5), C(gitblob) or C(etag), which is no checksum.
        - >-
          C(chunks), where the published manifest was read, is the CRC-64/NVME of each 16 MiB of the file, 16 hexadecimal digits
          each, run together.
      type: list
      elements: dict
      returned: always
      sample:
        - path: config.json
          size: 5974
          etag: '"5d41402abc4b2a76b9719d911017c592"'
          digest: crc64nvme:ae8b14860a799888
          digest_source: checkpoint-manifest.json
          chunks: ae8b14860a799888
    bytes:
      description: Size of all files together.
      type: int
      returned: always
      sample: 460082619454
config:
  description: Text of C(config.json), for the option O(gb10.ring.checkpoint_config#module:planned). Empty with O(tensor_parallel=0).
  returned: success
  type: str
  sample: '{"model_type": "deepseek_v41"}'
"""
