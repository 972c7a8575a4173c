#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_peer
short_description: Let neighbours take finished files of a staging from this node
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Starts a web server as a transient systemd unit, C(gb10-ring-fanout.service). It gives away files of one revision that the
    node has verified, to whoever has the token, and nothing else. It reads only.
  - It listens on the given addresses alone, and on each takes only what comes by its netdev.
  - >-
    It ends with O(state=stopped). If that never comes it ends by itself, when the staging of the node has ended and nobody has
    asked for O(idle_s) seconds, and after O(max_s) seconds in any case. Its files, below C(/run), go with it.
options:
  state:
    description: Whether the server runs. V(started) replaces one that runs; with an empty O(listen) it does nothing.
    type: str
    choices: [started, stopped]
    required: true
  plan:
    description: The value RV(gb10.ring.checkpoint_plan#module:plan). Needed with O(state=started).
    type: dict
  root:
    description: Directory of all checkpoints on the node.
    type: path
    default: /var/lib/gb10-ring/checkpoints
  listen:
    description: Where to listen, a list of dictionaries with C(address) and C(netdev).
    type: list
    elements: dict
    default: []
  port:
    description: TCP port.
    type: int
    default: 7871
  token:
    description: What requests have to begin with. Needed with O(state=started).
    type: str
  idle_s:
    description: Seconds without a request after which the server ends, when the staging of the node has ended.
    type: int
    default: 600
  max_s:
    description: Seconds after which the server ends in any case.
    type: int
    default: 86400
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
  - module: gb10.ring.checkpoint_fanout
  - module: gb10.ring.checkpoint_stage
"""

EXAMPLES = r"""
- name: Let neighbours take finished files
  gb10.ring.checkpoint_peer:
    state: started
    plan: "{{ checkpoint_plan_result.plan }}"
    listen: "{{ checkpoint_fanout_result.nodes[inventory_hostname].listen }}"
    token: "{{ checkpoint_fanout_result.token }}"

- name: Stop the server
  gb10.ring.checkpoint_peer:
    state: stopped
"""

RETURN = r"""
unit:
  description: Name of the transient unit.
  returned: success
  type: str
  sample: gb10-ring-fanout.service
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import peer_unit
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import PEER_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    module = AnsibleModule(
        argument_spec=PEER_OPTIONS,
        required_if=[("state", "started", ("plan", "token"))],
        supports_check_mode=True,
    )
    server = peer_unit.program()
    try:
        if module.params["state"] == "stopped":
            changed = server.present() if module.check_mode else server.stop()
        else:
            settings = peer_unit.settings(module.params)
            changed = bool(settings["listen"])
            if changed and not module.check_mode:
                server.start(settings, module.params["max_s"])
    except (HostError, ManifestError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=changed, unit=peer_unit.UNIT)


if __name__ == "__main__":
    main()
