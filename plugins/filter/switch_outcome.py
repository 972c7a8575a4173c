# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: switch_outcome
short_description: Why a switch of the group failed, and in which state it left the nodes
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Reads C(checkpoint_switch_reason), C(checkpoint_back_running), C(checkpoint_back_result) and C(checkpoint_back_done), which the role
    C(checkpoint) sets when a switch fails, of every host in O(hosts).
positional: hosts, revision, origin, started
options:
  _input:
    description: The C(hostvars) mapping.
    type: dict
    required: true
  hosts:
    description: Inventory names of all nodes of the group, for example C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
  revision:
    description: Name of the revision that the group could not switch to.
    type: str
    required: true
  origin:
    description: Name of the revision that it went back to, empty when there is none.
    type: str
    required: true
  started:
    description: Whether the group was stopped already, or was to be.
    type: bool
    default: true
seealso:
  - module: gb10.ring.checkpoint_activate
"""

EXAMPLES = r"""
- name: End with the reason
  ansible.builtin.fail:
    msg: "{{ outcome.text }}"
  vars:
    outcome: "{{ hostvars | gb10.ring.switch_outcome(ansible_play_hosts_all, 'new', 'old') }}"
"""

RETURN = r"""
_value:
  description: >-
    C(all_back), whether every node could and did take the switch back and no rank may still run, and C(text), the reasons of all nodes
    and what was done, for a person.
  type: dict
"""

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.outcome import Ended, all_back, text


def switch_outcome(hostvars, hosts, revision, origin, started=True):
    ended = []
    for host in hosts:
        back = hostvars[host].get("checkpoint_back_result") or {}
        ended.append(
            Ended(
                node=host,
                reason=str(hostvars[host].get("checkpoint_switch_reason") or ""),
                back=bool(back) and not back.get("failed") and not back.get("unreachable"),
                done=bool(hostvars[host].get("checkpoint_back_done")),
                running=str(hostvars[host].get("checkpoint_back_running") or ""),
                stays=str(back.get("msg") or "failed") if back.get("failed") and not back.get("unreachable") else "",
            )
        )
    return {"all_back": all_back(ended), "text": text(ended, revision, origin, started)}


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"switch_outcome": switch_outcome}
