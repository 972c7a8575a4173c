#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_settings
short_description: Switch swap off for good and set kernel memory settings that provably took effect
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Brings the whole wanted memory state about in one call, namely no swap, now and at every boot, and kernel settings.
  - Each kernel setting is written to the running kernel and read back; only when all of them hold they are written to
    C(/etc/sysctl.d/90-gb10-ring.conf), a file that belongs to this module. If one does not hold, the module fails, names it, puts
    the earlier values back and persists nothing.
  - For O(swap=disabled), swap lines of C(/etc/fstab) are commented behind the marker C(# gb10.ring:), swap units and the units that
    make zram devices are masked, and C(swapoff -a) is run when C(/proc/swaps) lists anything. Lines marked C(noauto) stay as they are.
  - Refuses to run C(swapoff) when more is swapped out than C(MemAvailable) shows, since taking it back would fail.
  - What was replaced is kept in O(record_path). The first value recorded for a setting stays.
  - Needs root.
options:
  node:
    description: Inventory name of the node, used in the checks.
    type: str
    required: true
  swap:
    description: V(disabled) leaves no swap, now and at every boot; V(unmanaged) neither changes nor checks swap.
    type: str
    choices: [disabled, unmanaged]
    default: disabled
  sysctls:
    description:
      - Kernel settings by name, such as C(vm.swappiness), with a number or text as value.
      - The file holds exactly these; without any it is removed.
    type: dict
    default: {}
  proc_root:
    description: Directory that stands for C(/proc).
    type: path
    default: /proc
  etc_root:
    description: Directory that stands for C(/etc).
    type: path
    default: /etc
  run_root:
    description: Directory that stands for C(/run), where systemd's generators put swap units.
    type: path
    default: /run
  usr_root:
    description: Directory that stands for C(/usr), which holds the files and units of packages.
    type: path
    default: /usr
  record_path:
    description: JSON file that keeps what was replaced.
    type: path
    default: /var/lib/gb10-ring/memory-before.json
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
    details: What would make the module fail is a warning in check mode and is returned as RV(problems), so that checks can be read.
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: full
  idempotent:
    description: When run twice in a row with the same arguments, the second run reports no change.
    support: full
notes:
  - A value of a C(/proc/sys) file is its first line.
"""

EXAMPLES = r"""
- name: Switch swap off and set two kernel settings
  gb10.ring.memory_settings:
    node: "{{ inventory_hostname }}"
    sysctls:
      vm.swappiness: 10
      vm.watermark_boost_factor: 0

- name: Look at the memory settings, change nothing
  gb10.ring.memory_settings:
    node: "{{ inventory_hostname }}"
    sysctls: "{{ memory_sysctls }}"
  check_mode: true
  register: memory_checks
"""

RETURN = r"""
checks:
  description:
    - Checks C(memory.swap), C(memory.swap_boot), C(memory.sysctl) for each setting, C(memory.persisted), and C(memory.foreign) for each
      entry of RV(foreign), each with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
    - They tell the state after the call; in check mode, the state as it is.
  returned: success
  type: list
  elements: dict
before:
  description: State before the call.
  returned: success
  type: dict
  contains:
    sysctls:
      description: Values by name; null when the kernel has no such setting.
      type: dict
      sample: {vm.swappiness: "60"}
    swaps:
      description: Swap areas in use.
      type: list
      elements: str
      sample: ["/swap.img (file, 16777212 KiB, 0 KiB used)"]
    swap_at_boot:
      description: Lines of fstab that switch swap on.
      type: list
      elements: str
      sample: ["/swap.img none swap sw 0 0"]
after:
  description: State after the call, in the shape of RV(before); in check mode, the state as it is.
  returned: success
  type: dict
foreign:
  description: Lines of other sysctl.d files that are read after ours and give a setting another value at boot.
  returned: success
  type: list
  elements: str
  sample: ["/etc/sysctl.d/99-local.conf:3: vm.swappiness = 60"]
problems:
  description: Why the settings can't be applied. Empty outside check mode, where they are the error.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory import machine, settings, swap, sysctl

SPEC = {
    "node": {"type": "str", "required": True},
    "swap": {"type": "str", "choices": ["disabled", "unmanaged"], "default": "disabled"},
    "sysctls": {"type": "dict", "default": {}},
    "proc_root": {"type": "path", "default": "/proc"},
    "etc_root": {"type": "path", "default": "/etc"},
    "run_root": {"type": "path", "default": "/run"},
    "usr_root": {"type": "path", "default": "/usr"},
    "record_path": {"type": "path", "default": "/var/lib/gb10-ring/memory-before.json"},
}


def summary(state):
    """The part of the state that is returned."""
    return {
        "sysctls": dict(state.values),
        "swaps": [area.text() for area in state.swaps],
        "swap_at_boot": list(swap.fstab_swaps(state.fstab)),
    }


def carry_out(module, node, wanted, roots):
    """Look, plan, apply unless in check mode, look again; the result. Raises HostError."""
    before = machine.look(roots, wanted.sysctls)
    planned = settings.decide(before, wanted, roots.places)
    if planned.problems and not module.check_mode:
        raise HostError(f"nothing was changed: {'; '.join(planned.problems)}")
    for problem in planned.problems:
        module.warn(f"{node}: would fail: {problem}")
    if not module.check_mode:
        machine.apply(planned, roots)
    after = before if module.check_mode else machine.look(roots, wanted.sysctls)
    return {
        "changed": planned.plan.changed,
        "diff": planned.plan.diff(),
        "before": summary(before),
        "after": summary(after),
        "foreign": [found.text() for found in planned.foreign],
        "problems": list(planned.problems),
        "checks": [check.to_dict() for check in settings.checks(node, after, wanted, roots.places)],
    }


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    node = options["node"]
    sysctls, problems = sysctl.wanted_settings(options["sysctls"])
    if problems:
        module.fail_json(msg=f"{node}: {'; '.join(problems)}")
    wanted = settings.Wanted(sysctls, swap_off=options["swap"] == "disabled")
    names = {"proc": "proc_root", "etc": "etc_root", "run": "run_root", "usr": "usr_root", "record": "record_path"}
    roots = machine.Roots(**{field: Path(options[name]) for field, name in names.items()})
    try:
        result = carry_out(module, node, wanted, roots)
    except HostError as error:
        module.fail_json(msg=f"{node}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
