#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image
short_description: Look for a container image on a node, or bring it there
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Says which images docker or podman has on the node, and brings the one that the ranks run, by a pull, from an archive, or from a neighbour.
  - >-
    M(gb10.ring.engine_image_plan) decides which node does what. An image is identified by its id, which docker and podman compute
    from its contents when they load it, so equal ids on all nodes are equal images.
  - An image that was brought gets the name C(localhost/gb10-ring/engine:ID), with 12 digits of its id, so that C(image prune) leaves it.
  - A transfer that breaks off leaves nothing, neither an image nor a temporary file.
options:
  runtime:
    description: Whose images.
    type: str
    choices: [docker, podman]
    required: true
  step:
    description:
      - V(pull) fetches O(image) from its registry, V(load) reads O(archive), V(take) asks O(sources).
      - With V(keep) and V(none) the node is looked at only. An image that is there already is never brought again.
    type: str
    choices: [keep, pull, load, take, none]
    default: keep
  image:
    description: The image as C(NAME@sha256:DIGEST), or C(NAME:TAG) together with O(image_id).
    type: str
    default: ""
  image_id:
    description: The image's id, C(sha256:) and 64 hexadecimal digits. Required with V(load) and V(take).
    type: str
    default: ""
  archive:
    description:
      - Path on the node of an archive that C(docker save) or C(podman save) wrote, plain or compressed with gzip, bzip2 or xz.
      - Its ids are returned as long as O(image_id) is not on the node.
    type: path
    default: ""
  sources:
    description: Addresses of neighbours to ask, best first. Required with V(take).
    type: list
    elements: str
    default: []
  port:
    description: TCP port of the neighbours' servers.
    type: int
    default: 7874
  token:
    description: What requests to them have to begin with. Required with V(take).
    type: str
  move:
    description: What the node does in words, for the difference that is shown.
    type: str
    default: ""
  stall_timeout_s:
    description: Seconds without a byte from a neighbour after which the next one is asked.
    type: int
    default: 600
  timeout_s:
    description: Seconds that a pull, or the loading of what has arrived, may take.
    type: int
    default: 7200
attributes:
  check_mode:
    description: Says what would be brought from where.
    support: full
  diff_mode:
    description: Shows what is brought from where.
    support: full
  idempotent:
    description: An image that is there is left alone.
    support: full
requirements:
  - docker, or podman 4.9 or newer
seealso:
  - module: gb10.ring.engine_image_plan
  - module: gb10.ring.engine_image_peer
"""

EXAMPLES = r"""
- name: Look for the image
  gb10.ring.engine_image:
    runtime: docker
    image: vllm/vllm-openai@sha256:0d1f6a5f5a3a8f0f3d1b2c4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f607182
  register: engine_image_look
"""

RETURN = r"""
images:
  description: Bytes of each image on the node, by id.
  returned: success
  type: dict
  sample: {"sha256:8dab469dd37e28c26612648079eb075eb3152dc2dacd8347c55a6f2aba037b54": 23622320128}
reference_id:
  description: Id of the image that O(image) stands for on this node, empty when it has none of that name.
  returned: success
  type: str
  sample: sha256:8dab469dd37e28c26612648079eb075eb3152dc2dacd8347c55a6f2aba037b54
archive_ids:
  description: Ids of the images in O(archive).
  returned: success
  type: list
  elements: str
  sample: []
archive_problem:
  description: Why O(archive) cannot be read, empty when it can or need not.
  returned: success
  type: str
  sample: ""
unit_image:
  description: What the engine's unit on this node was rendered with, empty without one.
  returned: success
  type: str
  sample: sha256:8dab469dd37e28c26612648079eb075eb3152dc2dacd8347c55a6f2aba037b54
disk:
  description: C(size) and C(available) of the file system with the images, in bytes.
  returned: success
  type: dict
  sample: {"size": 3936818806784, "available": 2748779069440}
source:
  description: Address that the image was taken from.
  returned: when it was taken
  type: str
  sample: 10.100.0.1
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import image, image_machine
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

SPEC = {
    "runtime": {"type": "str", "choices": list(image.RUNTIMES), "required": True},
    "step": {"type": "str", "choices": list(image.STEPS), "default": "keep"},
    "image": {"type": "str", "default": ""},
    "image_id": {"type": "str", "default": ""},
    "archive": {"type": "path", "default": ""},
    "sources": {"type": "list", "elements": "str", "default": []},
    "port": {"type": "int", "default": image.PORT},
    "token": {"type": "str", "no_log": True},
    "move": {"type": "str", "default": ""},
    "stall_timeout_s": {"type": "int", "default": 600},
    "timeout_s": {"type": "int", "default": 7200},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    problems = image.options_problems(options)
    if problems:
        module.fail_json(msg="; ".join(problems))
    try:
        found = image_machine.look(options)
        there = (options["image_id"] or found["reference_id"]) in found["images"]
        plan = image.plan_step(options["step"], options["image_id"], there, options["move"])
        if plan.changed and not module.check_mode:
            found = image_machine.bring(options)
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=plan.changed, diff=plan.diff(), **found)


if __name__ == "__main__":
    main()
