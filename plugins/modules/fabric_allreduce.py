#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_allreduce
short_description: Run an all-reduce over all nodes and judge its sum, its bandwidth and NCCL's log
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    A model over a group whose collectives go over one leg, or over sockets, still answers, slowly; one whose sums are wrong answers
    wrongly. This module runs what tensor parallelism runs, without a model, and compares every item of the sum.
  - >-
    All nodes have to run it at the same time, each one rank; they meet at the head over the management network. The program is
    given to O(command) on its standard input, so that it can run in the serving image without a mount.
  - The fabric is busy for some seconds. Do not measure beside a serving engine.
extends_documentation_fragment:
  - gb10.ring.fabric_ports
options:
  node:
    description: Inventory name of this node, which the checks carry.
    type: str
    required: true
  rank:
    description: Position of the node in the group, from 0. Rank 0 is the head.
    type: int
    required: true
  size:
    description: How many nodes the group has.
    type: int
    required: true
  shape:
    description: Shape of the cabling, which chooses NCCL's settings, the lines that its log must have, and the thresholds.
    type: str
    required: true
    choices: [ring, pair, switch]
  management_interface:
    description: Name of the interface over which the ranks meet.
    type: str
    required: true
  head_address:
    description: Address of rank 0 on the management network.
    type: str
    required: true
  rendezvous_port:
    description: TCP port at which rank 0 waits for the others.
    type: int
    default: 29555
  program:
    description: Text of the program, C(files/ring_allreduce.py) of the role C(gb10.ring.fabric).
    type: str
    required: true
  command:
    description:
      - Words of the command that runs a Python with torch and passes its standard input on.
      - >-
        Empty: made from O(engine). With its renderer C(docker) or C(podman) a container of the serving image with the profile's devices,
        GPUs and capabilities, the host's network, and no limit of locked memory, which is never pulled; with C(venv) the C(python3)
        beside the engine's program. Without O(engine) C(python3).
    type: list
    elements: str
    default: []
  engine:
    description:
      - Complete engine profile, as P(gb10.ring.engine_profile#lookup) returns it. Empty where no engine is planned.
      - >-
        Beside O(command) it gives NCCL's variables (C(NCCL_*), C(TORCH_NCCL_*)), over the fabric's as in the engine itself. The
        interface of the sockets stays O(management_interface), and the log is at the level that the checks need.
    type: dict
    default: {}
  backend:
    description: V(nccl) on GPUs, V(gloo) on CPUs, where only the sum is judged to mean something.
    type: str
    choices: [nccl, gloo]
    default: nccl
  sizes:
    description:
      - >-
        Sizes of the buffer in bytes. The bandwidth at the largest that was run is judged. Published figures are of 256 MB (256,000,000
        bytes); one below that is only judged by O(warn_below) and O(fail_below), where it is the largest of O(sizes), and else told as
        information.
      - Four times a size has to fit into O(memory_share) of the free memory of every rank, or it is left out and a check says so.
    type: list
    elements: int
    default: [1048576, 16777216, 268435456]
  iterations:
    description: How often each size is timed, from 1 to 30. The median of the slowest rank counts.
    type: int
    default: 20
  memory_share:
    description: Part of the memory that is free on a node that all buffers may take, above 0 and up to 1.
    type: float
    default: 0.2
  timeout_s:
    description: Seconds after which the program ends itself, on every rank.
    type: int
    default: 300
  warn_below:
    description: GB/s of bus bandwidth below which the check is a warning. V(0) for 18, on every O(shape), at 256 MB or more.
    type: float
    default: 0
  fail_below:
    description: GB/s of bus bandwidth below which the check is an error. V(0) for 10, on every O(shape), at 256 MB or more.
    type: float
    default: 0
  left_out:
    description:
      - Inventory names of the group's nodes that do not run it, as with C(--limit). The others would wait for them in vain.
      - With any, nothing is run, and C(fabric.allreduce) says so as information.
    type: list
    elements: str
    default: []
  environment:
    description: More environment variables of the program, over the module's own.
    type: dict
    default: {}
  functions:
    description:
      - RV(gb10.ring.fabric_info#module:ports) of this node. With it only devices that are ACTIVE are given to NCCL, which waits without
        end for one that is not.
    type: list
    elements: dict
    default: []
  etc_root:
    description: Directory that stands for C(/etc), where the engine role keeps the id of the image that this node has.
    type: path
    default: /etc
attributes:
  check_mode:
    description: Skipped in check mode, since it loads the fabric.
    support: none
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Reports no change; every call measures anew.
    support: full
requirements:
  - a Python 3.10 or newer with torch, as O(command) runs it
seealso:
  - module: gb10.ring.fabric_bandwidth
"""

EXAMPLES = r"""
- name: Sum over all nodes in the serving image
  gb10.ring.fabric_allreduce:
    node: "{{ inventory_hostname }}"
    rank: "{{ ring_rank }}"
    size: "{{ ring_size }}"
    shape: "{{ ring_shape }}"
    ports: "{{ fabric_ports }}"
    management_interface: "{{ management_interface }}"
    head_address: "{{ ring_head_address }}"
    program: "{{ lookup('ansible.builtin.file', 'ring_allreduce.py') }}"
    engine: "{{ lookup('gb10.ring.engine_profile', 'vllm-tp3-ring-exl3', size=ring_size) }}"
  register: fabric_allreduce_checks
"""

RETURN = r"""
checks:
  description:
    - >-
      C(fabric.allreduce) and, when the program ended well, C(fabric.allreduce_sum),
      C(fabric.allreduce_bandwidth) and, for sizes that were left out, C(fabric.allreduce_memory).
    - With NCCL also C(fabric.allreduce_transport), C(fabric.allreduce_log) and, on a ring and on a pair whose cable joins
      different ports, C(fabric.allreduce_routing).
    - Each has C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
  returned: success
  type: list
  elements: dict
allreduce:
  description: What the program told, with the figures of every size in C(results), or its C(error).
  returned: success
  type: dict
  sample:
    rank: 0
    ranks: 3
    backend: nccl
    results:
      - {bytes: 268435456, seconds: 0.0154, algorithm_gbytes_s: 17.4, bus_gbytes_s: 23.2, wrong_items: 0}
log:
  description: The last lines of the program's output, 200 at most, when a check failed.
  returned: a check failed
  type: list
  elements: str
"""

import json

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric import allreduce, allreduce_engine, nccl, nccl_log
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PORT_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text, run

SPEC = {
    "ports": {"type": "list", "elements": "dict", "required": True, "options": PORT_OPTIONS},
    "node": {"type": "str", "required": True},
    "rank": {"type": "int", "required": True},
    "size": {"type": "int", "required": True},
    "shape": {"type": "str", "required": True, "choices": ["ring", "pair", "switch"]},
    "management_interface": {"type": "str", "required": True},
    "head_address": {"type": "str", "required": True},
    "rendezvous_port": {"type": "int", "default": 29555},
    "program": {"type": "str", "required": True},
    "command": {"type": "list", "elements": "str", "default": []},
    "engine": {"type": "dict", "default": {}},
    "backend": {"type": "str", "choices": ["nccl", "gloo"], "default": "nccl"},
    "sizes": {"type": "list", "elements": "int", "default": [1048576, 16777216, 268435456]},
    "iterations": {"type": "int", "default": 20},
    "memory_share": {"type": "float", "default": 0.2},
    "timeout_s": {"type": "int", "default": 300},
    "warn_below": {"type": "float", "default": 0},
    "fail_below": {"type": "float", "default": 0},
    "left_out": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
    "functions": {"type": "list", "elements": "dict", "default": []},
    "etc_root": {"type": "path", "default": "/etc"},
}
SHOWN = 200


def settings_of(options):
    return allreduce.Settings(
        backend=options["backend"],
        sizes=tuple(options["sizes"]),
        iterations=options["iterations"],
        memory_share=options["memory_share"],
        timeout=options["timeout_s"],
        warn_below=options["warn_below"],
        fail_below=options["fail_below"],
    )


def recorded(etc_root):
    """What the engine role wrote down of the rank; empty when there is nothing of use."""
    try:
        held = json.loads(read_text(f"{etc_root}/gb10-ring/engine.json") or "{}")
    except ValueError:
        return {}
    return held if isinstance(held, dict) else {}


def executed(options, settings, env):
    """What the program told, and all that it and its libraries wrote."""
    place = allreduce.Place(options["rank"], options["size"], options["head_address"], options["rendezvous_port"])
    try:
        command = options["command"] or allreduce_engine.command(options["engine"], recorded(options["etc_root"]))
        argv = allreduce.argv(command, settings, place, env)
        done = run(argv, timeout=settings.timeout + allreduce.MARGIN, check=False, stdin=options["program"])
    except (HostError, allreduce_engine.NoCommandError) as error:
        return {"error": str(error)[:300]}, ""
    return allreduce.parse(done.stdout, done.stderr, done.rc), f"{done.stdout}\n{done.stderr}"


def engine_settings(options, fabric):
    """NCCL's variables of the engine's profile on this node; the ranks meet over the management network."""
    fields = {
        "rank": str(options["rank"]),
        "size": str(options["size"]),
        "management_interface": options["management_interface"],
        "rendezvous_interface": options["management_interface"],
        "head_address": options["head_address"],
        "rdma_devices": fabric["NCCL_IB_HCA"].removeprefix("="),
    }
    return allreduce_engine.settings(options["engine"], fields)


def act(options):
    if options["left_out"]:
        check = allreduce.untried_check(options["node"], options["left_out"])
        return {"checks": [check.to_dict()], "allreduce": {"error": check.found}}
    settings = settings_of(options)
    fabric = nccl.environment(
        options["shape"],
        options["size"],
        options["ports"],
        options["management_interface"],
        (options["functions"] or None) if options["backend"] == "nccl" else None,
    )
    extra = {name: str(value) for name, value in options["environment"].items()}
    env = allreduce.environment(fabric, options["backend"], extra, engine_settings(options, fabric))
    told, log = executed(options, settings, env)
    found = allreduce.checks(options["node"], options["shape"], options["size"], told, settings)
    if options["backend"] == "nccl" and log:
        wanted = fabric["NCCL_IB_HCA"].removeprefix("=").split(",")
        cabling = nccl_log.Cabling(options["shape"], nccl.crossed(options["ports"]))
        found += nccl_log.checks(options["node"], cabling, log, wanted, env)
    result = {"checks": [check.to_dict() for check in found], "allreduce": told}
    if not all(check.ok for check in found):
        result["log"] = log.splitlines()[-SHOWN:]
    return result


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=False)
    try:
        result = act(module.params)
    except nccl.NcclError as error:
        module.fail_json(msg=f"{module.params['node']}: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
