#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_passed
short_description: Keep the engine's configuration that passed, or go back to it
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    With O(state=kept) what this rank of the engine runs from (its unit or quadlet, C(engine.json) with the specification, the program that
    looks GIDs up) is kept in C(/var/lib/gb10-ring/engine/passed/passed.json), as the last configuration that passed.
  - >-
    With O(state=restored) these files are put back, and the unit is enabled. Starts and stops nothing; M(gb10.ring.engine_service) does that.
    Images and revisions are not kept, they have to be there still, and so have the Engram rows that it reads: of its revision and rank. When
    the node cannot go back RV(problem) says why, and nothing is changed.
options:
  state:
    description: V(kept) keeps the present configuration, V(restored) puts the kept one back, V(absent) forgets it.
    type: str
    required: true
    choices: [kept, restored, absent]
  group:
    description:
      - Hash of every rank's configuration, by inventory name, with O(state=kept). Nodes that passed together have the same.
    type: dict
    default: {}
  etc_root:
    description: Directory that stands for C(/etc).
    type: path
    default: /etc
  state_root:
    description: Directory in which it is kept.
    type: path
    default: /var/lib/gb10-ring
attributes:
  check_mode:
    description: Says what it would do.
    support: full
  diff_mode:
    description: Shows the files that are put back, and of what is kept its identity.
    support: full
  idempotent:
    description: Acts only where something differs.
    support: full
requirements:
  - systemd on the node
seealso:
  - module: gb10.ring.engine_unit
  - module: gb10.ring.engine_service
"""

EXAMPLES = r"""
- name: Keep what passed
  gb10.ring.engine_passed:
    state: kept
    group: "{{ hostvars | gb10.ring.host_values(ansible_play_hosts_all, 'engine_unit_result', 'hash') }}"

- name: Go back to what passed before
  gb10.ring.engine_passed:
    state: restored
"""

RETURN = r"""
hash:
  description: Identity of the kept configuration, empty when there is none.
  returned: success
  type: str
  sample: 5f0c3a9be2d14477
group:
  description: Hash of every rank that passed with it, by inventory name.
  returned: success
  type: dict
described:
  description: The kept configuration in words, empty when there is none.
  returned: success
  type: str
  sample: lab, configuration 5f0c3a9be2d14477, which passed at 2026-11-30 06:12:45 UTC
differs:
  description: Whether the present configuration is another one than the kept one, or than the one to be kept.
  returned: success
  type: bool
unproven:
  description: Whether what C(engine.json) says now, by its hash, is not the configuration that was kept before. So it is when none was.
  returned: success
  type: bool
url:
  description: Base URL of the API with the kept configuration, empty when there is none.
  returned: success
  type: str
served_model_name:
  description: Name of the model in the API with the kept configuration, empty when there is none.
  returned: success
  type: str
ready_timeout_s:
  description: How long the group may take with it until it serves, in seconds.
  returned: success
  type: int
memory:
  description: What a rank takes with it, as RV(gb10.ring.engine_unit#module:spec) says; empty when that is not known.
  returned: success
  type: dict
  sample: {weights_gib: 82.5, activations_gib: 7, graphs_gib: 2, utilization: 0.8, page_cache: drop}
problem:
  description: Why the node cannot go back to it, empty when it can.
  returned: success
  type: str
"""

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_serving
from ansible_collections.gb10.ring.plugins.module_utils.engine import machine, passed, render
from ansible_collections.gb10.ring.plugins.module_utils.engine.unit import hash_of
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text, write_text
from ansible_collections.gb10.ring.plugins.module_utils.plan import Change, Plan


def keep(options, path, before):
    """The plan, what is kept after it, and how to carry it out."""
    held = machine.held({}, render.OWNED, options["etc_root"])
    texts = dict(zip(render.OWNED, (text for text, _after in held.values()), strict=True))
    now = passed.of_files(texts, render.RECORD, options["group"], time.time())
    if not now.hash:
        raise HostError(f"there is no {render.RECORD} with a hash to keep. Cure: run the engine role, which writes it")
    plan = passed.plan_keep(path, before, now)
    return plan, now if plan.changed else before, lambda: write_text(path, passed.render(now), 0o600)


def problem_of(kept):
    """Why the node cannot go back to it, as things are on the node now."""
    problem = passed.problem(kept, bool(kept) and Path(kept.model).is_dir())
    return problem or row_serving.unsafe_unit(kept.record)


def restore(options, before):
    """The same. Nothing is changed when the node cannot go back."""
    if before is None or problem_of(before):
        return Plan(), before, None
    texts = {place: text for place, text in before.files.items() if place in render.OWNED}
    files = machine.held(texts, render.OWNED, options["etc_root"])

    def apply() -> None:
        machine.apply_files(files, before.renderer != "podman", machine.state_root(options["etc_root"]))

    return passed.plan_restore(files), before, apply


def forget(path, before):
    """The same."""
    if not Path(path).exists():
        return Plan(), None, None
    plan = Plan((Change(path, before.text() if before else "unreadable", "", "forgotten"),))
    return plan, None, lambda: remove(Path(path))


def remove(path):
    """The file, and folders of ours that are empty then."""
    machine.remove(str(path))
    for folder in (path.parent, path.parent.parent):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": ["kept", "restored", "absent"]},
            "group": {"type": "dict", "default": {}},
            "etc_root": {"type": "path", "default": "/etc"},
            "state_root": {"type": "path", "default": "/var/lib/gb10-ring"},
        },
        supports_check_mode=True,
    )
    options, state = module.params, module.params["state"]
    path = f"{options['state_root']}/{passed.FOLDER}/{passed.FILE}"
    try:
        before = passed.parse(read_text(path), render.RECORD)
        present = hash_of(read_text(options["etc_root"] + render.RECORD.removeprefix("/etc")))
        acts = {"kept": lambda: keep(options, path, before), "restored": lambda: restore(options, before)}
        plan, kept, apply = acts.get(state, lambda: forget(path, before))()
        if plan.changed and not module.check_mode:
            apply()
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=plan.changed,
        differs=plan.changed,
        unproven=passed.unproven(before, present),
        diff=plan.diff(),
        hash=kept.hash if kept else "",
        group=dict(kept.group) if kept else {},
        described=kept.text() if kept else "",
        **passed.readiness(kept),
        memory=passed.memory(kept),
        problem=problem_of(kept),
    )


if __name__ == "__main__":
    main()
