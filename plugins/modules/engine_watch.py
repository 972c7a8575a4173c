#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_watch
short_description: Install the watchdog that relaunches a group which hangs
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Installs or removes C(gb10-ring-watch.service), which runs on the head alone. It asks the group's API for its health and for a
    completion of three tokens. It arms with the first full pass. When several looks in a row fail, or a rank ends by itself, it has the
    logs of all ranks kept, the group stopped and started again, through the supervisors that M(gb10.ring.engine_group) installs.
  - >-
    A busy engine is left alone. While its counters of tokens grow a late answer is no failure, however long that lasts. When they stand still
    it has C(busy_grace_s).
  - >-
    After C(relaunches) relaunches within C(window_s) it gives up and waits for a person. Every deliberate stop disarms it, of the role, of the
    memory guard, of C(systemctl), and the file C(/etc/gb10-ring/watch-hold) while it is there.
  - It says why an incident happened in C(diagnosis.txt) beside the incident's logs, as far as its table of known causes tells.
options:
  node:
    description: Inventory name of the node.
    type: str
    required: true
  state:
    description: V(present) installs and starts the watchdog, V(absent) stops it and removes its files. Incidents stay.
    type: str
    choices: [present, absent]
    default: present
  limits:
    description:
      - Limits in place of the module's own, by name. Times are in seconds.
      - C(interval_s) (60) between looks, C(health_timeout_s) (10) and C(probe_timeout_s) (45) for their answers, C(failures) (3) in a row
        before a relaunch, C(busy_grace_s) (600) without a token, C(settle_s) (60) between stop and start, in which memory comes back,
        C(ready_timeout_s) (900) until a relaunched group serves, C(relaunches) (3) within C(window_s) (21600).
    type: dict
    default: {}
  etc_root:
    description: Directory that stands for C(/etc).
    type: path
    default: /etc
  lib_root:
    description: Directory for the watchdog's program, in a folder C(gb10-ring).
    type: path
    default: /usr/local/lib
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
    description: Shows every file, the unit's enablement and its start.
    support: full
  idempotent:
    description: When run twice in a row with the same arguments, the second run reports no change.
    support: full
requirements:
  - systemd on the node
seealso:
  - module: gb10.ring.engine_group
  - module: gb10.ring.memory_guard
"""

EXAMPLES = r"""
- name: Watch the group, with more patience
  gb10.ring.engine_watch:
    node: "{{ inventory_hostname }}"
    limits:
      busy_grace_s: 1800

- name: Remove the watchdog
  gb10.ring.engine_watch:
    node: "{{ inventory_hostname }}"
    state: absent
"""

RETURN = r"""
checks:
  description:
    - C(engine.watchdog), whether it runs from the wanted files and does not wait for a person, and C(engine.relaunched), a warning, when it
      has relaunched the group within its window. Empty with O(state=absent).
    - They tell the state after the call; in check mode, the state as it is.
  returned: success
  type: list
  elements: dict
limits:
  description: The limits in force with O(state=present).
  returned: success
  type: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import watch_call
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPEC = {
    "node": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "limits": {"type": "dict", "default": {}},
    "etc_root": {"type": "path", "default": "/etc"},
    "lib_root": {"type": "path", "default": "/usr/local/lib"},
    "state_root": {"type": "path", "default": "/var/lib/gb10-ring"},
    "run_root": {"type": "path", "default": "/run"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    node = module.params["node"]
    try:
        call = watch_call.prepare(module.params)
        if not module.check_mode:
            call.apply()
        result = call.result(node, time.monotonic)
    except (HostError, ValueError) as error:
        module.fail_json(msg=f"{node}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
