#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_ready
short_description: Wait for the inference engine to serve, or look once
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Looks at this rank's systemd unit and at the head's C(/health), on rank 0 at C(/v1/models) and the engine's log too, until the group serves, this
    rank's engine has ended by itself, or O(timeout_s) has passed.
  - >-
    Changes nothing and does not fail on a failed check. M(gb10.ring.report) judges the checks of all nodes together. The cure of a
    failed check carries the last 20 lines of the engine's journal.
  - >-
    In a playbook all ranks wait together. When one of them finds its engine ended, the others stop waiting within 10 seconds, so
    that a group which cannot come up is reported soon.
extends_documentation_fragment:
  - gb10.ring.attributes.looking
options:
  node:
    description: Inventory name of this node, which the checks carry.
    type: str
    required: true
  rank:
    description: Position of the node in the group, from 0. Rank 0 is the head and serves the API.
    type: int
    required: true
  url:
    description: Base URL of the group's API as this node reaches it.
    type: str
    required: true
  served_model_name:
    description: Name under which the model has to be listed.
    type: str
    required: true
  unit:
    description: Name of the unit.
    type: str
    default: gb10-ring-engine.service
  timeout_s:
    description: How long to wait for the group, in seconds. With V(0) it looks once.
    type: int
    default: 900
  probe:
    description:
      - Whether rank 0 also asks the model a question with a known answer, once the group serves.
      - The model is told not to think first, by C(thinking) of the profile that C(/etc/gb10-ring/engine.json) was rendered from.
    type: bool
    default: false
  extra:
    description: Put into the body of that question, for settings that an engine wants.
    type: dict
    default: {}
  ready_line:
    description:
      - >-
        Whether rank 0 is ready only when the log of its present run has the text that C(ready_line) of the profile is, as
        C(/etc/gb10-ring/engine.json) has it. The whole log of the run is read, so it is meant for a run that has just begun.
    type: bool
    default: false
  log_lines:
    description:
      - >-
        What the log of a healthy rank has or lacks, for the check C(engine.log) once the group serves: C(text), C(want) (V(present) or
        V(absent)), C(means) and C(required). The whole log of the run is read, so it is meant for a run that has just begun.
      - A line that must not be there is an error, and so is one that is missing and C(required). Others that are missing are a warning.
    type: list
    elements: dict
    default: []
  etc_root:
    description: Where C(/etc) is. Other than V(/etc) it is meant for tests.
    type: path
    default: /etc
  run_root:
    description: Directory that stands for C(/run), where the node's supervisor (M(gb10.ring.engine_group)) says why a rank ended.
    type: path
    default: /run
attributes:
  action:
    description: Has an action plugin on the controller, through which the ranks of one task hear of each other's failure.
    support: full
requirements:
  - systemd on the node
seealso:
  - module: gb10.ring.engine_service
  - module: gb10.ring.report
"""

EXAMPLES = r"""
- name: Wait for the group
  gb10.ring.engine_ready:
    node: "{{ inventory_hostname }}"
    rank: "{{ ring_rank }}"
    url: "{{ engine_unit_result.url }}"
    served_model_name: DeepSeek-V4.1-Flash-EXL3
    probe: true
  register: engine_ready_result
"""

RETURN = r"""
checks:
  description:
    - C(engine.unit) of every rank and, while it runs, C(engine.config); of rank 0 also C(engine.health) and, with O(probe), C(engine.chat).
    - With O(log_lines) also C(engine.log), once the group serves.
    - C(engine.health) has the last state of all that was waited for.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Name of the check.
      type: str
    node:
      description: Inventory name of the node.
      type: str
    ok:
      description: Whether it held.
      type: bool
    severity:
      description: What a failure means, V(error), or V(warning) for C(engine.config) and for missing lines of C(engine.log).
      type: str
    found:
      description: What was found.
      type: str
    expected:
      description: What should have been found.
      type: str
    cure:
      description: What to do about a failure, with the last lines of the engine's journal.
      type: str
  sample:
    - id: engine.unit
      node: spark2
      ok: false
      severity: error
      found: activating (auto-restart), exit-code, status 1
      expected: active (running)
      cure: run the engine role; `journalctl -u gb10-ring-engine.service` on spark2 says why it ended
tail:
  description: Last lines of the engine's journal, without what looks like a secret. Empty when the rank serves.
  returned: success
  type: list
  elements: str
state:
  description: V(ready) when the group serves, V(ended) when this rank's engine ended by itself, V(waiting) otherwise.
  returned: success
  type: str
  sample: ready
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import life, machine
from ansible_collections.gb10.ring.plugins.module_utils.engine.ready import (
    checks,
    log_check,
    outcome,
    with_chat,
    with_ending,
)
from ansible_collections.gb10.ring.plugins.module_utils.engine.unit import NAME, hash_of, ready_line_of, thinking_of
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "rank": {"type": "int", "required": True},
            "url": {"type": "str", "required": True},
            "served_model_name": {"type": "str", "required": True},
            "unit": {"type": "str", "default": NAME},
            "timeout_s": {"type": "int", "default": 900},
            "probe": {"type": "bool", "default": False},
            "extra": {"type": "dict", "default": {}},
            "ready_line": {"type": "bool", "default": False},
            "log_lines": {"type": "list", "elements": "dict", "default": []},
            "etc_root": {"type": "path", "default": "/etc"},
            "run_root": {"type": "path", "default": "/run"},
        },
        supports_check_mode=True,
    )
    options = module.params
    unit, url, name = options["unit"], options["url"], options["served_model_name"]
    logged = []
    try:
        record = read_text(f"{options['etc_root']}/gb10-ring/engine.json")
        wanted = hash_of(record)
        line = ready_line_of(record) if options["ready_line"] else ""
        seen = machine.wait(lambda: machine.look(unit, options["rank"], url, wanted, line), options["timeout_s"], unit)
        seen = with_ending(seen, life.own_rank(options["run_root"]))
        if options["probe"] and options["rank"] == 0 and outcome(seen) == "ready":
            answer = machine.chat(url, name, thinking_of(record), options["extra"])
            seen = machine.explained(with_chat(seen, answer), unit)
        if options["log_lines"] and outcome(seen) == "ready":
            logged = [log_check(options["node"], unit, machine.log_of_run(unit), options["log_lines"])]
    except HostError as error:
        module.fail_json(msg=str(error))
    found = [check.to_dict() for check in [*checks(options["node"], unit, url, name, seen), *logged]]
    module.exit_json(changed=False, checks=found, state=outcome(seen), tail=list(seen.journal))


if __name__ == "__main__":
    main()
