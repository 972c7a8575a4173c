#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_group
short_description: Install the service that ties the ranks of the inference engine together
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Installs or removes C(gb10-ring-group.service), the supervisor of a node, and the command C(gb10-ring-group). When the rank of any
    node ends by itself, or a node is not heard any more, every supervisor keeps its rank's log, sends it to the others and stops its
    rank. Engines do not notice that by themselves.
  - >-
    The supervisors talk on the management plane, by UDP, with a token that all of them share. Without O(token) the node's token stays
    as it is; RV(token_print) shows whether nodes have the same. They need Python alone, and no controller.
  - Needs root. C(docs/engine.md) has the rules.
options:
  node:
    description: Inventory name of the node.
    type: str
    required: true
  state:
    description: V(present) installs and starts the supervisor, V(absent) stops it and removes its files. What is kept of incidents stays.
    type: str
    choices: [present, absent]
    default: present
  ranks:
    description: Rank of every node of the group, by inventory name. Needed with O(state=present).
    type: dict
  addresses:
    description: IPv4 address on the management plane of every node of the group, by inventory name. Needed with O(state=present).
    type: dict
  port:
    description: UDP port of the supervisors, the same on all nodes.
    type: int
    default: 7873
  silence_s:
    description: Seconds, 5 to 3600, after which a node that ran and is not heard counts as lost.
    type: int
    default: 30
  stop_s:
    description: Seconds that an engine gets to end in order, after another rank has died. Then it is killed.
    type: int
    default: 5
  token:
    description: What the supervisors prove to each other that they know, 32 characters or more.
    type: str
  engine_unit:
    description: Name of the engine's systemd unit.
    type: str
    default: gb10-ring-engine.service
  wait_s:
    description: How long to wait, in seconds, until all other nodes are heard, before the check is made.
    type: int
    default: 0
  etc_root:
    description: Directory that stands for C(/etc).
    type: path
    default: /etc
  usr_root:
    description: Directory for the program, in C(lib/gb10-ring), and the command, in C(sbin).
    type: path
    default: /usr/local
  state_root:
    description: Directory that holds the incidents.
    type: path
    default: /var/lib/gb10-ring
  run_root:
    description: Directory that stands for C(/run).
    type: path
    default: /run
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
  diff_mode:
    description: Shows every file, the unit's enablement and its start. The token is never shown.
    support: full
  idempotent:
    description: When run twice in a row with the same arguments, the second run reports no change.
    support: full
requirements:
  - systemd on the node
seealso:
  - module: gb10.ring.engine_service
  - module: gb10.ring.memory_guard
"""

EXAMPLES = r"""
- name: Tie two ranks together
  gb10.ring.engine_group:
    node: "{{ inventory_hostname }}"
    ranks: {spark1: 0, spark2: 1}
    addresses: {spark1: 192.0.2.11, spark2: 192.0.2.12}
"""

RETURN = r"""
checks:
  description:
    - C(engine.group), whether the supervisor runs from the wanted files and hears every other node. Empty with O(state=absent).
    - It tells the state after the call; in check mode, the state as it is.
  returned: success
  type: list
  elements: dict
token_print:
  description: Fingerprint of the node's token, empty when it has none.
  returned: success
  type: str
  sample: 0f3a9be2d1447712
incident:
  description: The last incident that the node's supervisor knows of, empty when there was none since it started.
  returned: success, with O(state=present)
  type: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import group_call
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPEC = {
    "node": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "ranks": {"type": "dict"},
    "addresses": {"type": "dict"},
    "port": {"type": "int", "default": 7873},
    "silence_s": {"type": "int", "default": 30},
    "stop_s": {"type": "int", "default": 5},
    "token": {"type": "str", "no_log": True},
    "engine_unit": {"type": "str", "default": "gb10-ring-engine.service"},
    "wait_s": {"type": "int", "default": 0},
    "etc_root": {"type": "path", "default": "/etc"},
    "usr_root": {"type": "path", "default": "/usr/local"},
    "state_root": {"type": "path", "default": "/var/lib/gb10-ring"},
    "run_root": {"type": "path", "default": "/run"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC, required_if=[("state", "present", ("ranks", "addresses"))], supports_check_mode=True
    )
    node = module.params["node"]
    try:
        call = group_call.prepare(module.params)
        if not module.check_mode:
            call.apply()
        result = call.result(time.monotonic())
    except (HostError, ValueError) as error:
        module.fail_json(msg=f"{node}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
