#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: platform_settings
short_description: Set the services of a node that decide what happens to an engine, or take them back
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Holds unattended upgrades while the engine runs, makes the journal persistent, keeps NVIDIA's persistence daemon on, and by option sets
    which OOM daemon runs, limits the GPU's clocks, and boots without desktop.
  - Each of them is a file or a unit of its own. What was before is kept in O(record_path), and O(state=absent) brings it back.
  - Needs root.
extends_documentation_fragment:
  - gb10.ring.attributes.changing
  - gb10.ring.roots.etc
options:
  node:
    description: Inventory name of the node, used in messages and checks.
    type: str
    required: true
  state:
    description: V(absent) brings back what O(record_path) keeps and removes every file of ours.
    type: str
    choices: [present, absent]
    default: present
  oom_daemon:
    description:
      - Which daemon ends processes when memory runs out. V(keep) leaves the node as it is, V(none) stops earlyoom and systemd-oomd.
      - V(earlyoom) starts it, which has to be installed. Its usual threshold of 2 % is above the working point of some engines.
    type: str
    choices: [keep, none, earlyoom]
    default: keep
  clock_lock:
    description:
      - Lowest and highest GPU clock in MHz, such as V(300,2200), set at every boot by C(gb10-ring-clock-lock.service). Empty for no limit.
      - It is set once before anything is written. A value that C(nvidia-smi) refuses fails the module, and an earlier limit stays.
    type: str
    default: ""
  headless:
    description: V(true) lets the node boot into C(multi-user.target), from the next boot on; V(false) leaves the default target alone.
    type: bool
    default: false
  hold_upgrades:
    description: Whether C(apt-daily-upgrade.service) is skipped while C(gb10-ring-engine.service) is active.
    type: bool
    default: true
  persistent_journal:
    description: Whether journald keeps its journal over a restart.
    type: bool
    default: true
  persistence:
    description: Whether C(nvidia-persistenced.service), where it exists, runs now and from boot on.
    type: bool
    default: true
  nvidia_smi:
    description: Path of C(nvidia-smi) on the node.
    type: path
    default: /usr/bin/nvidia-smi
  record_path:
    description: JSON file that keeps what was replaced.
    type: path
    default: /var/lib/gb10-ring/platform-before.json
attributes:
  check_mode:
    details: What would make the module fail is returned as RV(problems) in check mode, so that checks can be read.
notes:
  - The directory C(/var/log/journal) with its logs stays with O(state=absent), and with it journald keeps writing there.
"""

EXAMPLES = r"""
- name: Hold upgrades while serving, keep the journal, limit the clocks
  gb10.ring.platform_settings:
    node: "{{ inventory_hostname }}"
    clock_lock: 300,2200

- name: Look at the services, change nothing
  gb10.ring.platform_settings:
    node: "{{ inventory_hostname }}"
    oom_daemon: none
  check_mode: true
  register: platform_checks
"""

RETURN = r"""
checks:
  description:
    - Checks C(memory.services), C(memory.oom_daemon), C(memory.persistence), C(memory.clock_lock), C(memory.headless), those that apply,
      each with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
    - They tell the state after the call; in check mode, the state as it is. Empty for O(state=absent).
  returned: success
  type: list
  elements: dict
notes:
  description: For O(state=absent), what stays as it is because somebody else has changed it since, and units that do not come back.
  returned: success
  type: list
  elements: str
problems:
  description: Why the settings can't be applied. Empty outside check mode, where they are the error.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory import services, services_host

SPEC = {
    "node": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "oom_daemon": {"type": "str", "choices": ["keep", "none", "earlyoom"], "default": "keep"},
    "clock_lock": {"type": "str", "default": ""},
    "headless": {"type": "bool", "default": False},
    "hold_upgrades": {"type": "bool", "default": True},
    "persistent_journal": {"type": "bool", "default": True},
    "persistence": {"type": "bool", "default": True},
    "nvidia_smi": {"type": "path", "default": "/usr/bin/nvidia-smi"},
    "etc_root": {"type": "path", "default": "/etc"},
    "record_path": {"type": "path", "default": "/var/lib/gb10-ring/platform-before.json"},
}
SAME = ("oom_daemon", "clock_lock", "headless", "hold_upgrades", "persistence", "nvidia_smi")


def carry_out(module, node, wanted, etc, record):
    """Look, plan, apply unless in check mode, look again; the result. Raises HostError."""
    asks = bool(wanted.clock_lock)
    state = services_host.look(etc, asks)
    planned = services.decide(state, wanted, str(etc))
    problems = [*services.option_problems(wanted), *planned.problems]
    if problems and not module.check_mode:
        raise HostError(f"nothing was changed: {'; '.join(problems)}")
    if planned.plan.changed and not module.check_mode:
        services_host.apply(planned, state, wanted, record)
        state = services_host.look(etc, asks)
    checks = [check.to_dict() for check in services.checks(node, state, wanted, str(etc))]
    return {
        "changed": planned.plan.changed,
        "diff": planned.plan.diff(),
        "checks": checks,
        "notes": [],
        "problems": problems,
    }


def take_back(module, node, etc, record):
    """The way back, by the record; the result. Raises HostError."""
    known = services_host.load_record(record)
    planned = services.way_back(known, services_host.look(etc, False), str(etc))
    notes = list(planned.notes)
    changed = planned.plan.changed or record.exists()
    if not module.check_mode:
        notes += services_host.take_back(planned, etc, record, known)
    for note in notes:
        module.warn(f"{node}: {note}")
    return {
        "changed": changed,
        "diff": planned.plan.diff(),
        "checks": [],
        "notes": notes,
        "problems": [],
    }


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    node, etc, record = options["node"], Path(options["etc_root"]), Path(options["record_path"])
    wanted = services.Wanted(journal=options["persistent_journal"], **{name: options[name] for name in SAME})
    try:
        if options["state"] == "absent":
            module.exit_json(**take_back(module, node, etc, record))
        module.exit_json(**carry_out(module, node, wanted, etc, record))
    except HostError as error:
        module.fail_json(msg=f"{node}: {error}")


if __name__ == "__main__":
    main()
