#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_restage
short_description: Decide for the whole group what re-staging or rolling back comes to
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Looks at what the nodes said of themselves, shows what will be reused, fetched and freed on each, the disk before and after and
    the downtime of the last switch, and fails with everything that stands against it on any node.
  - Otherwise returns whether bytes have to move, whether the group has to switch, and what it goes back to when that fails.
  - Runs on the controller, with C(run_once). Touches no node.
extends_documentation_fragment:
  - gb10.ring.attributes.looking
options:
  mode:
    description:
      - >-
        With V(restage) the group goes to O(revision). Needs C(checkpoint_budget) of every host, and C(checkpoint_engram_budget) where
        Engram rows are brought, as the role C(checkpoint) registers them.
      - >-
        With V(rollback) it goes to O(revision), or without one to the revision before the active one. Needs C(checkpoint_checks) of
        every host, as the verify entry point of the role C(checkpoint) registers it.
    type: str
    choices: [restage, rollback]
    default: restage
  revision:
    description: Name of the revision. Required with O(mode=restage).
    type: str
  in_place:
    description:
      - >-
        Consent to give up the old revision, its Engram rows, or rows that a running engine reads, before the new one is accepted. For
        O(mode=restage).
    type: bool
    default: false
  hosts:
    description: Inventory names of all nodes of the group. All hosts of the play unless given.
    type: list
    elements: str
seealso:
  - module: gb10.ring.checkpoint_stage
  - module: gb10.ring.checkpoint_activate
"""

EXAMPLES = r"""
- name: Decide what is to be done
  gb10.ring.checkpoint_restage:
    revision: "{{ checkpoint_plan_result.plan.revision }}"
  run_once: true
  register: checkpoint_restage_result
"""

RETURN = r"""
revision:
  description: The revision that all nodes shall serve.
  returned: success
  type: str
  sample: 6d2f1f7a3c0b9e55
origin:
  description: The revision that all nodes can go back to when the switch fails, empty when there is none.
  returned: success
  type: str
  sample: 0c4a5f2d17be9a31
stage:
  description: Whether files have to be brought onto a node or made there.
  returned: success
  type: bool
  sample: true
switch:
  description: Whether the group has to change over.
  returned: success
  type: bool
  sample: true
in_place:
  description: Whether a node has to replace its old revision file by file, or rows that its engine reads, so that the group is stopped first.
  returned: success
  type: bool
  sample: false
resumes:
  description: Whether a switch was under way on any node. When it cannot be prepared again, its links and records stay.
  returned: success
  type: bool
reasons:
  description: Why the group has to change over, one text a node.
  returned: success
  type: list
  elements: str
  sample: ["spark1: revision 0c4a5f2d17be9a31 is active"]
rows:
  description: The table that was shown.
  returned: success
  type: list
  elements: dict
  sample: []
"""
