# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's namespaces, its management bridge and its cables. No address and no link is made in the caller's namespace."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from . import cabling
from .cabling import NETDEVS, RAILS, Port, State
from .instance import CONTROLLER_ADDRESS, MANAGEMENT_NETDEV, MANAGEMENT_PREFIX, Instance, LabError, node_name
from .procs import run

CONTROLLER = "ctl"
CABLES = "cables"
BRIDGE = "br-mgmt"
FABRIC_ROOM = 9500  # MTU inside the cables: more than any node may set, so that only the two ends of a leg decide
# A cable is no bridge: it passes LLDP and the other frames that an 802.1D bridge keeps to itself.
BRIDGE_OPTIONS = "type bridge forward_delay 0 stp_state 0 mcast_snooping 0 group_fwd_mask 65528"


def inside(instance: Instance, what: str = CONTROLLER) -> bool:
    """Whether this process is already in the instance's namespace `what`."""
    try:
        return os.stat("/proc/self/ns/net").st_ino == instance.netns_path(what).stat().st_ino
    except FileNotFoundError:
        return False


def enter(instance: Instance, what: str = CONTROLLER) -> list[str]:
    """What to put before an argv to run it in the namespace: nothing when this process is there, else nsenter.

    Not `ip netns exec`, which gives the command a private mount namespace.
    """
    return [] if inside(instance, what) else ["nsenter", f"--net={instance.netns_path(what)}", "--"]


def exists(instance: Instance, what: str) -> bool:
    return instance.netns_path(what).exists()


def batch(instance: Instance, what: str, lines: Iterable[str], force: bool = False) -> None:
    """Run `ip` commands in the namespace; with force, go on after one that fails."""
    text = "".join(f"{line}\n" for line in lines)
    if text:
        options = ["-force"] if force else []
        run(["ip", "-n", instance.netns(what), *options, "-batch", "-"], text=text, check=not force)


def _add_namespace(instance: Instance, what: str, lines: Iterable[str], ipv6: bool = True) -> None:
    run(["ip", "netns", "add", instance.netns(what)])
    if not ipv6:  # the far ends of the cables must stay silent
        setting = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
        script = f"[ ! -e {setting} ] || echo 1 > {setting}"
        run(["nsenter", f"--net={instance.netns_path(what)}", "sh", "-c", script])
    batch(instance, what, lines)


def make_controller(instance: Instance) -> None:
    lines = [
        "link set dev lo up",
        f"link add {BRIDGE} type bridge forward_delay 0 stp_state 0",
        f"address add {CONTROLLER_ADDRESS}/{MANAGEMENT_PREFIX} dev {BRIDGE}",
        f"link set dev {BRIDGE} up",
    ]
    _add_namespace(instance, CONTROLLER, lines)


def make_cables(instance: Instance, state: State) -> None:
    lines = []
    for bridge in state.bridges():
        lines += [f"link add {bridge} {BRIDGE_OPTIONS}", f"link set dev {bridge} up"]
    _add_namespace(instance, CABLES, lines, ipv6=False)


def make_node(instance: Instance, number: int) -> None:
    """The node's namespace, with its netdevs as after power-on: down, MTU 1500, no address."""
    controller, cables = instance.netns(CONTROLLER), instance.netns(CABLES)
    management = cabling.mac(number, 0xFF, 0)
    lines = [
        "link set dev lo up",
        f"link add {MANAGEMENT_NETDEV} address {management} type veth peer name mgmt{number} netns {controller}",
    ]
    for (port, rail), netdev in NETDEVS.items():
        far = f"peer name {Port(number, port).link(rail)} mtu {FABRIC_ROOM} netns {cables}"
        lines.append(f"link add {netdev} address {cabling.mac(number, port, rail)} mtu 1500 type veth {far}")
    _add_namespace(instance, node_name(number), lines)
    batch(instance, CONTROLLER, [f"link set dev mgmt{number} master {BRIDGE} up"])


def remove_node(instance: Instance, number: int) -> None:
    """Remove the node's netdevs, then its namespace (which lives on while a process is in it)."""
    far = [Port(number, port).link(rail) for port in (0, 1) for rail in RAILS]
    for what, names in ((CABLES, far), (CONTROLLER, [f"mgmt{number}"])):
        if exists(instance, what):
            batch(instance, what, [f"link delete dev {name}" for name in names], force=True)
    remove_namespace(instance, node_name(number))


def remove_namespace(instance: Instance, what: str) -> None:
    if exists(instance, what):
        run(["ip", "netns", "delete", instance.netns(what)])


def apply(instance: Instance, state: State) -> None:
    """Bring the cables into the state."""
    batch(instance, CABLES, cabling.link_commands(state))


def set_mtu(instance: Instance, node: str, netdev: str, value: int) -> None:
    """Set the MTU of one end, as somebody with a shell on the node would."""
    if netdev not in NETDEVS.values():
        raise LabError(f"netdev {netdev!r}: one of {', '.join(NETDEVS.values())} is expected")
    batch(instance, node, [f"link set dev {netdev} mtu {value}"])


def namespaces(instance: Instance) -> list[str]:
    """The instance's namespaces that exist, without the prefix."""
    prefix = f"{instance.tag}-"
    folder = Path("/run/netns")
    return sorted(path.name.removeprefix(prefix) for path in folder.glob(f"{prefix}*")) if folder.is_dir() else []
