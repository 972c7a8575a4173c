# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control group of its own for each node, in whichever hierarchies the machine has; systemd-nspawn puts its payload below it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path


def hierarchies(mountinfo: str) -> list[Path]:
    """Mount points of the hierarchies that systemd uses: every v2 tree, and the v1 tree with name=systemd."""
    found = []
    for line in mountinfo.splitlines():
        left, _separator, right = line.partition(" - ")
        point, (kind, _source, options) = left.split()[4], right.split(maxsplit=2)
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            found.append(Path(point))
    return found


def _here() -> list[Path]:
    return hierarchies(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))


def joiner(tag: str, name: str) -> Callable[[], None]:
    """What a new process runs to move into the groups of a node, or of the lab's own processes (`lab`)."""

    def join() -> None:
        for root in _here():
            group = root / tag / name
            group.mkdir(parents=True, exist_ok=True)
            (group / "cgroup.procs").write_text(f"{os.getpid()}\n", encoding="ascii")

    return join


def remove(tag: str, name: str | None = None, patience: float = 10.0) -> None:
    """Remove the groups of a node, or of the whole instance; groups that still hold processes after patience seconds stay.

    The kernel lets go of a group a moment after its last process: one that has been killed is busy until it is reaped.
    """
    deadline = time.monotonic() + patience
    for root in _here():
        top = root / tag if name is None else root / tag / name
        while top.is_dir():
            for folder, _names, _files in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            if not top.is_dir() or time.monotonic() > deadline:
                break
            time.sleep(0.05)


def leftover(tag: str) -> list[Path]:
    return [root / tag for root in _here() if (root / tag).is_dir()]
