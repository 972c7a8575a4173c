#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Print and write the checks of all nodes, and fail once with every failed one
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Takes the checks that the modules of this collection return, usually gathered by the filter P(gb10.ring.collected#filter).
  - Fails with one message that holds every failed check whose severity is C(error), worst first, each with node, what was found,
    what was expected and the cure. Warnings are shown and do not fail.
  - Runs on the controller; use it with C(run_once).
options:
  title:
    description: What was checked; the first words of the message and the report's title.
    type: str
    required: true
  checks:
    description: Dictionaries with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
    type: list
    elements: dict
    required: true
  rows:
    description: Dictionaries with the same keys, printed as a table; they have no part in the verdict.
    type: list
    elements: dict
    default: []
  path:
    description:
      - File on the controller that gets the JSON report; its directory is made. Nothing is written without it, or in check mode.
      - Writing it is not reported as a change, since a report says when it was made.
    type: path
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: none
    details: The report file is output, not state.
  idempotent:
    description: When run twice in a row with the same arguments, the second run reports no change.
    support: full
"""

EXAMPLES = r"""
- name: Report the fabric
  gb10.ring.report:
    title: fabric
    checks: "{{ hostvars | gb10.ring.collected(ansible_play_hosts_all, 'fabric_checks') }}"
    path: reports/fabric.json
  run_once: true
"""

RETURN = r"""
failed_checks:
  description: The checks that did not hold, worst first; warnings included.
  returned: always
  type: list
  elements: dict
rows:
  description: The rows as given.
  returned: always
  type: list
  elements: dict
"""
