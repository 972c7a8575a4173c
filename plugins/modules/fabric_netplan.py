#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_netplan
short_description: Change the fabric's addresses by a netplan file, with a way back that needs no controller
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Owns one netplan file, which gives each fabric interface its address and MTU, without DHCP, IPv6 and a wait at boot. The renderer
    that acts on a port (systemd-networkd or NetworkManager) stays.
  - >-
    A change takes several calls, so that all nodes take each step together. V(plan) looks and reports what speaks against the change;
    V(apply) arms a timer on the node, which brings the earlier files, addresses, MTU, routes and IPv6 flags back unless it is stopped,
    then writes and applies; V(prove) asks the node and its neighbours over a new connection; V(confirm) stops the timer; V(clean)
    removes the backup; V(rollback) brings the earlier network back at once. The role P(gb10.ring.fabric#role) makes these calls.
  - >-
    The timer and the restore run from systemd units and from files in C(/var/lib/gb10-ring/network-rollback). They need neither the
    controller nor a connection, and a restart of the node in between ends in the earlier network too.
  - >-
    The interfaces are compared as well as the file. One with other addresses or another MTU, one that was set down or put into a
    bond, is applied again. One that is absent (DGX OS powers unused ports off) or has no carrier cannot be judged and is no change.
  - >-
    What the network was before the first change is kept in C(/var/lib/gb10-ring/network-before). O(state=absent) brings it back.
extends_documentation_fragment:
  - gb10.ring.fabric_ports
  - gb10.ring.fabric_ports.mtu
options:
  node:
    description: Inventory name of this node, which the checks carry.
    type: str
    required: true
  phase:
    description:
      - V(plan) changes nothing, other than that it undoes what a run before left unconfirmed, and removes a backup that one left (not in check mode).
      - V(apply) changes the network and leaves it armed; in check mode it says what it would change.
      - V(prove) waits until the node answers over a new connection and, with O(state=present), its neighbours answer on every leg;
        it fails when one does not.
      - V(confirm) stops the timer and keeps the backup; it fails when the timer was faster.
      - V(clean) removes the backup of a confirmed change.
      - V(rollback) restores the earlier network, also after V(confirm), and waits until it is there.
      - V(status) says what the machine holds of an unfinished change.
    type: str
    choices: [plan, apply, prove, confirm, clean, rollback, status]
    required: true
  state:
    description:
      - V(present) for the planned addresses.
      - V(absent) for the network as it was before the first change.
    type: str
    choices: [present, absent]
    default: present
  path:
    description: The file, directly in C(/etc/netplan), with a name that ends in C(.yaml).
    type: path
    default: /etc/netplan/60-gb10-ring.yaml
  foreign:
    description:
      - What to do about other netplan files and NetworkManager profiles that define a port of the fabric, by name, match, set-name,
        bond, bridge, vrf or vlan.
      - V(refuse) names them and changes nothing. V(migrate) takes the ports out of them, or removes them when they hold nothing else,
        and keeps the originals. A port that has its name from such a file (set-name) gets it from O(path) then.
    type: str
    choices: [refuse, migrate]
    default: refuse
  quarantine:
    description:
      - Whether to rename a file that netplan does not accept, to its name and C(.disabled-by-gb10-ring). Without it the call refuses,
        since netplan reads no file at all while one is broken.
    type: bool
    default: false
  while_serving:
    description:
      - Whether to change the network while an engine serves or a process holds RDMA queue pairs. A change of addresses moves the
        GID table, of which engines die minutes later.
    type: bool
    default: false
  renderer:
    description: V(auto) leaves each port to the renderer that acts on it; the other values choose one for all ports of the fabric.
    type: str
    choices: [auto, networkd, NetworkManager]
    default: auto
  management_interface:
    description:
      - Interface of the management plane. It may not be a port of the fabric, and its state is restored with the fabric's.
      - The interfaces of the SSH session and of the default routes are treated the same.
    type: str
    default: enP7s7
  confirm_timeout:
    description: Seconds from arming until the node brings its earlier network back by itself, from 15 to 600.
    type: int
    default: 45
  check_timeout:
    description: How long V(prove) waits for the neighbours, in seconds. It ends ten seconds before the timer in any case.
    type: int
    default: 30
attributes:
  check_mode:
    description: V(plan) and V(apply) say what they would do, netplan's judgement included; the others do nothing.
    support: full
  diff_mode:
    description: V(apply) shows the files before and after and each interface that differs. Of other files only the part in question.
    support: full
  idempotent:
    description: V(apply) changes nothing when the files and the interfaces with carrier are as planned.
    support: full
requirements:
  - netplan 1.0 or newer, PyYAML and systemd on the node
  - C(ip) of iproute2 on the node
seealso:
  - module: gb10.ring.fabric_check
"""

EXAMPLES = r"""
- name: See what speaks against the change
  gb10.ring.fabric_netplan:
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"
    mtu: "{{ fabric_mtu }}"
    phase: plan
  register: fabric_plan

- name: Change the network, with 45 seconds to confirm it
  gb10.ring.fabric_netplan:
    node: "{{ inventory_hostname }}"
    ports: "{{ fabric_ports }}"
    mtu: "{{ fabric_mtu }}"
    phase: apply
"""

RETURN = r"""
path:
  description: The file.
  returned: success
  type: str
  sample: /etc/netplan/60-gb10-ring.yaml
pending:
  description: Whether there is something to change.
  returned: when O(phase) is V(plan) or V(apply)
  type: bool
  sample: true
armed:
  description: Whether the change waits for its confirmation now, or would after an apply.
  returned: when O(phase) is V(plan) or V(apply)
  type: bool
  sample: true
reasons:
  description: What was changed and why, or would be in check mode, one line each.
  returned: when O(phase) is V(plan) or V(apply)
  type: list
  elements: str
  sample:
    - "/etc/netplan/60-gb10-ring.yaml: absent"
    - "enp1s0f0np0: interface differs"
notes:
  description: What is left as it is although it was changed once, and why.
  returned: when O(phase) is V(plan) or V(apply)
  type: list
  elements: str
  sample: []
checks:
  description: What speaks against the change with V(plan), whether it works with V(prove); in the shape of M(gb10.ring.report).
  returned: when O(phase) is V(plan), V(apply) or V(prove)
  type: list
  elements: dict
  sample:
    - id: fabric.foreign
      node: spark1
      ok: false
      severity: error
      found: "/etc/netplan/40-cx7.yaml: ethernets.enp1s0f0np0 defines enp1s0f0np0 (by name)"
      expected: no other file or profile that defines a port of the fabric
      cure: "set fabric_foreign: migrate"
leftover:
  description: Whether a change is V(armed), V(confirmed) but not cleaned, or V(none).
  returned: success
  type: str
  sample: none
seconds_left:
  description: Seconds until the timer undoes the change.
  returned: success
  type: float
  sample: 41.5
outcome:
  description: What became of the last apply; null while it runs. C(problems) is a list of texts.
  returned: success
  type: dict
  sample: {problems: []}
last_restore:
  description: When and why the earlier network was restored last, and what could not be; null when it was not since the last change.
  returned: success
  type: dict
  sample: {at: "2026-11-29 10:00:00 +0000", why: it was not confirmed in time, problems: []}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.fabric import deadman, guard, netplan_host
from ansible_collections.gb10.ring.plugins.module_utils.fabric.change import NetworkPlan, Wish, plan_change
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PORT_OPTIONS, PortsError, parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.fabric.probe import observe
from ansible_collections.gb10.ring.plugins.module_utils.fabric.proof import proof
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import errors, line

ROOT = Path("/")
TIMEOUT_RANGE = (15, 600)


def wish(params: dict[str, Any]) -> Wish:
    """The options, checked. Raises PortsError or HostError."""
    low, high = TIMEOUT_RANGE
    if not low <= params["confirm_timeout"] <= high:
        raise HostError(f"confirm_timeout is {params['confirm_timeout']}, expected {low} to {high} seconds")
    return Wish(
        node=params["node"],
        ports=parse_ports(params["ports"], params["mtu"]),
        mtu=params["mtu"],
        path=netplan_host.locate(params["path"]),
        present=params["state"] == "present",
        migrate=params["foreign"] == "migrate",
        quarantine=params["quarantine"],
        while_serving=params["while_serving"],
        renderer="" if params["renderer"] == "auto" else params["renderer"],
    )


def plan(params: dict[str, Any]) -> tuple[NetworkPlan, tuple[str, ...]]:
    """What would be done, and the interfaces whose state has to come back if it goes wrong."""
    asked = wish(params)
    machine = netplan_host.read_machine(ROOT, params["management_interface"])
    planned = plan_change(asked, machine, netplan_host.judge)
    return planned, tuple(dict.fromkeys([*planned.wanted, *(port.netdev for port in asked.ports), *machine.management]))


def described(planned: NetworkPlan) -> dict[str, Any]:
    return {
        "pending": planned.plan.changed,
        "armed": planned.activate,
        "reasons": planned.plan.reasons(),
        "notes": list(planned.notes),
        "checks": [check.to_dict() for check in planned.checks],
    }


def look(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    if not check_mode:
        deadman.clean(ROOT)  # a run that ended between the last two steps left it
    planned, _links = plan(params)
    return {"changed": False, **described(planned)}


def apply(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    planned, links = plan(params)
    result = {"changed": planned.plan.changed, "diff": planned.plan.diff(), **described(planned)}
    bad = errors(result["checks"])
    if bad:
        raise HostError("; ".join([*(line(check) for check in bad), "nothing was changed"]))
    if check_mode or not planned.plan.changed:
        return result
    if deadman.status(ROOT)["leftover"] == guard.ARMED:
        raise HostError(
            "an earlier change waits for its confirmation, expected none. Cure: phase rollback, then phase apply again"
        )
    deadman.clean(ROOT)
    if planned.activate:
        deadman.apply(ROOT, planned, links, params["confirm_timeout"])
    else:
        deadman.write_only(ROOT, planned)
    return result


def confirm(_params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    if not check_mode:
        deadman.confirm(ROOT)
    return {"changed": False}


def clean(_params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    if not check_mode:
        deadman.clean(ROOT)
    return {"changed": False}


def rollback(_params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    return {"changed": not check_mode and deadman.roll_back(ROOT)}


def prove(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    asked = wish(params)
    if check_mode or not asked.present:
        return {"changed": False, "checks": []}
    seen = observe(asked.ports, asked.mtu, params["check_timeout"])
    checks = proof(asked.node, asked.ports, asked.mtu, seen.links, seen.pings)
    return {"changed": False, "checks": [check.to_dict() for check in checks]}


def status(_params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    return {"changed": False}


PHASES = {
    "plan": look,
    "apply": apply,
    "prove": prove,
    "confirm": confirm,
    "clean": clean,
    "rollback": rollback,
    "status": status,
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "ports": {"type": "list", "elements": "dict", "required": True, "options": PORT_OPTIONS},
            "mtu": {"type": "int", "default": 9000},
            "phase": {"type": "str", "required": True, "choices": list(PHASES)},
            "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
            "path": {"type": "path", "default": "/etc/netplan/60-gb10-ring.yaml"},
            "foreign": {"type": "str", "default": "refuse", "choices": ["refuse", "migrate"]},
            "quarantine": {"type": "bool", "default": False},
            "while_serving": {"type": "bool", "default": False},
            "renderer": {"type": "str", "default": "auto", "choices": ["auto", "networkd", "NetworkManager"]},
            "management_interface": {"type": "str", "default": "enP7s7"},
            "confirm_timeout": {"type": "int", "default": 45},
            "check_timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    try:
        result = PHASES[module.params["phase"]](module.params, module.check_mode)
    except (HostError, PortsError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(path=module.params["path"], **deadman.status(ROOT), **result)


if __name__ == "__main__":
    main()
