#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: owned_files
short_description: Remove files of the collection, and the directories that were made for them
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Removes files, links and directories with all that is in them. Of a directory that is a mount point it removes the content.
  - >-
    Then it removes the directories that bear the collection's name, such as C(/etc/gb10-ring), and those that were made for its files,
    which O(state_root) has on record, as far as they are empty.
  - What needs more than that to come back, such as a kernel setting, has a module of its own with O(ignore:state=absent).
extends_documentation_fragment:
  - gb10.ring.attributes.changing
options:
  paths:
    description: Absolute paths, but no directory of the system such as C(/etc) or C(/var). One that does not exist is no error.
    type: list
    elements: path
    required: true
  variable:
    description: Name of the variable that the paths are from, for the message that refuses one.
    type: str
    default: paths
  state_root:
    description: Directory of the collection's records.
    type: path
    default: /var/lib/gb10-ring
attributes:
  diff_mode:
    details: Shows which paths go, not what is in them.
seealso:
  - module: gb10.ring.memory_settings
  - module: gb10.ring.rdma_settings
"""

EXAMPLES = r"""
- name: Remove the engine's unit and what it was rendered from
  gb10.ring.owned_files:
    paths:
      - /etc/systemd/system/gb10-ring-engine.service
      - /etc/gb10-ring/engine.json
"""

RETURN = r"""
removed:
  description: Those of O(paths) that existed.
  returned: success
  type: list
  elements: str
  sample: [/etc/gb10-ring/engine.json]
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils import made
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.plan import Plan

SPEC = {
    "paths": {"type": "list", "elements": "path", "required": True},
    "variable": {"type": "str", "default": "paths"},
    "state_root": {"type": "path", "default": made.STATE},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        plan = Plan(tuple(made.removals(module.params["paths"], module.params["variable"])))
        if not module.check_mode:
            state = Path(module.params["state_root"])
            for change in plan.changes:
                made.adopt(Path(change.what), state)
                made.remove(Path(change.what))
            made.tidy(state)
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=plan.changed, diff=plan.diff(), removed=[change.what for change in plan.changes])


if __name__ == "__main__":
    main()
