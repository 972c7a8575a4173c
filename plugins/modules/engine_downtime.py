#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_downtime
short_description: Measure how long the engine's API is out of service
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Asks C(/health) ten times a second, on one monotonic clock, until it has gone and come back, and returns the time from the last
    healthy answer to the first one after it.
  - Meant to run with C(async) on the head while a playbook stops and starts the group.
extends_documentation_fragment:
  - gb10.ring.attributes.looking
options:
  url:
    description: Base URL of the API as this node reaches it.
    type: str
    required: true
  timeout_s:
    description: How long to watch at most, in seconds. When it is over the module returns what it has seen, and does not fail.
    type: int
    default: 1800
seealso:
  - module: gb10.ring.engine_ready
"""

EXAMPLES = r"""
- name: Watch the head's health from here on
  gb10.ring.engine_downtime:
    url: http://192.0.2.11:8000
  async: 1900
  poll: 0
  register: engine_downtime_job
"""

RETURN = r"""
downtime_s:
  description: Seconds from the last healthy answer to the first one after it, null when it was not in service at first or not at the end.
  returned: success
  type: float
  sample: 6.42
recovered:
  description: Whether the API answers again.
  returned: success
  type: bool
  sample: true
msg:
  description: The same for a person.
  returned: success
  type: str
  sample: out of service for 6.4 s
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import machine
from ansible_collections.gb10.ring.plugins.module_utils.engine.downtime import text
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def main() -> None:
    module = AnsibleModule(
        argument_spec={"url": {"type": "str", "required": True}, "timeout_s": {"type": "int", "default": 1800}},
        supports_check_mode=True,
    )
    try:
        watch, waited = machine.watch(module.params["url"], module.params["timeout_s"])
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, downtime_s=watch.seconds, recovered=watch.over, msg=text(watch, waited))


if __name__ == "__main__":
    main()
