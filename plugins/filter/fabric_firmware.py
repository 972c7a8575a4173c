# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_firmware
short_description: Gather the ConnectX firmware versions of several hosts
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Returns, for every host in O(hosts) that has it, the C(firmware) list of its registered M(gb10.ring.fabric_info) result O(name).
  - M(gb10.ring.fabric_check) takes it as its option C(firmware) and names the node that differs.
positional: hosts, name
extends_documentation_fragment:
  - gb10.ring.hosts
  - gb10.ring.hosts.name
"""

EXAMPLES = r"""
- name: Check the fabric, firmware of all nodes included
  gb10.ring.fabric_check:
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"
    firmware: "{{ hostvars | gb10.ring.fabric_firmware(ansible_play_hosts_all, 'fabric_info_result') }}"
  register: fabric_checks
"""

RETURN = r"""
_value:
  description: Host name to its list of firmware versions.
  type: dict
  sample: {spark1: [28.45.4028], spark2: [28.45.4028]}
"""


def fabric_firmware(hostvars, hosts, name):
    """Host name to firmware versions; hosts without the result, or without ConnectX, are left out."""
    found = {host: (hostvars[host].get(name) or {}).get("firmware") for host in hosts}
    return {host: list(versions) for host, versions in found.items() if versions}


class FilterModule:
    """Name to function, as Ansible asks for it."""

    def filters(self):
        return {"fabric_firmware": fabric_firmware}
