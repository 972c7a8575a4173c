#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_service
short_description: Start or stop this node's rank of the inference engine
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Brings the engine's systemd unit to O(state) and waits until systemd says that it is there.
  - >-
    A started rank is not yet a serving group. M(gb10.ring.engine_ready) waits for that. Ranks of one group are started and stopped
    together; the role P(gb10.ring.engine#role) keeps the order.
  - >-
    The supervisor of the node, M(gb10.ring.engine_group), is told before, so that a stop is no failure. A stop is looked at afterwards:
    shared memory of the rank that nobody maps is removed, and the module fails when a process, a container, a listener at the rank's
    ports, or memory that no process holds is left. Ports and memory are looked at only when the rank ran until then. Beside others that compute
    on the GPU nobody can tell whose memory it is, and a warning names them.
options:
  state:
    description:
      - V(started) starts a rank that does not run, V(stopped) ends it and leaves no failed unit behind, V(restarted) always acts.
    type: str
    required: true
    choices: [started, stopped, restarted]
  unit:
    description: Name of the unit.
    type: str
    default: gb10-ring-engine.service
  timeout_s:
    description: How long to wait for systemd, in seconds. It should be longer than the profile's C(stop_timeout_s).
    type: int
    default: 120
  reason:
    description: Why, for the supervisors' journals.
    type: str
    default: asked for
  memory_wait_s:
    description: How long after a stop processes, ports and memory may take to be gone or back, in seconds.
    type: float
    default: 120.0
  nvidia_smi:
    description: Path of nvidia-smi, which is asked for others that compute on the GPU when memory does not come back. It may be absent.
    type: path
    default: /usr/bin/nvidia-smi
  etc_root:
    description: Directory that stands for C(/etc), where the rank's C(gb10-ring/engine.json) is.
    type: path
    default: /etc
  run_root:
    description: Directory that stands for C(/run).
    type: path
    default: /run
  proc_root:
    description: Directory that stands for C(/proc).
    type: path
    default: /proc
  shm_root:
    description: Directory that stands for C(/dev/shm).
    type: path
    default: /dev/shm
attributes:
  check_mode:
    description: Says whether it would act, also where the unit is not there yet.
    support: full
  diff_mode:
    description: Shows the unit's state before and after.
    support: full
  idempotent:
    description: Acts only when the unit is in another state; O(state=restarted) always acts.
    support: partial
requirements:
  - systemd on the node
seealso:
  - module: gb10.ring.engine_unit
  - module: gb10.ring.engine_ready
"""

EXAMPLES = r"""
- name: Stop the rank
  gb10.ring.engine_service:
    state: stopped
"""

RETURN = r"""
before:
  description: State of the unit when the module looked first.
  returned: success
  type: str
  sample: active (running)
after:
  description: State of the unit at the end, in check mode the same as RV(before).
  returned: success
  type: str
  sample: inactive (dead)
ended:
  description: Whether a rank that was to run does not, because it ended or another rank has failed. M(gb10.ring.engine_ready) says why.
  returned: success
  type: bool
removed:
  description: Shared memory of the rank that was removed after a stop.
  returned: success
  type: list
  elements: str
note:
  description: After a stop, whom else memory that no process holds may belong to; it is a warning too. Empty otherwise.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import life, machine
from ansible_collections.gb10.ring.plugins.module_utils.engine.service import STATES, plan_state
from ansible_collections.gb10.ring.plugins.module_utils.engine.unit import NAME
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPEC = {
    "state": {"type": "str", "required": True, "choices": list(STATES)},
    "unit": {"type": "str", "default": NAME},
    "timeout_s": {"type": "int", "default": 120},
    "reason": {"type": "str", "default": "asked for"},
    "memory_wait_s": {"type": "float", "default": 120.0},
    "nvidia_smi": {"type": "path", "default": "/usr/bin/nvidia-smi"},
    "etc_root": {"type": "path", "default": "/etc"},
    "run_root": {"type": "path", "default": "/run"},
    "proc_root": {"type": "path", "default": "/proc"},
    "shm_root": {"type": "path", "default": "/dev/shm"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    unit, wanted = module.params["unit"], module.params["state"]
    try:
        before = after = machine.unit_state(unit)
        plan, removed, note = plan_state(unit, before, wanted), [], ""
        if not module.check_mode:
            after, removed, note = life.apply(module.params, before, plan.changed)
            if note:
                module.warn(note)
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=plan.changed,
        diff=plan.diff(),
        before=before.text(),
        after=after.text(),
        ended=wanted != "stopped" and not module.check_mode and not after.running,
        removed=removed,
        note=note,
    )


if __name__ == "__main__":
    main()
