#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_activate
short_description: Make a staged revision of a checkpoint the one that the engine opens
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Points the symbolic link C(current) of the checkpoint to a revision, in one rename.
  - Refuses a revision that has no receipt, and one whose files do not have the sizes and times of its receipt any more.
  - With O(engram) also one whose Engram rows on this node are not those that its engine reads.
  - >-
    A group switches in phases, each on all nodes before the next one: V(prepare), V(commit), and V(finish) once the revision is
    accepted, or V(revert). Where a node is in that is kept in C(switch.json) of the checkpoint, so that a run which ends early can
    be finished or taken back by the next one.
extends_documentation_fragment:
  - gb10.ring.checkpoint_place
  - gb10.ring.engram_wanted
options:
  revision:
    description: Name of the revision. With O(phase=revert), of the one that is given up.
    type: str
    required: true
  phase:
    description:
      - V(now) moves the link without the other nodes.
      - V(prepare) records where the node goes and from where, and proves that it can. The link stays.
      - V(commit) moves the link of a node that is prepared.
      - V(finish) ends the switch. What was active is then the revision before it.
      - V(revert) moves the link back to where the group came from and ends the switch. Without a switch it does nothing.
      - >-
        With O(engram), V(revert) refuses a revision that would be served with the Engram rows of another one, or of another rank, and
        leaves link and record as they are.
    type: str
    choices: [now, prepare, commit, finish, revert]
    default: now
  origin:
    description:
      - Revision that the whole group goes back to if the switch fails, empty when there is none. For O(phase=prepare).
      - Without it, the one that is active on this node.
    type: str
  downtime_s:
    description: Seconds that the switch took the group out of service, to be recorded with O(phase=finish).
    type: float
attributes:
  check_mode:
    description:
      - Says whether link and record would change.
      - A revision that is not staged yet is no error in check mode, since the task before this one would have staged it.
    support: full
  diff_mode:
    description: The target of the link, and the record of the switch, before and after.
    support: full
  idempotent:
    description: A second run of the same phase finds everything in place.
    support: full
seealso:
  - module: gb10.ring.checkpoint_stage
  - module: gb10.ring.checkpoint_restage
"""

EXAMPLES = r"""
- name: Activate the revision that was staged
  gb10.ring.checkpoint_activate:
    name: "{{ checkpoint_plan_result.plan.name }}"
    revision: "{{ checkpoint_plan_result.plan.revision }}"
"""

RETURN = r"""
path:
  description: The link.
  returned: success
  type: str
  sample: /var/lib/gb10-ring/checkpoints/small/current
revision:
  description: The revision that it points to now, empty when there is none. In check mode the one that it would point to.
  returned: success
  type: str
  sample: 6d2f1f7a3c0b9e55
previous:
  description: The revision that it pointed to before, empty when there was none.
  returned: success
  type: str
  sample: 0c4a5f2d17be9a31
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import frontend, standing
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import ACTIVATE_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_standing import Rows
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.survey import current_revision
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    module = AnsibleModule(argument_spec=ACTIVATE_OPTIONS, supports_check_mode=True)
    name, revision, phase = (module.params[key] for key in ("name", "revision", "phase"))
    layout = Layout(module.params["root"], name)
    try:
        frontend.check_names(name, revision)
        previous = current_revision(layout)
        rows, refusal = Rows.from_options(module.params["engram"]), ""
        if phase in ("now", "prepare", "commit"):
            refusal = standing.activation_of(layout, revision, rows).refusal
        if refusal and not module.check_mode:
            raise HostError(f"cannot activate {revision} of {name}: {refusal}")
        step, plan = standing.step(layout, phase, revision, module.params["origin"], module.params["downtime_s"])
        # Without engram nobody is going to serve it.
        problem = standing.way_back_problem(layout, step, rows) if phase == "revert" and rows else ""
        if problem:
            raise HostError(f"cannot go back to {step.link} of {name}: {problem}")
        if plan.changed and not module.check_mode:
            standing.apply(layout, step)
    except (HostError, ManifestError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=plan.changed, diff=plan.diff(), path=str(layout.current), revision=step.link, previous=previous
    )


if __name__ == "__main__":
    main()
