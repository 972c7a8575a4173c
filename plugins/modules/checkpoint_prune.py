#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_prune
short_description: Delete revisions of a checkpoint that are more than are to be kept, and list what else takes room
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Deletes the oldest revisions until O(keep) are left, each out of sight by one rename first.
  - The active revision, the one before it, the one that the engine's unit names, and both ends of a switch are never touched.
  - Lists directories of Engram rows that were brought for O(gb10.ring.engram_rows#module:placement=directory), and deletes them on request.
  - Lists unfinished stagings, directories under C(revisions) that nobody verified, and what others left in O(foreign_paths), with sizes.
extends_documentation_fragment:
  - gb10.ring.checkpoint_place
  - gb10.ring.engram_wanted
options:
  node:
    description: Inventory name of this node, which the rows carry.
    type: str
    required: true
  keep:
    description: Revisions that stay, the active one and the one before it among them. At least 2.
    type: int
    default: 2
  unfinished:
    description: Whether the staging directories of runs that did not end are deleted too. The next run would go on with them.
    type: bool
    default: false
  foreign_paths:
    description: Directories in which others leave copies, each directory in them one. They are listed and never deleted.
    type: list
    elements: path
    default: []
  unused_rows:
    description:
      - Whether directories with Engram rows that no engine reads are deleted too. They are always listed.
      - >-
        That is C(engram) below the checkpoint's directory and O(engram.directory), unless O(engram.placement=directory) has the engine read it,
        the engine's unit was rendered with it, or a process has a file of it open. Without O(engram) nothing is deleted.
      - Of O(engram.directory) only what C(engram-local.json) names goes, and unfinished files of the checkpoint.
    type: bool
    default: false
attributes:
  check_mode:
    description: Lists what would be deleted, and what would stay and why.
    support: full
  diff_mode:
    description: Each thing that is deleted, with its size.
    support: full
  idempotent:
    description: A second run finds nothing to delete.
    support: full
seealso:
  - module: gb10.ring.checkpoint_activate
"""

EXAMPLES = r"""
- name: Keep the active revision and the one before it
  gb10.ring.checkpoint_prune:
    name: DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard
    node: "{{ inventory_hostname }}"
    foreign_paths: [/var/tmp/engram-local]
"""

RETURN = r"""
items:
  description: Everything that lies there. C(bytes) is what deleting it alone gives back, C(remove) whether it goes, C(why) the reason.
  returned: success
  type: list
  elements: dict
  sample:
    - {kind: revision, name: 0c4a5f2d17be9a31, bytes: 10737418240, remove: true, why: more than 2 revisions (checkpoint_keep)}
frees:
  description: Bytes that deleting all of it gives back together. Files that two deleted revisions share count here only.
  returned: success
  type: int
  sample: 10737418240
rows:
  description: The same for a table.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import frontend, pruning
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import PRUNE_OPTIONS, range_problems
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.prune import rows as table
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_standing import Rows
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    module = AnsibleModule(argument_spec=PRUNE_OPTIONS, supports_check_mode=True)
    options = module.params
    layout = Layout(options["root"], options["name"])
    try:
        frontend.check_names(options["name"])
        problems = range_problems(options)
        if problems:
            raise ManifestError("; ".join(problems))
        rows = Rows.from_options(options["engram"])
        wish = pruning.Wish(options["keep"], options["unfinished"], options["unused_rows"], rows)
        planned = pruning.plan(layout, wish, options["foreign_paths"])
        if planned.removed and not module.check_mode:
            pruning.apply(layout, wish)
    except (HostError, ManifestError) as error:
        module.fail_json(msg=f"{options['node']}: {error}")
    plan, items = planned.plan(str(layout.base)), [item.to_dict() for item in planned.items]
    told = {"items": items, "rows": table(options["node"], items), "frees": planned.frees}
    module.exit_json(changed=plan.changed, diff=plan.diff(), **told)


if __name__ == "__main__":
    main()
