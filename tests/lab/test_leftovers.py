# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab that was killed, at any point, can be started again and leaves nothing when it is taken down."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.lab import leftovers
from ansible_collections.gb10.ring.lab.instance import Instance

from .conftest import CHECKOUT, Lab

SIZE = ("--nodes", "2", "--data-mib", "32", "--no-checkpoint")


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab("t-left")
    made.ctl("down")
    yield made
    made.ctl("down")
    assert left(made) == []


def left(lab: Lab) -> list[str]:
    """What the machine still has of the instance, by the lab's own search and by its folder."""
    instance = Instance(lab.name, CHECKOUT)
    return leftovers.found(instance) + [str(path) for path in (lab.directory, instance.sockets) if path.exists()]


def pids_of(lab: Lab, *words: str) -> list[int]:
    """Processes of this instance whose command line has all the words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words):
            found.append(int(folder.name))
    return found


def test_up_repairs_a_lab_whose_processes_were_killed(lab: Lab) -> None:
    lab.ctl("up", *SIZE)
    killed = pids_of(lab, "\0--instance\0t-left\0supervise\0") + pids_of(lab, "weed\0", str(lab.directory))
    assert len(killed) == 3
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    lab.ctl("up", *SIZE)
    assert lab.ctl("ssh", "spark2", "systemctl is-system-running").strip() == "running"
    assert all(lab.pids())


@pytest.mark.parametrize("seconds", [0.25, 0.5, 0.9, 1.6])
def test_up_that_is_killed_half_way(lab: Lab, seconds: float) -> None:
    process = subprocess.Popen(lab.argv("up", *SIZE), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    process.kill()
    process.wait()
    lab.ctl("up", *SIZE)
    assert lab.ctl("ssh", "spark1", "true") == ""


def test_down_removes_what_a_killed_lab_left(lab: Lab) -> None:
    lab.ctl("up", *SIZE)
    instance = Instance(lab.name, CHECKOUT)
    inside = subprocess.Popen(lab.argv("exec", "spark1", "--", "sleep", "600"))
    outside = subprocess.Popen(["sleep", "600"])
    for pid in pids_of(lab, "\0--instance\0t-left\0supervise\0"):
        os.kill(pid, signal.SIGKILL)
    kinds = {entry.split()[0] for entry in leftovers.found(instance)}
    assert kinds >= {"namespace", "mount", "loop", "control", "process"}
    lab.ctl("down")
    assert left(lab) == []
    assert inside.wait(5) != 0
    assert outside.poll() is None, "a process that is none of the lab's must live"
    outside.kill()
    outside.wait()


def test_down_and_up_from_inside_the_controller_namespace(lab: Lab) -> None:
    lab.ctl("up", *SIZE)
    before = lab.status()["s3"]
    ctl = CHECKOUT / "lab/ctl"
    lab.controller(
        f"{ctl} down && {ctl} status | grep -q 'no nodes' && {ctl} up --shape pair --data-mib 32 --no-checkpoint"
    )
    status = lab.status()
    assert (status["shape"], status["s3"]) == ("pair", before)
    assert "198.18.0.0/15" not in lab.controller("ip route")


def test_down_of_a_lab_that_never_was(lab: Lab) -> None:
    assert lab.ctl("down") == ""
    assert "is not running" in lab.ctl("status", rc=1)


def test_the_guard_route_is_there_as_long_as_a_lab_is(lab: Lab) -> None:
    lab.ctl("up", *SIZE)
    assert _guarded()
    lab.ctl("down")
    assert _guarded() is bool(list(Path("/run/netns").glob("gb10-*-ctl")))


def _guarded() -> bool:
    routes = subprocess.run(["ip", "route", "show", "198.18.0.0/15"], capture_output=True, text=True, check=True).stdout
    return routes.strip() == "unreachable 198.18.0.0/15 proto 198"
