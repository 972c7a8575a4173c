# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two nodes as virtual machines, for what namespaces cannot show: a kernel of their own, verbs, swap, matching by MAC.

QEMU emulates the processor: no virtualisation of the machine is used, so that it runs wherever the lab runs, slowly. Both
machines run in the controller namespace: their management netdev is a tap in its bridge, each leg of their one cable a unix
socket between the two processes.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import base, cabling, cgroups, guard, keys, leftovers, life, network, nodes, store, vm_image
from .cabling import NETDEVS, RAILS
from .instance import MANAGEMENT_NETDEV, MANAGEMENT_PREFIX, Instance, LabError, node_address, node_name
from .procs import Process, end, recall, run, spawn, wait_for

NUMBERS = (1, 2)  # spark1 and spark2, cabled port 0 to port 0
PORT = 0
MANAGEMENT = 0xFF  # how cabling.mac calls the management port
EMULATOR = "qemu-system-x86_64"
MEMORY_MIB = 1024
MTU = 9000
SPEED = 200000  # Mb/s; both rails of a port report it (NVIDIA multi-sparks-through-switch README)
SWAP_MIB = 64
READY_SECONDS = 420.0  # 50 on two idle cores, four times that beside other work
KERNEL_OPTIONS = "root=/dev/vda rw console=ttyS0 quiet mitigations=off apparmor=0 audit=0 tsc=reliable no_timer_check"
# Matches the netdev by its MAC and names it, as an installer writes it for a machine with many ports.
MANAGEMENT_PLAN = """\
# The management plane as the machine comes with it; the fabric's addresses are in other files.
network:
  version: 2
  renderer: networkd
  ethernets:
    management:
      match: {{macaddress: "{mac}"}}
      set-name: {netdev}
      dhcp4: false
      link-local: []
      addresses: [{address}/{prefix}]
"""
LINK = """\
# In place of the names that udev derives from the PCI addresses of a ConnectX-7; the MTU is what a new port has
[Match]
PermanentMACAddress={mac}

[Link]
Name={netdev}
MTUBytes=1500
"""


@dataclass(frozen=True)
class Leg:
    """One rail of the cable: the first machine listens on the socket, the second connects to it."""

    rail: int
    socket: Path

    def options(self, number: int) -> list[str]:
        listens = "on" if number == NUMBERS[0] else "off"
        mac = cabling.mac(number, PORT, self.rail)
        return [
            "-netdev",
            f"stream,id=leg{self.rail},server={listens},addr.type=unix,addr.path={self.socket}",
            "-device",
            f"virtio-net-pci,netdev=leg{self.rail},mac={mac},host_mtu={MTU},speed={SPEED},duplex=full,romfile=",
        ]


def folder(instance: Instance, number: int) -> Path:
    return instance.directory / "vm" / node_name(number)


def record(instance: Instance, number: int) -> Path:
    return instance.record(f"vm-{node_name(number)}")


def log(instance: Instance, number: int) -> Path:
    return instance.log(f"vm-{node_name(number)}")


def legs(instance: Instance) -> list[Leg]:
    return [Leg(rail, instance.sockets / f"leg{rail}") for rail in RAILS]


def tap(number: int) -> str:
    return f"vm{number}"


def process(instance: Instance, number: int) -> Process | None:
    return recall(record(instance, number))


def running(instance: Instance) -> bool:
    return any(process(instance, number) for number in NUMBERS)


def refuse(instance: Instance) -> None:
    """Raises LabError when the instance runs virtual machines: they have the names and addresses of the nodes."""
    if running(instance):
        raise LabError(
            f"instance {instance.name!r} runs virtual machines: `lab/ctl --instance {instance.name} vm down` first"
        )


def number_of(node: str) -> int:
    """The machine's number. Raises LabError when there is no such machine."""
    numbers = {node_name(number): number for number in NUMBERS}
    if node not in numbers:
        raise LabError(f"node {node!r}: one of {', '.join(numbers)} is expected")
    return numbers[node]


def ssh(instance: Instance, node: str) -> list[str]:
    """argv that starts an SSH session with a machine. Raises LabError when it does not run."""
    if process(instance, number_of(node)) is None:
        raise LabError(f"{node} does not run: `lab/ctl --instance {instance.name} vm up` starts it")
    return keys.ssh(instance, node)


def qemu_argv(instance: Instance, number: int, image: Path) -> list[str]:
    """The call that runs the machine. A reboot of the guest stays inside it; its disk and the cable stay too."""
    management = cabling.mac(number, MANAGEMENT, 0)
    return [
        EMULATOR,
        *("-name", f"{instance.tag}-{node_name(number)}"),
        *("-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", str(MEMORY_MIB)),
        *("-nodefaults", "-display", "none", "-serial", f"file:{log(instance, number)}"),
        *("-kernel", str(image / "kernel"), "-initrd", str(image / "initrd"), "-append", KERNEL_OPTIONS),
        "-drive",
        f"file={folder(instance, number) / 'disk.img'},format=raw,if=virtio,cache=unsafe",
        *("-device", "virtio-rng-pci"),
        *("-netdev", f"tap,id=management,ifname={tap(number)},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev=management,mac={management},romfile="),
        *(word for leg in legs(instance) for word in leg.options(number)),
    ]


def identity(instance: Instance, number: int) -> dict[str, tuple[str, int]]:
    """What the machine has for itself: as a node in a namespace, with names for its netdevs and a swap file at boot."""
    plan = MANAGEMENT_PLAN.format(
        mac=cabling.mac(number, MANAGEMENT, 0),
        netdev=MANAGEMENT_NETDEV,
        address=node_address(number),
        prefix=MANAGEMENT_PREFIX,
    )
    links = {
        f"etc/systemd/network/70-gb10-lab-{NETDEVS[PORT, rail]}.link": (
            LINK.format(mac=cabling.mac(number, PORT, rail), netdev=NETDEVS[PORT, rail]),
            0o644,
        )
        for rail in RAILS
    }
    return {
        **nodes.identity(instance, number),
        **links,
        "etc/netplan/01-management.yaml": (plan, 0o600),
        "etc/fstab": ("/swap.img none swap sw 0 0\n", 0o644),
    }


def up(instance: Instance, timeout: float = READY_SECONDS) -> None:
    """Start both machines unless they run, and wait until they answer over SSH."""
    began = time.monotonic()
    built = base.ensure(instance)
    image = vm_image.ensure(instance, built)
    keys.ensure(instance)
    with store.changing(instance):
        if store.exists(instance):
            raise LabError(
                f"instance {instance.name!r} runs nodes in namespaces, which have the same names and addresses: "
                f"`lab/ctl --instance {instance.name} down` first, or choose another instance"
            )
        if not all(process(instance, number) for number in NUMBERS):
            leftovers.remove_all(instance)
            _start(instance, built, image)
    _wait_ready(instance, timeout)
    print(f"lab: {instance.name}: 2 virtual machines, reachable after {time.monotonic() - began:.0f} s", flush=True)


def _start(instance: Instance, built: Path, image: Path) -> None:
    for name in ("log", "run"):
        (instance.directory / name).mkdir(parents=True, exist_ok=True)
    instance.control_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    instance.base.symlink_to(built)
    instance.ssh_config.write_text(keys.client_config(instance), encoding="utf-8")
    guard.place()
    network.make_controller(instance)
    for number in NUMBERS:
        _prepare(instance, number, image)
    for number in NUMBERS:
        _power_on(instance, number, image)


def _prepare(instance: Instance, number: int, image: Path) -> None:
    """The machine's own disk, and its place in the management bridge."""
    place = folder(instance, number)
    disk, root = place / "disk.img", place / "root"
    root.mkdir(parents=True)
    run(["cp", "--sparse=always", image / "root.img", disk])
    run(["mount", "-o", "loop", disk, root])
    try:
        nodes.write_files(root, identity(instance, number))
        swap = root / "swap.img"
        run(["fallocate", "-l", f"{SWAP_MIB}M", swap])
        swap.chmod(0o600)
        run(["mkswap", "-q", swap])
    finally:
        leftovers.unmount(place)
    link = tap(number)
    lines = [f"tuntap add dev {link} mode tap", f"link set dev {link} master {network.BRIDGE} up"]
    network.batch(instance, network.CONTROLLER, lines)


def _power_on(instance: Instance, number: int, image: Path) -> None:
    argv: list[str | Path] = [*network.enter(instance), *qemu_argv(instance, number, image)]
    output = instance.log(f"qemu-{node_name(number)}")
    spawn(argv, output, record(instance, number), before=cgroups.joiner(instance.tag, "lab"))
    if number == NUMBERS[0]:

        def listening() -> str | None:
            if process(instance, number) is None:
                raise LabError(
                    f"{EMULATOR} ended: {_tail(output) or 'no output'}; is it installed? `lab/host-packages --vm`"
                )
            absent = [str(leg.socket) for leg in legs(instance) if not leg.socket.is_socket()]
            return f"{', '.join(absent)} absent" if absent else None

        wait_for(f"{node_name(number)}'s ends of the cable", listening, 20.0)


def _tail(path: Path) -> str:
    """The last line of a log that is not blank."""
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")
    return ""


def _wait_ready(instance: Instance, timeout: float) -> None:
    """Wait until both machines have finished their start. Raises LabError with the last state of the one that has not."""
    limit = time.monotonic() + timeout
    for number in NUMBERS:
        name = node_name(number)

        def ready(number: int = number, name: str = name) -> str | None:
            if process(instance, number) is None:
                said = _tail(instance.log(f"qemu-{name}"))
                raise LabError(f"{name} stopped while it booted: {said or 'no message'}; see {log(instance, number)}")
            argv = keys.ssh(instance, name, "-o", "ConnectTimeout=10")
            done = run([*argv, "systemctl is-system-running"], check=False, timeout=60)
            state = done.stdout.strip()
            if state in {"running", "degraded"}:
                return None
            return state or done.stderr.strip() or "no answer"

        wait_for(f"{name} reachable over SSH", ready, max(limit - time.monotonic(), 1.0), pause=1.0)


def down(instance: Instance) -> None:
    """Stop both machines and remove what they left. Nodes in namespaces are another lab, and stay."""
    if store.exists(instance):
        raise LabError(
            f"instance {instance.name!r} runs nodes in namespaces, no virtual machines: `lab/ctl --instance {instance.name} down`"
        )
    end(machine for machine in (process(instance, number) for number in NUMBERS) if machine)
    life.down(instance, nodes_only=False)


def status(instance: Instance) -> list[dict[str, Any]]:
    """Each machine as JSON shows it."""
    found = []
    for number in NUMBERS:
        seen = process(instance, number)
        row = {"name": node_name(number), "address": node_address(number), "running": seen is not None}
        found.append({**row, "pid": seen.pid if seen else None, "console": str(log(instance, number))})
    return found


def status_text(instance: Instance) -> str:
    rows = status(instance)
    return "\n".join(
        f"{row['name']:<8} {row['address']:<24} {'on, pid ' + str(row['pid']) if row['running'] else 'off'}"
        for row in rows
    )
