#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_manifests
short_description: Write the inference engine's group as Kubernetes resources of LLMKube
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Renders an engine profile, the plan of the fabric and the checkpoint's place into the resources that the LLMKube operator runs a group
    of several nodes from, and writes them to a directory on the controller. It talks to no cluster.
  - >-
    C(10-storage.yaml) has a local volume and a claim for each node, C(20-model.yaml) the Model, C(30-jobs.yaml) the Jobs that ready each
    node before a start, C(40-inferenceservice.yaml) the InferenceService.
  - Runs on the controller; use it with C(run_once).
options:
  hosts:
    description: Inventory names of all nodes, the group C(ring). Ranks and addresses are taken from their variables.
    type: list
    elements: str
    required: true
  profile:
    description:
      - How to run the engine, with C(renderer=kubernetes); P(gb10.ring.engine_profile#lookup) reads a profile from a file.
      - Its key C(kubernetes) has the names to use in the cluster.
    type: dict
    required: true
  directory:
    description: Directory on the controller; it is made. A relative path is looked up from the playbook's directory.
    type: path
    required: true
  model_root:
    description: Directory of the checkpoint on the nodes, the one that holds C(revisions/). The volumes are that directory.
    type: path
    required: true
  revision:
    description: Revision to serve, as it is staged on the nodes. Required without O(source).
    type: str
    default: ""
  namespace:
    description: Namespace of all resources.
    type: str
    default: default
  source:
    description:
      - >-
        C(s3://BUCKET/PREFIX) when the operator stages the checkpoint. Then the heads and groups of its C(config.json) are padded by a Job,
        where the profile asks for it.
      - When empty, the pods read O(revision) where the checkpoint role has staged it.
    type: str
    default: ""
  source_secret:
    description: Name of the Secret with the credentials of O(source).
    type: str
    default: ""
  files:
    description: Files below O(source), relative paths. When empty, the Model names none.
    type: list
    elements: str
    default: []
  capacity:
    description: Size of each volume, as a Kubernetes quantity.
    type: str
    default: 600Gi
attributes:
  check_mode:
    description: Shows what would be written.
    support: full
  diff_mode:
    description: Shows the files.
    support: full
  idempotent:
    description: Writes only what differs.
    support: full
notes:
  - The host variables C(engine_kubernetes_node) and C(engine_kubernetes_claim) name a node and its claim in the cluster, where they differ from
    the inventory name and from the profile's C(claim_prefix) with it.
  - C(ibGIDIndex) is not set, since it would pin one index for all nodes. NCCL finds each node's own.
seealso:
  - module: gb10.ring.engine_unit
"""

EXAMPLES = r"""
- name: Write the group's resources
  gb10.ring.engine_manifests:
    hosts: "{{ groups['ring'] }}"
    profile: "{{ lookup('gb10.ring.engine_profile', 'vllm-tp3-ring-exl3', size=ring_size, overrides={'renderer': 'kubernetes'}) }}"
    directory: manifests
    model_root: /var/lib/gb10-ring/checkpoints/DeepSeek-V4.1-Flash-EXL3
    revision: 6b0f6c2f9c1d2e3a
  run_once: true
"""

RETURN = r"""
paths:
  description: The files, as absolute paths in the order in which they are applied.
  returned: success
  type: list
  elements: str
  sample: [/home/me/manifests/10-storage.yaml, /home/me/manifests/20-model.yaml]
resources:
  description: What each of the files holds, in the same order.
  returned: success
  type: list
  elements: list
"""
