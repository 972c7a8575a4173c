#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_settings
short_description: Load the RDMA kernel modules and lift the locked-memory limits, or take it back
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Owns C(/etc/modules-load.d/90-gb10-ring.conf), C(/etc/security/limits.d/90-gb10-ring.conf) and
    C(/etc/systemd/system.conf.d/90-gb10-ring.conf), and loads the modules that are neither loaded nor built in.
  - RDMA registers memory by locking it. The usual default of 8 MiB makes C(ibv_reg_mr) fail, which looks like a network fault.
  - The limits file counts from the next login. The systemd file counts for services started after the next C(systemctl daemon-reload)
    or boot; no C(daemon-reexec) is needed, and a unit with C(LimitMEMLOCK=) of its own depends on neither.
  - Refuses to write a limits file with a limit that root cannot set on this machine. It would not take effect, and C(pam_limits), which
    answers C(PAM_PERM_DENIED) for it, ends the login on some systems.
  - What was before is kept in O(record_path); O(state=absent) brings it back and unloads the modules that were not loaded before, unless
    they are in use.
  - Needs root.
extends_documentation_fragment:
  - gb10.ring.attributes.changing
  - gb10.ring.roots.etc
options:
  state:
    description: V(absent) brings back what O(record_path) keeps and removes every file of ours.
    type: str
    choices: [present, absent]
    default: present
  modules:
    description:
      - Kernel modules to load, now and at every boot. Without any, the file is removed.
      - C(nvidia-peermem) is refused, since GB10 does not support it.
    type: list
    elements: str
    default: [mlx5_core, mlx5_ib, ib_uverbs, rdma_cm, rdma_ucm]
  load_modules:
    description: Load the missing modules now. V(false) only writes the file, for a machine whose kernel has no modules.
    type: bool
    default: true
  memlock:
    description: Soft and hard locked-memory limit of all users, V(unlimited) or a number of KiB. Empty leaves no limits file.
    type: str
    default: unlimited
  default_memlock:
    description:
      - systemd's C(DefaultLimitMEMLOCK), V(infinity) or bytes with a suffix C(K), C(M), C(G) or C(T). Empty leaves no file.
      - V(infinity) does no harm where root can't raise limits. systemd then gives services the highest limit that it may.
    type: str
    default: infinity
  sys_root:
    description: Directory that stands for C(/sys).
    type: path
    default: /sys
  modules_root:
    description: Directory with one directory of modules for each kernel release.
    type: path
    default: /lib/modules
  record_path:
    description: JSON file that keeps what was replaced.
    type: path
    default: /var/lib/gb10-ring/rdma-before.json
"""

EXAMPLES = r"""
- name: Ready a node for RDMA
  gb10.ring.rdma_settings:

- name: Ready a container whose kernel has no modules and whose root can't raise limits
  gb10.ring.rdma_settings:
    load_modules: false
    memlock: "8192"

- name: Bring back what was before
  gb10.ring.rdma_settings:
    state: absent
"""

RETURN = r"""
files:
  description: Paths of the files that changed or would change.
  returned: success
  type: list
  elements: str
  sample: [/etc/modules-load.d/90-gb10-ring.conf]
loaded:
  description: Modules that were loaded or would be loaded.
  returned: success
  type: list
  elements: str
  sample: [rdma_ucm]
unloaded:
  description: For O(state=absent), modules that were not loaded before and are unloaded, or would be.
  returned: success
  type: list
  elements: str
notes:
  description: For O(state=absent), what stays as it is because somebody else changed it since or uses it.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric import rdma_machine, rdma_settings
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPEC = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "modules": {
        "type": "list",
        "elements": "str",
        "default": ["mlx5_core", "mlx5_ib", "ib_uverbs", "rdma_cm", "rdma_ucm"],
    },
    "load_modules": {"type": "bool", "default": True},
    "memlock": {"type": "str", "default": "unlimited"},
    "default_memlock": {"type": "str", "default": "infinity"},
    "etc_root": {"type": "path", "default": "/etc"},
    "sys_root": {"type": "path", "default": "/sys"},
    "modules_root": {"type": "path", "default": "/lib/modules"},
    "record_path": {"type": "path", "default": "/var/lib/gb10-ring/rdma-before.json"},
}


def planned(wanted, options):
    """The plan for this machine. Raises HostError with everything that stands against it."""
    problems = rdma_settings.option_problems(wanted)
    if problems:
        raise HostError("; ".join(problems))
    etc = Path(options["etc_root"])
    missing = rdma_machine.missing_modules(wanted, Path(options["sys_root"]), Path(options["modules_root"]))
    hard = rdma_machine.hard_memlock()
    refused = rdma_settings.limit_refusal(wanted, hard, rdma_machine.memlock_allowed(wanted.memlock))
    problems = [*([refused] if refused else ()), *rdma_machine.unloadable(missing)]
    if problems:
        raise HostError(f"nothing was changed: {'; '.join(problems)}")
    return rdma_settings.decide(wanted, str(etc), rdma_machine.current_files(etc, wanted), missing)


def carry_out(wanted, options, check_mode):
    """Bring it about, or plan it in check mode; the plan and notes. Raises HostError."""
    steps = planned(wanted, options)
    if not check_mode:
        rdma_machine.apply(steps, Path(options["record_path"]), Path(options["sys_root"]))
    return steps, [], steps.plan.changed


def take_back(wanted, options, check_mode):
    """The way back, by the record; the plan, what stays, and whether anything changes. Raises HostError."""
    etc, record = Path(options["etc_root"]), Path(options["record_path"])
    current = rdma_machine.current_files(etc, wanted)
    loaded = rdma_machine.loaded_modules(Path(options["sys_root"]))
    steps = rdma_settings.way_back(rdma_machine.load_record(record), str(etc), current, loaded)
    changed = steps.plan.changed or record.exists()
    notes = [] if check_mode else rdma_machine.take_back(steps, record)
    return steps, [*steps.notes, *notes], changed


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    wanted = rdma_settings.Wanted(
        modules=tuple(options["modules"]),
        memlock=options["memlock"],
        default_memlock=options["default_memlock"],
        load=options["load_modules"],
    )
    work = take_back if options["state"] == "absent" else carry_out
    try:
        steps, notes, changed = work(wanted, options, module.check_mode)
    except HostError as error:
        module.fail_json(msg=f"rdma_settings: {error}")
    for note in notes:
        module.warn(note)
    module.exit_json(
        changed=changed,
        diff=steps.plan.diff(),
        files=[change.what for change in steps.files],
        loaded=list(steps.modules),
        unloaded=list(steps.unload),
        notes=notes,
    )


if __name__ == "__main__":
    main()
