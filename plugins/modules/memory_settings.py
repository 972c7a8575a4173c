#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_settings
short_description: Switch swap off for good and set kernel memory settings that provably took effect, or take all of it back
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
  - Values that lower C(MemAvailable) make an engine's own memory check fail when they are there before it starts. Those of
    O(serving_sysctls) are set by a unit that is bound to C(gb10-ring-engine.service), once the head of the group answers, and go back
    to what they were when the engine stops. Before they are persisted each is written, read back and put back, unless the engine runs.
  - What was replaced is kept in O(record_path). The first value recorded for a setting stays. O(state=absent) brings all of it back.
  - Needs root.
extends_documentation_fragment:
  - gb10.ring.attributes.changing
  - gb10.ring.roots.etc
options:
  node:
    description: Inventory name of the node, used in the checks.
    type: str
    required: true
  state:
    description: V(absent) brings back what O(record_path) keeps, byte for byte, and removes every file of ours.
    type: str
    choices: [present, absent]
    default: present
  profile:
    description:
      - Named set of kernel settings that O(sysctls), O(serving_sysctls) and O(thp) change. C(docs/memory.md) has each value's evidence.
      - V(conservative) holds what no source speaks against, V(tuned) adds a reserve of 1 GiB while the engine serves, V(none) is empty.
    type: str
    choices: [conservative, tuned, none]
    default: none
  swap:
    description: V(disabled) leaves no swap, now and at every boot; V(unmanaged) neither changes nor checks swap.
    type: str
    choices: [disabled, unmanaged]
    default: disabled
  sysctls:
    description:
      - Kernel settings by name, such as C(vm.swappiness), with a number or text as value. Null takes a setting out of the profile.
      - The file holds exactly these and those of O(profile); without any it is removed.
    type: dict
    default: {}
  serving_sysctls:
    description: Kernel settings as in O(sysctls), in force only while the engine serves.
    type: dict
    default: {}
  thp:
    description: Mode of transparent huge pages. V(profile) takes the one of O(profile), V(unmanaged) neither changes nor checks it.
    type: str
    choices: [profile, always, madvise, never, unmanaged]
    default: profile
  remove_ipc:
    description:
      - V(disabled) sets C(RemoveIPC=no) for logind, which otherwise destroys semaphores of a rank that a login started when the login ends.
      - V(unmanaged) neither changes nor checks it.
    type: str
    choices: [disabled, unmanaged]
    default: unmanaged
  proc_root:
    description: Directory that stands for C(/proc).
    type: path
    default: /proc
  run_root:
    description: Directory that stands for C(/run), where systemd's generators put swap units.
    type: path
    default: /run
  usr_root:
    description: Directory that stands for C(/usr), which holds the files and units of packages.
    type: path
    default: /usr
  sys_root:
    description: Directory that stands for C(/sys).
    type: path
    default: /sys
  record_path:
    description: JSON file that keeps what was replaced.
    type: path
    default: /var/lib/gb10-ring/memory-before.json
attributes:
  check_mode:
    details: What would make the module fail is a warning in check mode and is returned as RV(problems), so that checks can be read.
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

- name: Take a profile, without one of its settings and with another
  gb10.ring.memory_settings:
    node: "{{ inventory_hostname }}"
    profile: tuned
    sysctls:
      vm.compaction_proactiveness: null
      vm.vfs_cache_pressure: 50
    remove_ipc: disabled

- name: Bring back what was before
  gb10.ring.memory_settings:
    node: "{{ inventory_hostname }}"
    state: absent

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
    - Checks C(memory.swap), C(memory.swap_boot), C(memory.sysctl) for each setting, C(memory.persisted), C(memory.remove_ipc),
      C(memory.serving), and C(memory.foreign) for each entry of RV(foreign), each with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
    - They tell the state after the call; in check mode, the state as it is. Empty for O(state=absent).
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
notes:
  description: For O(state=absent), what stays as it is because somebody else has changed it since.
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
from ansible_collections.gb10.ring.plugins.module_utils.memory import (
    machine,
    profiles,
    settings,
    settings_checks,
    swap,
    sysctl,
    undo,
)

SPEC = {
    "node": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "profile": {"type": "str", "choices": ["conservative", "tuned", "none"], "default": "none"},
    "swap": {"type": "str", "choices": ["disabled", "unmanaged"], "default": "disabled"},
    "sysctls": {"type": "dict", "default": {}},
    "serving_sysctls": {"type": "dict", "default": {}},
    "thp": {"type": "str", "choices": ["profile", "always", "madvise", "never", "unmanaged"], "default": "profile"},
    "remove_ipc": {"type": "str", "choices": ["disabled", "unmanaged"], "default": "unmanaged"},
    "proc_root": {"type": "path", "default": "/proc"},
    "etc_root": {"type": "path", "default": "/etc"},
    "run_root": {"type": "path", "default": "/run"},
    "usr_root": {"type": "path", "default": "/usr"},
    "sys_root": {"type": "path", "default": "/sys"},
    "record_path": {"type": "path", "default": "/var/lib/gb10-ring/memory-before.json"},
}


def wanted_of(options):
    """The options as the core takes them. Raises HostError with everything that cannot be used."""
    profile = options["profile"]
    sysctls, problems = sysctl.wanted_settings(options["sysctls"])
    serving, more = sysctl.wanted_settings(options["serving_sysctls"], "serving_sysctls")
    if problems or more:
        raise HostError("; ".join([*problems, *more]))
    thp = {"profile": profiles.thp(profile), "unmanaged": ""}.get(options["thp"], options["thp"])
    return settings.Wanted(
        sysctl.overlay(profiles.always(profile), options["sysctls"], sysctls),
        swap_off=options["swap"] == "disabled",
        serving=sysctl.overlay(profiles.serving(profile), options["serving_sysctls"], serving),
        program=machine.program(),
        thp=thp,
        keep_ipc=options["remove_ipc"] == "disabled",
    )


def summary(state):
    """The part of the state that is returned."""
    return {
        "sysctls": dict(state.values),
        "swaps": [area.text() for area in state.swaps],
        "swap_at_boot": list(swap.fstab_swaps(state.fstab)),
    }


def carry_out(module, node, wanted, roots):
    """Look, plan, apply unless in check mode, look again; the result. Raises HostError."""
    keys = {**wanted.settings, **wanted.serving}
    before = machine.look(roots, keys, bool(wanted.serving))
    planned = settings.decide(before, wanted, roots.places)
    if planned.problems and not module.check_mode:
        raise HostError(f"nothing was changed: {'; '.join(planned.problems)}")
    for problem in planned.problems:
        module.warn(f"{node}: would fail: {problem}")
    if not module.check_mode:
        machine.apply(planned, roots)
    if before.engine and planned.touches(roots.places.serving.settings) and not module.check_mode:
        module.warn(
            f"{node}: the engine runs, so the serving settings were not tried; {machine.NAME} reads them back when it sets them"
        )
    after = before if module.check_mode else machine.look(roots, keys)
    return {
        "changed": planned.plan.changed,
        "diff": planned.plan.diff(),
        "before": summary(before),
        "after": summary(after),
        "foreign": [found.text() for found in planned.foreign],
        "problems": list(planned.problems),
        "notes": [],
        "checks": [check.to_dict() for check in settings_checks.checks(node, after, wanted, roots.places)],
    }


def take_back(module, node, roots):
    """The way back, by the record; the result. Raises HostError."""
    record = machine.load_record(roots.record)
    before = machine.look(roots, record["sysctls"])
    planned = undo.decide(record, before, roots.places)
    notes = list(planned.notes)
    changed = planned.plan.changed or roots.record.exists()
    if not module.check_mode:
        notes += machine.undo(planned, roots)
    for note in notes:
        module.warn(f"{node}: {note}")
    after = before if module.check_mode else machine.look(roots, record["sysctls"])
    return {
        "changed": changed,
        "diff": planned.plan.diff(),
        "before": summary(before),
        "after": summary(after),
        "foreign": [],
        "problems": [],
        "notes": notes,
        "checks": [],
    }


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    node = options["node"]
    names = ("proc", "etc", "run", "usr", "sys")
    roots = machine.Roots(
        **{name: Path(options[f"{name}_root"]) for name in names}, record=Path(options["record_path"])
    )
    try:
        absent = options["state"] == "absent"
        result = take_back(module, node, roots) if absent else carry_out(module, node, wanted_of(options), roots)
    except HostError as error:
        module.fail_json(msg=f"{node}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
