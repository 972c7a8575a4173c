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
  - Fails with one message that holds every failed check, worst first, each with node, what was found, what was expected and the cure,
    when the severity of any of them is C(error). Warnings alone are shown and do not fail, unless O(warnings=fail).
  - Writes the same report as JSON (C(docs/report.schema.json)), as one HTML file that needs no network, and as JUnit XML, as far as paths
    for them are given, and keeps earlier ones.
  - A file that cannot be written, or a benchmark that cannot be read, takes nothing from the rest. The table, the verdict and the other files are
    given all the same, the reason stands behind the verdict, and the task fails.
  - Runs on the controller; use it with C(run_once).
options:
  title:
    description: What was checked; the first words of the message and the report's title.
    type: str
    required: true
  checks:
    description:
      - Dictionaries with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure), and of those that asked the engine something,
        C(asked) and C(answered). C(netdevs), where a check has it, names the node's own fabric interfaces that it is about.
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
  site:
    description: What the report shows beside the checks, as the filter P(gb10.ring.site_facts#filter) gives it.
    type: dict
  html_path:
    description: File on the controller that gets the report as HTML. It holds everything that it shows, and runs no script.
    type: path
  junit_path:
    description: File on the controller that gets the checks as JUnit XML, one suite a node.
    type: path
  history_path:
    description: Directory on the controller that keeps a copy of each JSON report. The HTML file shows how they ended.
    type: path
  history_keep:
    description: How many reports of this title to keep in O(history_path); older ones are deleted. At least one.
    type: int
    default: 30
  benchmark_path:
    description: JSON file of the last benchmark on the controller, which becomes part of the report. One that is absent is none,
      one that is damaged is left out and fails the task.
    type: path
  warnings:
    description: Whether failed checks of severity C(warning) are a failure too.
    type: str
    choices: [warn, fail]
    default: warn
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

- name: Report the site as a page too, and keep what earlier runs found
  gb10.ring.report:
    title: verify
    checks: "{{ hostvars | gb10.ring.site_checks(ansible_play_hosts_all, ['fabric', 'engine']) }}"
    site: "{{ hostvars | gb10.ring.site_facts(ansible_play_hosts_all) }}"
    path: reports/verify.json
    html_path: reports/verify.html
    history_path: reports/history
  run_once: true
"""

RETURN = r"""
failed_checks:
  description: The checks that did not hold, worst first; warnings included.
  returned: always
  type: list
  elements: dict
result:
  description: The worst that there is, V(ok), V(warnings) or V(failures).
  returned: always
  type: str
  sample: ok
counts:
  description: How many checks there are, how many hold, and how many failed by severity.
  returned: always
  type: dict
  sample: {checks: 206, held: 205, errors: 0, warnings: 1, notes: 0}
written:
  description: The files that hold this report now, without the history's. Empty in check mode.
  returned: always
  type: list
  elements: str
  sample: [/home/me/ring/reports/verify.json, /home/me/ring/reports/verify.html]
problems:
  description: Why the report is not whole, a text for each file that could not be written or read. Empty when it is.
  returned: always
  type: list
  elements: str
  sample: ["cannot write /home/me/ring/reports/verify.json: Permission denied"]
rows:
  description: The rows as given.
  returned: always
  type: list
  elements: dict
"""
