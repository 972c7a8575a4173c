# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: tp_config
short_description: Pad the attention heads of a config.json so that a number of ranks divides them
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    DeepSeek-V4.1 has 64 attention heads in 8 output groups, which three ranks cannot share. The vLLM lane for tensor parallel 3 serves
    72 heads in 9 groups instead and is told by C(virtual_heads_from) how many of them are real.
  - Returns a copy of the configuration with that padding, with as many heads in a group as before.
  - A configuration that the ranks divide already is returned as it is, and so is one that was padded for them before.
  - Fails on a configuration without C(text_config), heads or groups, naming what it found.
  - Fails too where heads and groups are neither those of C(virtual_heads_from) nor a padding of them, and on 72 in 9 (or another padding of
    the published 64 in 8) without that key, since the engine would take all of them for real. A key that is null counts as absent.
positional: tp
options:
  _input:
    description: The checkpoint's C(config.json) as a mapping.
    type: dict
    required: true
  tp:
    description: Number of tensor parallel ranks, 1 to 64.
    type: int
    required: true
seealso:
  - plugin: gb10.ring.engram_ranges
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show what three ranks would be given
  ansible.builtin.debug:
    msg: "{{ lookup('ansible.builtin.file', 'config.json') | from_json | gb10.ring.tp_config(3) }}"
"""

RETURN = r"""
_value:
  description: The configuration for that number of ranks.
  type: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.tp_config import ConfigError, padded


def tp_config(config, tp):
    if not isinstance(config, dict):
        raise AnsibleFilterError(f"gb10.ring.tp_config: the input is a {type(config).__name__}, expected a mapping")
    try:
        return padded(config, tp)
    except ConfigError as error:
        raise AnsibleFilterError(f"gb10.ring.tp_config: {error}") from error


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"tp_config": tp_config}
