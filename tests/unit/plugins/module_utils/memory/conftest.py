# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For the tests of the guard's service."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory import guard_machine
from ansible_collections.gb10.ring.tests.unit.fixtures.guarded_machine import Machine, port


@pytest.fixture
def machine(tmp_path):
    one = Machine(tmp_path / "a", "spark1", "127.0.0.1", port(), {})
    yield one
    if one.guard.channel:
        one.guard.channel.close()


@pytest.fixture
def systemctl(monkeypatch):
    """What would have been run; the machine of the moment loses its engine's run with the second command."""
    calls: list[list[str]] = []

    def run(argv, **_more):
        calls.append(list(argv))
        if argv[1] == "kill" and run.machine:
            run.machine.engine("")
        return subprocess.CompletedProcess(argv, 0, "", "")

    run.machine = None
    monkeypatch.setattr(guard_machine.subprocess, "run", run)
    run.calls = calls
    return run
