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
extends_documentation_fragment:
  - gb10.ring.checkpoint_place
options:
  revision:
    description: Name of the revision.
    type: str
    required: true
attributes:
  check_mode:
    description:
      - Says whether the link would move.
      - A revision that is not staged yet is no error in check mode, since the task before this one would have staged it.
    support: full
  diff_mode:
    description: The target of the link before and after.
    support: full
  idempotent:
    description: A second run finds the link in place.
    support: full
seealso:
  - module: gb10.ring.checkpoint_stage
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
  description: The revision that it points to now.
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

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import frontend
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import ROOT_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.survey import current_revision
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    options = {**ROOT_OPTIONS, "name": {"type": "str", "required": True}, "revision": {"type": "str", "required": True}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    name, revision = module.params["name"], module.params["revision"]
    layout = Layout(module.params["root"], name)
    try:
        frontend.check_names(name, revision)
        previous = current_revision(layout)
        activation = frontend.activation_of(layout, revision)
        if activation.refusal and not module.check_mode:
            raise HostError(f"cannot activate {revision} of {name}: {activation.refusal}")
        if activation.plan.changed and not module.check_mode:
            frontend.point(layout, revision)
    except (HostError, ManifestError) as error:
        module.fail_json(msg=str(error))
    plan = activation.plan
    module.exit_json(
        changed=plan.changed, diff=plan.diff(), path=str(layout.current), revision=revision, previous=previous
    )


if __name__ == "__main__":
    main()
