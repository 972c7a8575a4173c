#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image_peer
short_description: Let neighbours take a container image from this node
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Starts a web server as a transient systemd unit, C(gb10-ring-image.service). To whoever has the token it gives one image, as
    C(docker save) or C(podman save) writes it, and nothing else.
  - It listens on the given addresses alone, and on each takes only what comes by its netdev.
  - >-
    It ends with O(state=stopped). If that never comes it ends by itself, when nobody has taken anything for O(idle_s) seconds, and
    after O(max_s) seconds in any case. Its files, below C(/run), go with it.
options:
  state:
    description: Whether the server runs. V(started) replaces one that runs; with an empty O(listen) it does nothing.
    type: str
    choices: [started, stopped]
    required: true
  runtime:
    description: Whose image it is.
    type: str
    choices: [docker, podman]
    required: true
  image_id:
    description: Id of the image. Needed with O(state=started).
    type: str
  listen:
    description: Where to listen, a list of dictionaries with C(address) and C(netdev).
    type: list
    elements: dict
    default: []
    suboptions:
      address:
        description: IPv4 address of the node.
        type: str
        required: true
      netdev:
        description: Interface that requests have to come by.
        type: str
        required: true
  port:
    description: TCP port.
    type: int
    default: 7874
  token:
    description: What requests have to begin with. Needed with O(state=started).
    type: str
  idle_s:
    description: Seconds without a request after which the server ends.
    type: int
    default: 600
  max_s:
    description: Seconds after which the server ends in any case.
    type: int
    default: 14400
attributes:
  check_mode:
    description: Says whether the server would be started or stopped.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
  idempotent:
    description: V(stopped) is. V(started) starts a server with the new token each time.
    support: partial
requirements:
  - systemd
seealso:
  - module: gb10.ring.engine_image_plan
  - module: gb10.ring.engine_image
"""

EXAMPLES = r"""
- name: Let neighbours take the image
  gb10.ring.engine_image_peer:
    state: started
    runtime: docker
    image_id: "{{ engine_image_result.image_id }}"
    listen: "{{ engine_image_result.nodes[inventory_hostname].listen }}"
    token: "{{ engine_image_result.token }}"

- name: Stop the server
  gb10.ring.engine_image_peer:
    state: stopped
    runtime: docker
"""

RETURN = r"""
unit:
  description: Name of the transient unit.
  returned: success
  type: str
  sample: gb10-ring-image.service
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import image, image_unit
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

LISTEN = {"address": {"type": "str", "required": True}, "netdev": {"type": "str", "required": True}}
SPEC = {
    "state": {"type": "str", "choices": ["started", "stopped"], "required": True},
    "runtime": {"type": "str", "choices": list(image.RUNTIMES), "required": True},
    "image_id": {"type": "str"},
    "listen": {"type": "list", "elements": "dict", "default": [], "options": LISTEN},
    "port": {"type": "int", "default": image.PORT},
    "token": {"type": "str", "no_log": True},
    "idle_s": {"type": "int", "default": 600},
    "max_s": {"type": "int", "default": 14400},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC, required_if=[("state", "started", ("image_id", "token"))], supports_check_mode=True
    )
    options = module.params
    problems = image.options_problems(options)
    if problems:
        module.fail_json(msg="; ".join(problems))
    server = image_unit.program(options["runtime"])
    try:
        if options["state"] == "stopped":
            changed = server.present() if module.check_mode else server.stop()
        else:
            changed = bool(options["listen"])
            if changed and not module.check_mode:
                server.start(image_unit.settings(options), options["max_s"])
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=changed, unit=image_unit.UNIT)


if __name__ == "__main__":
    main()
