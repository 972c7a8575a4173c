#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_unit
short_description: Write the systemd unit that runs a rank of the inference engine
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Renders the unit C(gb10-ring-engine.service) and C(/etc/gb10-ring/engine.json) from an engine profile, the node's place in the
    group, its fabric and the checkpoint revision, and enables the unit.
  - >-
    The profile's C(renderer) decides what the unit runs, a program of the node (C(venv)), C(docker run) in the foreground (C(docker)), or a
    container of Podman, from C(/etc/containers/systemd/gb10-ring-engine.container) (C(podman)). What another renderer wrote before is removed.
  - >-
    Before each start the unit runs C(/etc/gb10-ring/engine-gid.py), which looks the GIDs of the fabric's addresses up. Their indexes
    differ between nodes and move, so they are nowhere in the unit.
  - >-
    It also runs C(/etc/gb10-ring/engine-rows.py), which ends the start where the node holds Engram rows of another revision or rank than the
    unit was rendered for.
  - >-
    Starts and stops nothing. RV(restart) says whether the rank has to be started again, so that the caller can stop the whole group
    first. M(gb10.ring.engine_service) does that.
  - The unit names the revision's own directory, never the C(current) link, so a running engine keeps its files when the link moves.
extends_documentation_fragment:
  - gb10.ring.fabric_ports
options:
  profile:
    description:
      - How to run the engine. The keys are in C(docs/engine.md); P(gb10.ring.engine_profile#lookup) reads a profile from a file.
      - Unknown keys and values out of range are refused, all in one message.
    type: dict
    required: true
  rank:
    description: Position of the node in the group, from 0. Rank 0 is the head and serves the API.
    type: int
    required: true
  size:
    description: Number of nodes in the group.
    type: int
    required: true
  shape:
    description: How the nodes are cabled. It decides the settings of NCCL.
    type: str
    required: true
    choices: [ring, pair, switch]
  head_ports:
    description:
      - C(fabric_ports) of rank 0. Needed when the ranks meet over the fabric (C(rendezvous=fabric) in the profile), on a pair or a switch.
    type: list
    elements: dict
    default: []
  found:
    description:
      - RV(gb10.ring.fabric_info#module:ports) of this node. Then NCCL is given only those RDMA devices that are there and ACTIVE, by the
        names that they have.
      - When left out, and in check mode also when none is ACTIVE yet, it is given those that O(ports) names.
    type: list
    elements: dict
  management_interface:
    description: Interface of the management plane, over which the ranks find each other.
    type: str
    required: true
  management_address:
    description: IPv4 address of the node on the management plane.
    type: str
    required: true
  head_address:
    description: IPv4 address of rank 0 on the management plane.
    type: str
    required: true
  model_root:
    description: Directory of the checkpoint on the node, the one that holds C(revisions/).
    type: path
    required: true
  revision:
    description:
      - Revision to serve. When empty, the one that C(current) points to.
      - It must be staged on the node, other than in check mode.
    type: str
    default: ""
  etc_root:
    description: Where C(/etc) is. Other than V(/etc) it is meant for tests.
    type: path
    default: /etc
attributes:
  check_mode:
    description: Shows what would be written and whether the rank would have to be started again, on a machine without a checkpoint too.
    support: full
  diff_mode:
    description: Shows the files and the unit's enablement.
    support: full
  idempotent:
    description: Writes only what differs.
    support: full
requirements:
  - systemd and Python 3 (C(/usr/bin/python3)) on the node
  - docker, or podman 4.9 or newer, for the renderers of these names
seealso:
  - module: gb10.ring.engine_service
  - module: gb10.ring.engine_ready
"""

EXAMPLES = r"""
- name: Write the engine's unit
  gb10.ring.engine_unit:
    profile: "{{ lookup('gb10.ring.engine_profile', 'lab', size=ring_size) }}"
    rank: "{{ ring_rank }}"
    size: "{{ ring_size }}"
    shape: "{{ ring_shape }}"
    ports: "{{ fabric_ports }}"
    management_interface: "{{ management_interface }}"
    management_address: "{{ management_address }}"
    head_address: "{{ ring_head_address }}"
    model_root: /var/lib/gb10-ring/checkpoints/DeepSeek-V4.1-Flash-EXL3
  register: engine_unit_result
"""

RETURN = r"""
restart:
  description: Whether the rank does not run, or runs from another configuration than the unit that is (or would be) written.
  returned: success
  type: bool
  sample: true
state:
  description: The unit as systemd saw it before the change.
  returned: success
  type: str
  sample: active (running)
hash:
  description: Identity of the wanted configuration. It covers the unit and the revision's C(config.json), not the GIDs of a start.
  returned: success
  type: str
  sample: 5f0c3a9be2d14477
url:
  description: Base URL of the group's API, on the head.
  returned: success
  type: str
  sample: http://192.0.2.11:8000
model:
  description: Directory of the revision that the unit serves.
  returned: success
  type: str
  sample: /var/lib/gb10-ring/checkpoints/DeepSeek-V4.1-Flash-EXL3/revisions/6b0f6c2f9c1d2e3a
spec:
  description:
    - All that decides what the rank runs, as it is written to C(engine.json). It is plain data, among it C(env), C(limits),
      C(container), C(readiness), C(expected) and C(gid_devices).
  returned: success
  type: dict
  sample:
    profile: vllm-tp3-ring-exl3
    renderer: docker
    rank: 0
    size: 3
argv:
  description: The rank's command.
  returned: success
  type: list
  elements: str
  sample: [/opt/vllm/bin/vllm, serve, /var/lib/gb10-ring/checkpoints/DeepSeek-V4.1-Flash-EXL3/revisions/6b0f6c2f9c1d2e3a]
reasons:
  description: Why each file is written.
  returned: success
  type: list
  elements: str
  sample: ["/etc/systemd/system/gb10-ring-engine.service: the engine's unit"]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import machine, render
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import ProfileError, parse
from ansible_collections.gb10.ring.plugins.module_utils.engine.service import needs_restart, plan_unit
from ansible_collections.gb10.ring.plugins.module_utils.engine.spec import Node, SpecError, build
from ansible_collections.gb10.ring.plugins.module_utils.engine.unit import NAME
from ansible_collections.gb10.ring.plugins.module_utils.fabric.nccl import usable
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PORT_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPEC = {
    "profile": {"type": "dict", "required": True},
    "rank": {"type": "int", "required": True},
    "size": {"type": "int", "required": True},
    "shape": {"type": "str", "required": True, "choices": ["ring", "pair", "switch"]},
    "ports": {"type": "list", "elements": "dict", "required": True, "options": PORT_OPTIONS},
    "head_ports": {"type": "list", "elements": "dict", "default": []},
    "found": {"type": "list", "elements": "dict"},
    "management_interface": {"type": "str", "required": True},
    "management_address": {"type": "str", "required": True},
    "head_address": {"type": "str", "required": True},
    "model_root": {"type": "path", "required": True},
    "revision": {"type": "str", "default": ""},
    "etc_root": {"type": "path", "default": "/etc"},
}
NODE_OPTIONS = ("rank", "size", "shape", "management_interface", "management_address", "head_address")


def specification(options, check_mode):
    """What this rank is to run. Raises HostError, ProfileError, SpecError."""
    found = options["found"]
    if check_mode and found is not None and not usable(options["ports"], found):
        found = None  # a dry run of a node whose fabric is not there yet
    own = {name: options[name] for name in NODE_OPTIONS}
    node = Node(fabric_ports=options["ports"], head_fabric_ports=options["head_ports"], found=found, **own)
    profile = parse(options["profile"], node.size)
    machine.check_program(profile)
    model = machine.find_model(options["model_root"], options["revision"], check_mode)
    return render.with_hash(build(profile, node, model))


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        spec = specification(module.params, module.check_mode)
        state = machine.unit_state(NAME)
        enable = render.enabled_by_systemctl(spec)
        files = machine.held(render.render(spec), render.OWNED, module.params["etc_root"])
        plan = plan_unit(files, NAME, state, enable)
        if (plan.changed or state.reload) and not module.check_mode:
            machine.apply_files(files, enable, machine.state_root(module.params["etc_root"]))
    except (HostError, ProfileError, SpecError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=plan.changed,
        diff=plan.diff(),
        reasons=plan.reasons(),
        restart=needs_restart(state, spec.hash),
        state=state.text(),
        hash=spec.hash,
        url=spec.url,
        model=spec.model["path"],
        argv=list(spec.argv),
        spec=spec.to_dict(),
    )


if __name__ == "__main__":
    main()
