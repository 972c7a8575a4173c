#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_preflight
short_description: Look at a node before its rank of the inference engine is started
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Looks for engines and containers that are not the unit's, for who listens at the rank's ports or computes on the GPU, and whether
    model, image and memory are there. Changes nothing and does not fail on a failed check; M(gb10.ring.report) judges those of all nodes.
options:
  node:
    description: Inventory name of the node, which the checks carry.
    type: str
    required: true
  spec:
    description: Specification of the rank, RV(gb10.ring.engine_unit#module:spec).
    type: dict
    required: true
  restart:
    description:
      - Whether the group is to be stopped and started. A rank that runs and stays is compiling kernels for its first requests perhaps, so what
        is wrong with them is a warning then.
    type: bool
    default: true
  unit:
    description: Name of the engine's unit.
    type: str
    default: gb10-ring-engine.service
  weights_gib:
    description: Weights of a rank in GiB, 0 for no comparison. By default this and the three that follow are those of O(spec).
    type: float
  activations_gib:
    description: Activations of a rank in GiB.
    type: float
  graphs_gib:
    description: CUDA graphs of a rank in GiB.
    type: float
  utilization:
    description: Part of the machine's memory that the engine asks for, 0 for no comparison.
    type: float
  memory_wait_s:
    description: How long memory of an engine that just ended may take to come back, in seconds.
    type: float
    default: 120.0
  nvidia_smi:
    description: Path of nvidia-smi. Where it is absent nothing is said of a GPU; where it fails that is a failed check.
    type: path
    default: /usr/bin/nvidia-smi
  proc_root:
    description: Directory that stands for C(/proc).
    type: path
    default: /proc
  run_root:
    description: Directory that stands for C(/run).
    type: path
    default: /run
attributes:
  check_mode:
    description: Runs the same, without asking for a model, an image and memory that earlier steps of a dry run would have brought.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Never changes anything.
    support: full
requirements:
  - systemd on the node
seealso:
  - module: gb10.ring.engine_unit
  - module: gb10.ring.report
"""

EXAMPLES = r"""
- name: Look at the node
  gb10.ring.engine_preflight:
    node: "{{ inventory_hostname }}"
    spec: "{{ engine_unit_result.spec }}"
"""

RETURN = r"""
checks:
  description:
    - C(engine.stale), C(engine.ports), C(engine.model), C(engine.kernels); C(engine.gpu) and C(engine.image) where there is one;
      C(engine.memory) while the rank does not run.
  returned: success
  type: list
  elements: dict
starts:
  description: Whether the rank will load, as it does not run or the group is restarted.
  returned: success
  type: bool
kernels:
  description: Compiled kernels in the engine's cache that all ranks have to have alike. Null where the image carries them.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import before_look
from ansible_collections.gb10.ring.plugins.module_utils.engine.before_start import checks
from ansible_collections.gb10.ring.plugins.module_utils.engine.unit import NAME
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPEC = {
    "node": {"type": "str", "required": True},
    "spec": {"type": "dict", "required": True},
    "restart": {"type": "bool", "default": True},
    "unit": {"type": "str", "default": NAME},
    **{name: {"type": "float"} for name in before_look.SIZES},
    "memory_wait_s": {"type": "float", "default": 120.0},
    "nvidia_smi": {"type": "path", "default": "/usr/bin/nvidia-smi"},
    "proc_root": {"type": "path", "default": "/proc"},
    "run_root": {"type": "path", "default": "/run"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    try:
        start = before_look.look(options, options["unit"], module.check_mode)
    except HostError as error:
        module.fail_json(msg=f"{options['node']}: {error}")
    libraries = None if start.kernels is None else [path for path in start.kernels if path.endswith(".so")]
    module.exit_json(
        changed=False, checks=[check.to_dict() for check in checks(start)], starts=start.starts, kernels=libraries
    )


if __name__ == "__main__":
    main()
