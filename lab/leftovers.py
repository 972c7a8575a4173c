# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an instance has left on the machine, in whatever state it was left, and its removal.

Found by facts that nobody else shares: a recorded pid and start time, a network namespace of this instance, the instance's
folder in a command line or a mount point, its tag in a control group. Nothing else is touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from . import cgroups, network, s3
from .instance import Instance
from .procs import Process, end, recall, run, start_time, wait_for


@dataclass(frozen=True)
class Seen:
    """A process as /proc shows it: its parent, the inode of its network namespace, its command line."""

    pid: int
    parent: int
    netns: int
    words: tuple[str, ...]


def scan() -> list[Seen]:
    """All processes that this one may look at."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            netns = (folder / "ns/net").stat().st_ino
            parent = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        found.append(Seen(int(folder.name), parent, netns, tuple(words)))
    return found


def ancestors(seen: Iterable[Seen], pid: int) -> set[int]:
    """The process and all its ancestors: whoever called `down` must survive it."""
    parents = {process.pid: process.parent for process in seen}
    line: set[int] = set()
    while pid and pid not in line:
        line.add(pid)
        pid = parents.get(pid, 0)
    return line


def names_folder(words: Iterable[str], folder: Path) -> bool:
    """Whether a command line names a path in the folder: alone, behind `option=`, in a list with ':', or in a title."""
    pattern = re.compile(rf"(?:^|[=:,\s\"]){re.escape(str(folder))}(?:/|\"|$)")
    return any(pattern.search(word) for word in words)


def is_supervisor(words: tuple[str, ...], main: Path, instance: str, nodes: Collection[str] | None = None) -> bool:
    """Whether the command line is that of a supervisor of the instance (of one of the nodes)."""
    wanted = ("--instance", instance, "supervise")
    if str(main) not in words or words[2:5] != wanted:
        return False
    return nodes is None or (len(words) > 5 and words[5] in nodes)


def mount_points(mountinfo: str, folder: Path) -> list[Path]:
    """Mount points in the folder, the deepest and latest first."""
    points = []
    for line in mountinfo.splitlines():
        point = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split()[4]))
        if point == folder or folder in point.parents:
            points.append(point)
    return sorted(reversed(points), key=lambda point: len(point.parts), reverse=True)


def loop_devices(losetup: str, folder: Path) -> list[str]:
    """Loop devices backed by a file in the folder, from `losetup --list --noheadings --output NAME,BACK-FILE`."""
    found = []
    for line in losetup.splitlines():
        device, _blank, file = line.strip().partition(" ")
        if names_folder([file.strip().removesuffix(" (deleted)")], folder):
            found.append(device)
    return found


def choose(seen: Iterable[Seen], mine: Callable[[Seen], bool], spared: set[int]) -> list[int]:
    return [process.pid for process in seen if process.pid not in spared and mine(process)]


def end_all(instance: Instance) -> None:
    """End whatever runs in any namespace of the instance, works in its folder, or was recorded."""
    names = network.namespaces(instance)
    records = list(instance.directory.glob("run/*.json"))
    _end(instance, names, [instance.directory, instance.sockets], None, records)


def end_nodes(instance: Instance, names: Collection[str]) -> None:
    """End everything of the nodes of these names."""
    spaces = [name for name in network.namespaces(instance) if name in names]
    records = [path for name in names for path in instance.directory.glob(f"run/*-{name}.json")]
    _end(instance, spaces, [instance.node(name) for name in names], names, records)


def _end(
    instance: Instance, spaces: list[str], folders: list[Path], nodes: Collection[str] | None, records: list[Path]
) -> None:
    inodes = {instance.netns_path(name).stat().st_ino for name in spaces}
    main = Path(__file__).resolve().parent / "__main__.py"

    def mine(process: Seen) -> bool:
        return (
            process.netns in inodes
            or any(names_folder(process.words, folder) for folder in folders)
            or is_supervisor(process.words, main, instance.name, nodes)
        )

    for _round in range(5):  # a supervisor may start something between the look and the end
        seen = scan()
        pids = set(choose(seen, mine, ancestors(seen, os.getpid())))
        pids |= {process.pid for process in map(recall, records) if process}
        found = [(pid, start_time(pid)) for pid in pids]
        processes = [Process(pid, start) for pid, start in found if start is not None]
        if not processes:
            return
        end(processes)


def unmount(folder: Path) -> None:
    """Unmount everything in the folder, and detach its loop devices."""
    for point in mount_points(Path("/proc/self/mountinfo").read_text(encoding="utf-8"), folder):

        def gone(point: Path = point) -> str | None:
            done = run(["umount", point], check=False)
            return None if done.returncode == 0 or not os.path.ismount(point) else done.stderr.strip()

        wait_for(f"unmount {point}", gone, 10.0)
    listed = run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], check=False).stdout
    for device in loop_devices(listed, folder):
        run(["losetup", "--detach", device], check=False)


def _traces(instance: Instance, name: str = "*") -> list[Path]:
    """Folders under /run that systemd-nspawn makes for a machine and leaves (mounted, since version 256) when it is killed."""
    return sorted(Path("/run/systemd/nspawn").glob(f"*/{instance.tag}-{name}"))


def remove_traces(instance: Instance, name: str = "*") -> None:
    for folder in _traces(instance, name):
        unmount(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()


def remove_nodes(instance: Instance) -> None:
    """Remove all nodes of the instance, running or not, with their disks; the controller side stays."""
    names = [name for name in network.namespaces(instance) if name not in {network.CONTROLLER, network.CABLES}]
    folders = instance.directory / "nodes"
    if folders.is_dir():
        names = sorted({*names, *(path.name for path in folders.iterdir())})
    end_nodes(instance, names)
    # Connections that Ansible keeps open (titled `ssh: CONTROL_PATH/... [mux]`) would hang on a node that is gone.
    _end(instance, [], [instance.control_path], (), [])
    for name in names:
        network.remove_node(instance, int(name.removeprefix("spark")))
    network.remove_namespace(instance, network.CABLES)
    unmount(folders)
    remove_traces(instance)
    cgroups.remove(instance.tag)
    shutil.rmtree(folders, ignore_errors=True)
    for stale in (*instance.directory.glob("run/*-spark*.json"), *instance.control_path.glob("*")):
        stale.unlink(missing_ok=True)
    instance.state_file.unlink(missing_ok=True)


def remove_all(instance: Instance) -> None:
    """Remove the whole instance: what runs, what is mounted, its namespaces and its folder."""
    end_all(instance)
    remove_nodes(instance)
    for name in network.namespaces(instance):
        network.remove_namespace(instance, name)
    unmount(instance.directory)
    for socket in s3.sockets(instance):
        socket.unlink(missing_ok=True)
    shutil.rmtree(instance.directory, ignore_errors=True)
    shutil.rmtree(instance.sockets, ignore_errors=True)  # outside the folder when its path is long


def found(instance: Instance) -> list[str]:
    """What is left of the instance, in words; empty after a clean `down`."""
    left = [f"namespace {instance.netns(name)}" for name in network.namespaces(instance)]
    mounts = mount_points(Path("/proc/self/mountinfo").read_text(encoding="utf-8"), instance.directory)
    left += [f"mount {point}" for point in mounts]
    listed = run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], check=False).stdout
    left += [f"loop device {device}" for device in loop_devices(listed, instance.directory)]
    left += [f"folder {path}" for path in _traces(instance)]
    left += [f"control group {path}" for path in cgroups.leftover(instance.tag)]
    seen = scan()
    left += [
        f"process {pid}"
        for pid in choose(seen, lambda p: names_folder(p.words, instance.directory), ancestors(seen, os.getpid()))
    ]
    return left
