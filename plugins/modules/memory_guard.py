#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_guard
short_description: Install the service that stops the engine's group before a node runs out of memory
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Installs, arms or removes C(gb10-ring-guard.service). It reads C(/proc/meminfo) up to ten times a second, drops the page cache
    while that helps, and stops the engine of the whole group once when it does not. C(docs/memory-guard.md) has its rules.
  - >-
    The service starts before the engine and takes its first look before it is started. It needs Python alone, no Ansible, and nothing
    that is not on the node.
  - >-
    The guards of a group tell each other of a stop on the management plane, by UDP, with a token that all of them share. Without
    O(token) the node's token stays as it is; RV(token_print) shows whether nodes have the same.
  - Needs root.
options:
  node:
    description: Inventory name of the node.
    type: str
    required: true
  state:
    description: V(present) installs and arms the guard, V(absent) stops it and removes all of its files.
    type: str
    choices: [present, absent]
    default: present
  profile:
    description:
      - Named set of limits. V(ring) is for an engine that leaves several GiB free, V(lean) for one whose healthy MemAvailable is 1.5
        to 2 GiB, V(early) gives a start up sooner, V(mapped) never drops the page cache.
    type: str
    choices: [early, lean, mapped, ring]
    default: ring
  limits:
    description: Limits in place of those of the profile, by name. Names and units are in C(docs/memory-guard.md).
    type: dict
    default: {}
  engine_unit:
    description: Name of the engine's systemd unit.
    type: str
    default: gb10-ring-engine.service
  addresses:
    description:
      - IPv4 address on the management plane of every node of the group, by inventory name. The guard listens on that of O(node).
      - Needed with O(state=present).
    type: dict
  port:
    description: UDP port of the guards, the same on all nodes.
    type: int
    default: 7872
  token:
    description: What the guards of the group prove to each other that they know, 32 characters or more.
    type: str
  meminfo_path:
    description: File that is read for C(/proc/meminfo).
    type: path
    default: /proc/meminfo
  wait_s:
    description: How long to wait, in seconds, until the guards of all other nodes have answered, before the checks are made.
    type: int
    default: 0
  etc_root:
    description: Directory that stands for C(/etc).
    type: path
    default: /etc
  lib_root:
    description: Directory for the guard's program, in a folder C(gb10-ring).
    type: path
    default: /usr/local/lib
  state_root:
    description: Directory for the record of the last stop.
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
  - module: gb10.ring.memory_settings
  - module: gb10.ring.engine_unit
"""

EXAMPLES = r"""
- name: Arm the guard with a little more room
  gb10.ring.memory_guard:
    node: "{{ inventory_hostname }}"
    limits:
      stop_free_mib: 2048
    addresses:
      spark1: 192.0.2.11
      spark2: 192.0.2.12

- name: Remove the guard
  gb10.ring.memory_guard:
    node: "{{ inventory_hostname }}"
    state: absent
"""

RETURN = r"""
checks:
  description:
    - C(memory.guard) (armed, with its phase), C(memory.guard_peers) (every other guard answers), and C(memory.guard_stop) when the
      guard has stopped the group and the engine was not started since.
    - They tell the state after the call; in check mode, the state as it is. Empty with O(state=absent).
  returned: success
  type: list
  elements: dict
token_print:
  description: Fingerprint of the node's token, empty when it has none. The same on all nodes when their guards understand each other.
  returned: success
  type: str
  sample: 0f3a9be2d1447712
limits:
  description: The limits in force with O(state=present), profile and O(limits) taken together.
  returned: success
  type: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory import guard_call
from ansible_collections.gb10.ring.plugins.module_utils.memory.guard_profiles import PROFILES

SPEC = {
    "node": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "profile": {"type": "str", "choices": sorted(PROFILES), "default": "ring"},
    "limits": {"type": "dict", "default": {}},
    "engine_unit": {"type": "str", "default": "gb10-ring-engine.service"},
    "addresses": {"type": "dict"},
    "port": {"type": "int", "default": 7872},
    "token": {"type": "str", "no_log": True},
    "meminfo_path": {"type": "path", "default": "/proc/meminfo"},
    "wait_s": {"type": "int", "default": 0},
    "etc_root": {"type": "path", "default": "/etc"},
    "lib_root": {"type": "path", "default": "/usr/local/lib"},
    "state_root": {"type": "path", "default": "/var/lib/gb10-ring"},
    "run_root": {"type": "path", "default": "/run"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC, required_if=[("state", "present", ("addresses",))], supports_check_mode=True
    )
    node = module.params["node"]
    try:
        call = guard_call.prepare(module.params)
        if not module.check_mode:
            call.apply()
        result = call.result(time.monotonic)
    except (HostError, ValueError) as error:
        module.fail_json(msg=f"{node}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
