#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_plan
short_description: Show the planned fabric as a table and as a drawing
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Prints a row for each leg, with cable, rail, subnet and both ends, and writes an SVG of nodes, ports, cables and addresses.
  - Takes the plan from the variables that P(gb10.ring.topology#inventory) gives the hosts. Connects to none of them.
  - The SVG is a file of its own, without scripts, links or fonts, and holds the legs as text for screen readers.
  - Runs on the controller; use it with C(run_once) or on C(localhost).
extends_documentation_fragment:
  - gb10.ring.attributes.changing
options:
  hosts:
    description: Inventory names of all nodes, the group C(ring).
    type: list
    elements: str
    required: true
  path:
    description: File on the controller that gets the SVG; its directory is made. Nothing is written without it.
    type: path
"""

EXAMPLES = r"""
- name: Show the plan
  gb10.ring.fabric_plan:
    hosts: "{{ groups['ring'] }}"
    path: reports/plan.svg
  run_once: true
"""

RETURN = r"""
rows:
  description: The table, a dictionary a row. On a switch, a row for each netdev.
  returned: always
  type: list
  elements: dict
legs:
  description: As the filter P(gb10.ring.fabric_legs#filter) gives them.
  returned: always
  type: list
  elements: dict
path:
  description: Absolute path of the drawing.
  returned: when O(path) is given
  type: str
"""
