#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_gates
short_description: Prove that what an engine's settings claim took effect
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Reads what the rank was started with from O(record_path), and compares each setting that claims an effect with the line of its log, or
    the metric of the head, that proves it. Settings that are not set are not checked.
  - RDMA as transport by all devices of E(NCCL_IB_HCA), and these being all planned ones, subnet-aware routing, the rank's Engram rows of
    every table from where they were to be read, CUDA graphs, accepted draft tokens, and the C(log_lines) of the profile; of vLLM and of
    SGLang, each by its own lines and metrics.
  - Changes nothing and does not fail on a failed check. When the unit does not run, M(gb10.ring.engine_ready) says so, and nothing is
    checked here.
  - Every device of O(ports) has to be among those that the rank was started with.
extends_documentation_fragment:
  - gb10.ring.fabric_ports
options:
  node:
    description: Inventory name of the node, used in the checks.
    type: str
    required: true
  url:
    description: Base URL of the head's API. C(/metrics) and C(/version) are asked for on rank 0 only.
    type: str
    required: true
  unit:
    description: Name of the engine's systemd unit.
    type: str
    default: gb10-ring-engine.service
  record_path:
    description: The record of the rank, which M(gb10.ring.engine_unit) writes.
    type: path
    default: /etc/gb10-ring/engine.json
  proc_root:
    description: Directory that stands for C(/proc).
    type: path
    default: /proc
attributes:
  check_mode:
    description: Runs the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Never changes anything.
    support: full
notes:
  - A claim whose log line these settings switch off, such as E(NCCL_IB_SUBNET_AWARE_ROUTING) without E(NCCL_DEBUG_SUBSYS), gives a failed
    check of severity C(warning) that says what to set.
  - Of the log of the running process, the oldest 50000 lines and the newest 5000 are read. One that is longer is searched whole for the
    lines that fail a check (C(journalctl --grep)). Where it cannot be, C(engine.log_search) is a failed check of severity C(warning).
seealso:
  - module: gb10.ring.engine_ready
"""

EXAMPLES = r"""
- name: Look whether the settings of this rank took effect
  gb10.ring.engine_gates:
    node: "{{ inventory_hostname }}"
    url: http://192.0.2.11:8000
    ports: "{{ fabric_ports }}"
  register: engine_gate_checks
"""

RETURN = r"""
checks:
  description:
    - C(engine.devices), C(engine.transport), C(engine.rdma_errors), C(engine.subnet_routing), C(engine.engram_rows),
      C(engine.cuda_graphs), C(engine.speculation), C(engine.log_line), as far as the settings claim them, and C(engine.log_search) where
      a long log could not be searched, each with C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
  returned: success
  type: list
  elements: dict
  sample:
    - id: engine.transport
      node: spark1
      ok: true
      severity: error
      found: "NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [1]rocep1s0f1:1/RoCE [RO]; OOB enP7s7:192.0.2.11<0>"
      expected: "NET/IB : Using rocep1s0f0, rocep1s0f1, and no NET/Socket : Using"
      cure: ""
memory:
  description:
    - Bytes of the node's memory, C(total) and C(available), and what the engine said that it uses for C(weights) and C(kv), the KV cache;
      null where nobody told.
  returned: success
  type: dict
  sample: {total: 130662400000, available: 12884901888, weights: 88583700480, kv: 9878424780}
versions:
  description: Versions of C(engine) and C(nccl) that the rank runs, empty where nothing tells.
  returned: success
  type: dict
  sample: {engine: 0.32.0, nccl: 2.30.7}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import (
    gate_claims,
    gate_memory,
    gate_versions,
    gates,
    gates_look,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PORT_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def act(options):
    """The module's result. Raises HostError."""
    record = gates_look.record(options["record_path"])
    config = gates_look.config(record) if record else None
    claims = gate_claims.started(record or {}, options["ports"], config)
    seen = (
        gates_look.look(options["unit"], options["url"], claims.rank == 0, gates.forbidden(claims)) if record else None
    )
    found = gates.checks(options["node"], claims, seen) if seen else []
    seen = seen or gate_claims.Seen()
    return {
        "checks": [check.to_dict() for check in found],
        "memory": gate_memory.memory(gates_look.meminfo(Path(options["proc_root"])), seen.lines, claims.engine),
        "versions": gate_versions.versions(seen.lines, seen.version),
    }


def main():
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "ports": {"type": "list", "elements": "dict", "required": True, "options": PORT_OPTIONS},
            "unit": {"type": "str", "default": "gb10-ring-engine.service"},
            "record_path": {"type": "path", "default": "/etc/gb10-ring/engine.json"},
            "proc_root": {"type": "path", "default": "/proc"},
        },
        supports_check_mode=True,
    )
    try:
        result = act(module.params)
    except HostError as error:
        module.fail_json(msg=f"{module.params['node']}: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
