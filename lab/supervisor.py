# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process behind a running node: boots it, boots it again when it asks for a reboot, and cuts its cables when it powers off."""

from __future__ import annotations

import subprocess
import time

from . import cabling, cgroups, network, nodes, store
from .instance import Instance
from .procs import remember

REBOOT = 133  # systemd-nspawn's exit status with --keep-unit when the payload asked for a reboot


def supervise(instance: Instance, name: str) -> int:
    """Run the node until it powers off; returns systemd-nspawn's exit status."""
    while True:
        _say(f"{name}: power on")
        process = subprocess.Popen(
            nodes.nspawn_argv(instance, name),
            stdin=subprocess.DEVNULL,
            env=nodes.nspawn_environment(),
            preexec_fn=cgroups.joiner(instance.tag, name),  # noqa: PLW1509 - this process has no threads
        )
        remember(instance.record(f"nspawn-{name}"), process.pid)
        status = process.wait()
        _say(f"{name}: systemd-nspawn ended with {status}")
        cgroups.remove(instance.tag, name)
        with store.changing(instance):
            state = store.load(instance)
            number = cabling.number_of(state, name)
            if status != REBOOT:
                power(instance, number, on=False)
                return status
            power(instance, number, on=False)
            power(instance, number, on=True)


def power(instance: Instance, number: int, on: bool) -> None:
    """Make or remove the node's netdevs, and with them the carrier of its neighbours. The caller holds the store's lock.

    Addresses, MTU and the kernel settings of the namespace go with it, as at a real power-on.
    """
    state = cabling.set_power(store.load(instance), number, on)
    store.save(instance, state)
    network.remove_node(instance, number)
    if on:
        network.make_node(instance, number)
    network.apply(instance, state)


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)
