# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_url
short_description: Where the API of a group is reached from every node
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Takes a profile as P(gb10.ring.engine_profile#lookup) returns it, and returns the base URL that M(gb10.ring.engine_unit) records as
    RV(gb10.ring.engine_unit#module:url), without asking a node.
positional: head_address
options:
  _input:
    description: The checked and completed profile, of which C(host) and C(port) count.
    type: dict
    required: true
  head_address:
    description: IPv4 address of rank 0 on the management plane, at which an API is reached that listens at all addresses.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show where the API is
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.ring.engine_profile', 'lab', size=3) | gb10.ring.engine_url(ring_head_address) }}"
"""

RETURN = r"""
_value:
  description: Base URL of the API, without C(/v1).
  type: str
  sample: http://192.0.2.11:8000
"""

from ansible_collections.gb10.ring.plugins.module_utils.engine.spec import url_at


def engine_url(profile, head_address):
    """The base URL, as the record of every rank has it."""
    return url_at(profile["host"], profile["port"], head_address)


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"engine_url": engine_url}
