# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_diagnosis
short_description: Why a group of ranks does not serve, from the logs of all of them
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Looks for known signatures in C(tail) of the registered results of M(gb10.ring.engine_ready), which has the last lines of a rank's log
    when the rank does not serve. The most fundamental cause comes first, with the node, the line and the cure.
  - When nothing known is found, the text has the last lines of every rank.
positional: hosts, name, title
options:
  _input:
    description: The C(hostvars) mapping.
    type: dict
    required: true
  hosts:
    description: Inventory names of the ranks.
    type: list
    elements: str
    required: true
  name:
    description: Name of the registered variable.
    type: str
    required: true
  title:
    description: What the text ends with, a title of a report.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Report the engine
  gb10.ring.report:
    title: "{{ hostvars | gb10.ring.engine_diagnosis(ansible_play_hosts_all, 'engine_ready_result', 'engine') }}"
    checks: "{{ hostvars | gb10.ring.collected(ansible_play_hosts_all, 'engine_ready_result') }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The cause in words, then O(title) in a line of its own. Only O(title) when every rank serves.
  type: str
"""

from ansible_collections.gb10.ring.plugins.module_utils.engine.diagnosis import describe, diagnose


def engine_diagnosis(hostvars, hosts, name, title):
    """The cause, then the title."""
    results = {host: hostvars[host].get(name) or {} for host in hosts}
    tails = {host: [str(line) for line in result["tail"]] for host, result in results.items() if result.get("tail")}
    return f"{describe(diagnose(tails), tails)}\n{title}" if tails else title


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"engine_diagnosis": engine_diagnosis}
