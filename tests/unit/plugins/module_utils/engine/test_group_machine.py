# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import group_machine
from ansible_collections.gb10.ring.plugins.module_utils.engine.group import Look
from ansible_collections.gb10.ring.plugins.module_utils.memory import guard_machine

UNIT = "e.service"
SHOWN = """\
MainPID={pid}
ExecMainStatus=9
LoadState=loaded
ActiveState={active}
Result=signal
InvocationID=abc
InactiveExitTimestampMonotonic=1500000
ExecMainExitTimestampMonotonic=2500000
"""


class Systemd:
    """What is run, and the link that stands for the unit's run."""

    def __init__(self, units) -> None:
        self.units, self.pid, self.active, self.argv = units, os.getpid(), "active", []

    def run(self, argv):
        self.argv.append(list(argv))
        return SHOWN.format(pid=self.pid, active=self.active) if argv[1] == "show" else ""

    def link(self, run):
        (self.units / f"invocation:{UNIT}").unlink(missing_ok=True)
        if run:
            (self.units / f"invocation:{UNIT}").symlink_to(run)


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    one = Systemd(tmp_path)
    monkeypatch.setattr(group_machine, "command", one.run)
    return one


def test_what_systemd_shows():
    found = group_machine.parse(SHOWN.format(pid=1, active="failed"), alive=False)
    assert found == Look("loaded", "failed", "abc", "signal", 9, main=False, began=1.5, ended=2.5)
    assert group_machine.parse("", alive=False) == Look()
    assert group_machine.parse("Job=417\n", alive=False).queued
    assert not group_machine.parse("Job=\n", alive=False).queued
    assert ",Job," in group_machine.PROPERTIES


def test_nothing_is_run_while_nothing_happens(systemd, tmp_path):
    eye = group_machine.Eye(UNIT, str(tmp_path))
    systemd.link("abc")
    looks = [eye.look(now / 2) for now in range(19)]
    assert len(systemd.argv) == 1
    assert all(look.main and look.active == "active" for look in looks)
    eye.look(10.0)
    assert len(systemd.argv) == 2  # every ten seconds all the same


def test_a_process_that_has_gone_is_seen_at_once(systemd, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    systemd.pid = child.pid
    systemd.link("abc")
    eye = group_machine.Eye(UNIT, str(tmp_path))
    assert eye.look(0.0).main
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie: nobody has taken note of its end yet
    systemd.active = "deactivating"
    assert eye.look(0.5)[1:7] == ("deactivating", "abc", "signal", 9, False, 1.5)
    assert len(systemd.argv) == 2
    child.wait()


def test_a_start_is_seen_at_once(systemd, tmp_path):
    systemd.active, systemd.pid = "inactive", 0
    eye = group_machine.Eye(UNIT, str(tmp_path))
    assert [eye.look(now).active for now in (0.0, 0.5)] == ["inactive"] * 2
    systemd.active = "activating"
    systemd.link("abc")
    assert eye.look(1.0).active == "activating"
    assert len(systemd.argv) == 2


def test_systemd_that_does_not_answer_is_no_end(monkeypatch, tmp_path):
    monkeypatch.setattr(group_machine, "command", lambda _argv: "")
    assert group_machine.Eye(UNIT, str(tmp_path)).look(0.0) is None


def test_a_stop_ends_in_order(systemd, tmp_path):
    assert group_machine.stop(UNIT, {"units": str(tmp_path)}, 5.0) == ""
    assert [argv[1] for argv in systemd.argv] == ["stop", "reset-failed"]


def test_a_rank_that_does_not_end_is_killed(systemd, tmp_path, monkeypatch):
    systemd.link("abc")
    killed = []

    def stop(unit, _paths, ended):
        killed.append((unit, ended()))
        systemd.link("")
        return "" if ended() else "still there"

    monkeypatch.setattr(guard_machine, "stop", stop)
    assert group_machine.stop(UNIT, {"units": str(tmp_path)}, 0.2) == ""
    assert killed == [(UNIT, False)]


@pytest.mark.parametrize(("stays", "kills"), [(0.5, 0), (60, 1)])
def test_the_removal_of_a_container_is_waited_for_and_not_for_ever(systemd, tmp_path, monkeypatch, stays, kills):
    systemd.link("abc")
    began, killed = time.monotonic(), []

    def run(argv):
        if time.monotonic() - began > stays:
            systemd.link("")
        return "stop-post\n" if "SubState" in argv else ""

    monkeypatch.setattr(group_machine, "command", run)
    monkeypatch.setattr(group_machine, "CLEAN_S", 2.0)
    monkeypatch.setattr(guard_machine, "stop", lambda *given: killed.append(given) or "")
    assert group_machine.stop(UNIT, {"units": str(tmp_path)}, 0.1) == ""
    assert len(killed) == kills


def test_what_is_asked_of_the_journal(systemd):
    group_machine.asked_to_stop(UNIT, "abc")
    assert systemd.argv[0][-2:] == [f"UNIT={UNIT}", "INVOCATION_ID=abc"]
    assert not group_machine.asked_to_stop(UNIT, "")
    assert len(systemd.argv) == 1


def test_a_command_that_cannot_be_run_says_nothing():
    assert group_machine.command(["/nonexistent"]) == ""
    assert group_machine.command(["echo", "x"]) == "x\n"


def test_files_that_may_be_absent(tmp_path):
    assert group_machine.token(str(tmp_path / "t")) == ""
    assert group_machine.changed(str(tmp_path / "t")) == 0
    (tmp_path / "t").write_text("secret\n")
    assert group_machine.token(str(tmp_path / "t")) == "secret"
    assert group_machine.changed(str(tmp_path / "t")) != 0
