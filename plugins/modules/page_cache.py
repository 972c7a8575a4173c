#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: page_cache
short_description: Make room in memory before an engine starts, or say who holds it
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - On a GB10 the GPU's memory is the machine's. An engine compares what is available with its share before it loads anything, and freshly
    staged files in the page cache can make it refuse on a machine that is fine.
  - Writes dirty pages back and drops the page cache where O(drop) says that the engine wants it, then waits until C(MemAvailable) holds
    what the engine needs. If it does not in time, the module fails with the arithmetic and names who holds the memory.
  - The need is the larger of O(weights_gib) + O(activations_gib) + O(graphs_gib), and O(utilization) times C(MemTotal). When the second
    is the smaller one the engine would end with a negative KV cache; the module then fails at once.
  - Needs root to drop anything.
options:
  node:
    description: Inventory name of the node, used in messages.
    type: str
    required: true
  drop:
    description:
      - Whether the engine wants an empty page cache. V(false) for one that uses the page cache as its weights, as native ExLlamaV3 on one
        machine does; dropping it there throws the model out.
    type: bool
    default: true
  weights_gib:
    description: Weights of one rank in GiB.
    type: float
    default: 0.0
  activations_gib:
    description: Activations of one rank in GiB.
    type: float
    default: 0.0
  graphs_gib:
    description: CUDA graphs of one rank in GiB.
    type: float
    default: 0.0
  utilization:
    description: Part of C(MemTotal) that the engine asks for at its start, C(--gpu-memory-utilization). 0 when it does not compare.
    type: float
    default: 0.0
  timeout_s:
    description: How long memory of an engine that just ended may take to come back, in seconds.
    type: float
    default: 120.0
  proc_root:
    description: Directory that stands for C(/proc).
    type: path
    default: /proc
attributes:
  check_mode:
    description: Drops nothing and does not wait; a lack of memory is returned in RV(refusal) and is no error.
    support: full
  diff_mode:
    description: The page cache is no configuration; the figures are returned.
    support: none
  idempotent:
    description: Drops the page cache at every call with O(drop=true), since new files fill it again.
    support: none
seealso:
  - module: gb10.ring.memory_settings
"""

EXAMPLES = r"""
- name: Make room for a rank of DeepSeek-V4.1-Flash EXL3 on three nodes
  gb10.ring.page_cache:
    node: "{{ inventory_hostname }}"
    weights_gib: 79.5
    activations_gib: 7
    graphs_gib: 2
    utilization: 0.78
"""

RETURN = r"""
before:
  description: Figures of C(/proc/meminfo) before, in MiB.
  returned: success
  type: dict
  sample: {MemTotal: 124610, MemFree: 900, MemAvailable: 117800, Cached: 119000, Shmem: 24}
after:
  description: The same afterwards.
  returned: success
  type: dict
dropped:
  description: Whether the page cache was dropped.
  returned: success
  type: bool
waited_s:
  description: How long it took after that until the memory was there, in seconds.
  returned: success
  type: float
  sample: 0.0
refusal:
  description: In check mode, why an engine would not fit now. Empty otherwise.
  returned: success
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory import cache, platform_look, room

SIZES = ("weights_gib", "activations_gib", "graphs_gib", "utilization")
SPEC = {
    "node": {"type": "str", "required": True},
    "drop": {"type": "bool", "default": True},
    **{name: {"type": "float", "default": 0.0} for name in SIZES},
    "timeout_s": {"type": "float", "default": 120.0},
    "proc_root": {"type": "path", "default": "/proc"},
}


def figures(memory):
    """In MiB, what a person wants to see."""
    return {name: memory[name] // 1024 for name in cache.FIGURES if name in memory}


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    node, proc = options["node"], Path(options["proc_root"])
    need = room.Need(**{name: options[name] for name in SIZES})
    problems = room.option_problems(need)
    if problems:
        module.fail_json(msg=f"{node}: {'; '.join(problems)}")
    drop, patience = (False, 0.0) if module.check_mode else (options["drop"], options["timeout_s"])
    try:
        done = cache.make_room(proc, need, drop, patience, lambda: platform_look.processes(proc.parent))
    except HostError as error:
        module.fail_json(msg=f"{node}: {error}")
    if done.refusal and not module.check_mode:
        module.fail_json(msg=f"{node}: no room for the engine, which was not started: {done.refusal}")
    module.exit_json(
        changed=options["drop"],
        before=figures(done.before),
        after=figures(done.after),
        dropped=done.dropped,
        waited_s=round(done.waited_s, 1),
        refusal=done.refusal,
    )


if __name__ == "__main__":
    main()
