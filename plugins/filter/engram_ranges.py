# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engram_ranges
short_description: Rows of the Engram tables that each tensor-parallel rank reads
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Computes, from a checkpoint's C(config.json), the half-open row range of each Engram table for each rank.
  - >-
    Engines split the tables in two ways that differ at every size above one. With the wrong rule an engine reads rows that are not
    there, or falls back to the shared copy without a word, so the rule is always named.
  - The ranges are rows. Where the rows lie in a shard depends on its safetensors header.
positional: tp, rule
options:
  _input:
    description:
      - The content of C(config.json), as a mapping.
      - The C(engram_*) keys are taken from C(text_config), C(language_config) or the top level, whichever has them. Where two have them and
        disagree, the file is refused.
    type: dict
    required: true
  tp:
    description: Tensor-parallel size, the number of ranks, 1 to 64.
    type: int
    required: true
  rule:
    description:
      - V(vllm) gives each rank whole hash columns, whose sizes are primes. A size that leaves a rank without a column is refused.
      - V(sglang) cuts each table evenly.
    type: str
    required: true
    choices: [vllm, sglang]
"""

EXAMPLES = r"""
- name: Show the rows of every rank of three
  ansible.builtin.debug:
    msg: "{{ lookup('ansible.builtin.file', 'config.json') | from_json | gb10.ring.engram_ranges(3, 'vllm') }}"
"""

RETURN = r"""
_value:
  description: One mapping a rank, from the layer's number as a text to the first row and the row after the last.
  type: list
  elements: dict
  sample:
    - "1": [0, 128000880]
      "14": [0, 128004290]
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.engram import EngramError, ranges


def engram_ranges(config, tp, rule):
    """engram.ranges with Ansible's kind of error."""
    try:
        return ranges(config, tp, rule)
    except EngramError as error:
        raise AnsibleFilterError(f"gb10.ring.engram_ranges: {error}") from None  # Ansible would print the cause again


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"engram_ranges": engram_ranges}
