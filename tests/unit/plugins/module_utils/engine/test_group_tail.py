# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of a rank when an incident happens: its log, the kernel's, and the node's memory."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import group_machine
from ansible_collections.gb10.ring.plugins.module_utils.engine.diagnosis import AROUND, diagnose, last_lines

KILLED = "2026-11-30T06:00:01+00:00 spark2 kernel: Out of memory: Killed process 412 (VLLM::Worker_TP)"


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [([], ["--- memory", "MemFree: 1 kB"]), ([KILLED], ["--- kernel", KILLED, "--- memory", "MemFree: 1 kB"])],
)
def test_kernel_and_memory_follow_the_log(monkeypatch, kernel, expected):
    asked = []

    def command(argv):
        asked.append(argv)
        return "\n".join(kernel) if "-k" in argv else "the engine's log"

    monkeypatch.setattr(group_machine, "command", command)
    monkeypatch.setattr(group_machine, "memory", lambda: ["MemFree: 1 kB"])
    assert group_machine.tail("x.service", 200) == ["the engine's log", *expected]
    [mine] = [argv for argv in asked if "-k" not in argv]
    assert mine[-4:] == ["-n", str(200 - len(expected)), "-u", "x.service"]
    found = diagnose({"spark2": group_machine.tail("x.service", 200)})
    assert [finding.signature for finding in found] == (["oom-kill"] if kernel else [])


def test_memory(tmp_path):
    place = tmp_path / "meminfo"
    place.write_text("MemTotal:       127601204 kB\nBuffers:  3 kB\nCmaFree:          940604 kB\n")
    assert group_machine.memory(str(place)) == ["MemTotal: 127601204 kB", "CmaFree: 940604 kB"]
    assert group_machine.memory(str(tmp_path / "absent")) == [f"{tmp_path}/absent: No such file or directory"]


def test_the_last_lines_are_the_engines():
    assert group_machine.AROUND == AROUND
    assert last_lines({"spark1": ["a", "b", "--- memory", "MemFree: 1 kB"]}, 1) == ["  spark1:", "    b"]
