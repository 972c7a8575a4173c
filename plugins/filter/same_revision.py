# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: same_revision
short_description: Whether all nodes have the same revision of the checkpoint active
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Compares what M(gb10.ring.checkpoint_info) registered in the variable O(name) of every host in O(hosts).
  - >-
    A host without a result is not counted, since C(preflight.reachable) or C(verify.looked) says why there is none. Neither is one without
    an active revision, of which C(checkpoint.current) says so.
positional: hosts, name, node
extends_documentation_fragment:
  - gb10.ring.hosts
options:
  name:
    description: Name of the registered variable.
    type: str
    default: checkpoint_checks
  node:
    description: Keep only the check of this node. By default it is kept whichever node carries it.
    type: str
"""

EXAMPLES = r"""
- name: Refuse nodes that would serve different revisions
  gb10.ring.report:
    title: checkpoint
    checks: "{{ hostvars | gb10.ring.same_revision(ansible_play_hosts_all) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - The check C(checkpoint.same_revision), a dictionary with C(id), C(node), C(ok), C(severity), C(found), C(expected) and C(cure).
    - The first host with a result carries it. The list is empty where no host has an active revision.
  type: list
  elements: dict
"""

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import info


def same_revision(hostvars, hosts, name="checkpoint_checks", node=None):
    """The check as a dictionary, in a list."""
    states = {host: (hostvars[host].get(name) or {}).get("checkpoint") for host in hosts}
    check = info.same_revision({host: str(state.get("current") or "") for host, state in states.items() if state})
    return [check.to_dict()] if check and node in (None, check.node) else []


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"same_revision": same_revision}
