#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_config
short_description: Fit config.json of a staged checkpoint to the number of ranks
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Edits C(config.json) of a staged revision as P(gb10.ring.tp_config#filter) does it to a mapping. For three ranks that gives, byte for
    byte, what the published edit of the vLLM lane writes.
  - The file is replaced in one rename. The original is kept beside the revisions, under its SHA-256.
  - >-
    A record says what stands in for the staged file, so that M(gb10.ring.checkpoint_stage), M(gb10.ring.checkpoint_activate) and
    M(gb10.ring.checkpoint_info) take the edited file for right. The receipt of the revision stays as it is.
  - Another number of ranks starts again from the original. V(0) puts the original back, with the modification time of the receipt.
  - Refuses a C(config.json) that is neither the one that was staged nor an edit of its own.
options:
  root:
    description: Directory of all checkpoints on the node.
    type: path
    default: /var/lib/gb10-ring/checkpoints
  name:
    description: Name of the checkpoint.
    type: str
    required: true
  revision:
    description: Name of the revision, which has to be staged.
    type: str
    required: true
  tensor_parallel:
    description:
      - Number of ranks. A number that divides heads and groups changes nothing.
      - With V(0) the file is as it was staged, which is right for engines that pad at run time, SGLang among them.
    type: int
    required: true
  planned:
    description:
      - Text of C(config.json) as it will be staged, the value RV(gb10.ring.checkpoint_plan#module:config).
      - In check mode, where the revision is not staged yet, the change is told from it.
    type: str
    default: ""
  python_path:
    description: Directory on the node that holds awscrt, with which the staged file is held to its CRC.
    type: path
    default: /var/lib/gb10-ring/python
attributes:
  check_mode:
    description: Says whether and how the file would change. On a node that lacks the revision it needs O(planned) for that.
    support: full
  diff_mode:
    description: The text before and after.
    support: full
  idempotent:
    description: A second run finds the file as wanted.
    support: full
seealso:
  - module: gb10.ring.checkpoint_stage
  - plugin: gb10.ring.tp_config
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Fit config.json to three ranks
  gb10.ring.checkpoint_config:
    name: "{{ checkpoint_plan_result.plan.name }}"
    revision: "{{ checkpoint_plan_result.plan.revision }}"
    planned: "{{ checkpoint_plan_result.config }}"
    tensor_parallel: 3

- name: Put the original back
  gb10.ring.checkpoint_config:
    name: small
    revision: 6d2f1f7a3c0b9e55
    tensor_parallel: 0
"""

RETURN = r"""
path:
  description: The file.
  returned: success
  type: str
  sample: /var/lib/gb10-ring/checkpoints/small/revisions/6d2f1f7a3c0b9e55/config.json
rule:
  description: How it is edited, empty when it is as it was staged.
  returned: success
  type: str
  sample: tp3
original:
  description: Where the original is kept, empty when the file is as it was staged.
  returned: success
  type: str
  sample: /var/lib/gb10-ring/checkpoints/small/config/originals/66a773c913a1c7265e5abc4ea4469ef00dbcdb91eec9ada1722f1126d23eca33.json
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import config_machine, frontend
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import DEFAULT_PYTHON_PATH, Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import ROOT_OPTIONS, range_problems
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    options = {
        **ROOT_OPTIONS,
        "name": {"type": "str", "required": True},
        "revision": {"type": "str", "required": True},
        "tensor_parallel": {"type": "int", "required": True},
        "planned": {"type": "str", "default": ""},
        "python_path": {"type": "path", "default": DEFAULT_PYTHON_PATH},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    given = module.params
    layout = Layout(given["root"], given["name"])
    request = config_machine.Request(
        layout, given["revision"], given["tensor_parallel"], given["python_path"], given["planned"]
    )
    try:
        frontend.check_names(given["name"], given["revision"])
        problems = range_problems({"tensor_parallel": request.tp})
        if problems:
            raise ManifestError("; ".join(problems))
        edit = config_machine.run(request, module.check_mode)
    except (HostError, ManifestError) as error:
        module.fail_json(msg=str(error))
    original = str(layout.config_original(edit.record.original)) if edit.record else ""
    diff = edit.plan.diff()
    module.exit_json(changed=edit.plan.changed, diff=diff, path=str(request.path), rule=edit.rule, original=original)


if __name__ == "__main__":
    main()
