# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From nothing to a running lab and back: what `up`, `down` and `node` do, in order."""

from __future__ import annotations

import re
import time
from pathlib import Path

from . import base, cabling, guard, keys, layer, leftovers, network, nodes, s3, store, supervisor
from .cabling import State
from .instance import Instance, LabError, node_name
from .procs import wait_for


def up(instance: Instance, wanted: State, checkpoint: bool) -> None:
    """Start the lab, or what of it is missing. Nodes without power are switched on."""
    if re.search(r"[,:\\\"]", str(instance.directory)):
        raise LabError(
            f"{instance.directory}: mount options cannot carry a comma, colon, quote or backslash; move the checkout"
        )
    began = time.monotonic()
    built = base.ensure(instance)
    upon = layer.ensure(instance, wanted.layer) if wanted.layer else None
    keys.ensure(instance)
    with store.changing(instance):
        if not _keep(instance, wanted):
            _start_nodes(instance, wanted, built, upon)
        for number in sorted(store.load(instance).off):
            _switch_on(instance, number)
    nodes.wait_ready(instance, wanted.names())
    print(
        f"lab: {instance.name}: {wanted.shape} of {wanted.nodes} nodes, reachable {time.monotonic() - began:.1f} s after the start",
        flush=True,
    )
    if checkpoint:
        s3.publish(instance)
    else:
        s3.client_command(instance, "prepare")


def _keep(instance: Instance, wanted: State) -> bool:
    """Whether the lab that is there can stay. Removes it when it is broken; raises LabError when it is another one."""
    if store.exists(instance):
        now = store.load(instance)
        if _whole(instance, now):
            if _size(now) != _size(wanted):
                with_layer = f" and layer {now.layer}" if now.layer else ""
                raise LabError(
                    f"instance {instance.name!r} runs a {now.shape} of {now.nodes} nodes with {now.data_mib} MiB{with_layer} each: "
                    f"`lab/ctl --instance {instance.name} down --nodes-only` first"
                )
            return True
    if network.inside(instance):
        leftovers.remove_nodes(instance)
    elif not (network.exists(instance, network.CONTROLLER) and s3.running(instance)):
        leftovers.remove_all(instance)
    else:
        leftovers.remove_nodes(instance)
    return False


def _size(state: State) -> tuple[str, int, int, str]:
    return state.shape, state.nodes, state.data_mib, state.layer


def _whole(instance: Instance, state: State) -> bool:
    """Whether everything that should run does."""
    spaces = [network.CONTROLLER, network.CABLES, *(name for name, on in _powered(state) if on)]
    running = all(
        nodes.supervisor(instance, name) and nodes.leader(instance, name) for name, on in _powered(state) if on
    )
    return running and s3.running(instance) and all(network.exists(instance, name) for name in spaces)


def _powered(state: State) -> list[tuple[str, bool]]:
    return [(name, number not in state.off) for number, name in enumerate(state.names(), 1)]


def _start_nodes(instance: Instance, wanted: State, built: Path, upon: layer.Layer | None) -> None:
    for folder in ("log", "run", "nodes"):
        (instance.directory / folder).mkdir(parents=True, exist_ok=True)
    instance.control_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    instance.base.unlink(missing_ok=True)
    instance.base.symlink_to(built)
    instance.layer.unlink(missing_ok=True)
    if upon:
        instance.layer.symlink_to(upon.root)
    instance.ssh_config.write_text(keys.client_config(instance), encoding="utf-8")
    if not network.exists(instance, network.CONTROLLER):
        guard.place()
        network.make_controller(instance)
    s3.start(instance)  # it takes longer than the nodes
    network.make_cables(instance, wanted)
    for number in wanted.numbers():
        network.make_node(instance, number)
    network.apply(instance, wanted)
    store.save(instance, wanted)
    for number, name in enumerate(wanted.names(), 1):
        nodes.prepare(instance, number, wanted.data_mib, wanted.layer)
        nodes.power_on(instance, name)


def down(instance: Instance, nodes_only: bool) -> None:
    """Remove the nodes; unless nodes_only, or when called from inside the lab, everything else too."""
    with store.changing(instance):
        if nodes_only or network.inside(instance):
            leftovers.remove_nodes(instance)
            return
        leftovers.remove_all(instance)
        guard.lift()
        left = leftovers.found(instance)
        (instance.shared / f"{instance.name}.lock").unlink(missing_ok=True)
    if left:
        raise LabError(f"instance {instance.name!r} left behind: {', '.join(left)}")


def _switch_on(instance: Instance, number: int) -> None:
    supervisor.power(instance, number, on=True)
    nodes.power_on(instance, node_name(number))


def start(instance: Instance, name: str) -> None:
    """Switch a node on, with the disk it had, and wait until it answers."""
    with store.changing(instance):
        number = cabling.number_of(store.load(instance), name)
        if nodes.supervisor(instance, name):
            raise LabError(f"{name} is already on")
        _switch_on(instance, number)
    nodes.wait_ready(instance, [name])


def kill(instance: Instance, name: str) -> None:
    """Cut a node's power."""
    with store.changing(instance):
        number = cabling.number_of(store.load(instance), name)
        nodes.power_cut(instance, name)
        leftovers.end_nodes(instance, [name])
        leftovers.remove_traces(instance, name)
        supervisor.power(instance, number, on=False)


def reboot(instance: Instance, name: str) -> None:
    """Ask a node for an orderly reboot and wait until it is back."""
    cabling.number_of(store.load(instance), name)
    before = nodes.leader(instance, name)
    if before is None:
        raise LabError(f"{name} is off: `lab/ctl --instance {instance.name} node start {name}`")
    nodes.inside(before, ["systemctl", "reboot"])

    def back() -> str | None:
        now = nodes.leader(instance, name)
        return None if now not in {None, before} else "still going down"

    wait_for(f"{name} restarted", back, 60.0)
    nodes.wait_ready(instance, [name])
