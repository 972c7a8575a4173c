# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_host
short_description: What an engine profile wants of the host that a rank runs on
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Takes a profile as P(gb10.ring.engine_profile#lookup) returns it, and returns what the roles that ready hosts need to know of it.
options:
  _input:
    description: The checked and completed profile.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what a published engine wants of its host
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.ring.engine_profile', 'vllm-tp2-baremetal', size=2) | gb10.ring.engine_host }}"
"""

RETURN = r"""
_value:
  description:
    - C(memory) has C(weights_gib), C(activations_gib), C(graphs_gib), C(utilization) and C(page_cache). 0 stands for what is not known.
    - C(nccl) says where the NCCL lies that will serve, C(path) or C(image) with C(runtime). Both are empty for an engine without NCCL, and
      in Kubernetes, whose images this collection does not look at.
  type: dict
  sample:
    memory: {weights_gib: 82.5, activations_gib: 7, graphs_gib: 2, utilization: 0.8, page_cache: drop}
    nccl: {path: "", image: "engine@sha256:5f0c", runtime: docker}
"""

from ansible_collections.gb10.ring.plugins.module_utils.engine import host_needs


def engine_host(profile):
    """memory and nccl of a profile."""
    return {"memory": host_needs.memory(profile), "nccl": host_needs.nccl(profile)}


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"engine_host": engine_host}
