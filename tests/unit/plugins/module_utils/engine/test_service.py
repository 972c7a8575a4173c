# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.service import (
    UnitState,
    needs_restart,
    parse_show,
    plan_state,
    plan_unit,
    reached,
)

RUNNING = UnitState("loaded", "active", "running", "enabled", 42, hash="aa")
STOPPED = UnitState("loaded", "inactive", "dead", "enabled")
FAILED = UnitState("loaded", "failed", "failed", "enabled", result="exit-code", status=1)
AGAIN = UnitState("loaded", "activating", "auto-restart", "enabled", restarts=3, result="exit-code", status=1)
QUEUED = UnitState("loaded", "activating", "auto-restart-queued", "enabled", restarts=3, result="exit-code", status=1)
STOPPING = UnitState("loaded", "deactivating", "stop-sigterm", "enabled", 42)
ABSENT = UnitState()


def test_parse_show():
    # as systemd 257 prints it
    text = (
        "Result=exit-code\nNRestarts=2\nMainPID=0\nExecMainStatus=1\nLoadState=loaded\nActiveState=activating\n"
        "SubState=auto-restart\nUnitFileState=enabled\nNeedDaemonReload=yes\n"
    )
    assert parse_show(text) == UnitState(
        "loaded", "activating", "auto-restart", "enabled", restarts=2, result="exit-code", status=1, reload=True
    )


def test_parse_show_of_a_unit_that_is_not_there():
    assert parse_show(
        "LoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\nNRestarts=[not set]\n"
    ) == UnitState(result="")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (RUNNING, "active (running)"),
        (STOPPED, "inactive (dead)"),
        (AGAIN, "activating (auto-restart), exit-code, status 1, 3 restarts"),
        (ABSENT, "no unit"),
    ],
)
def test_text(state, text):
    assert state.text() == text


@pytest.mark.parametrize(
    ("state", "failed"),
    [(RUNNING, False), (STOPPED, False), (FAILED, True), (AGAIN, True), (QUEUED, True), (STOPPING, False)],
)
def test_failed(state, failed):
    assert state.failed is failed


@pytest.mark.parametrize(
    ("state", "wanted", "expected"),
    [(RUNNING, "aa", False), (RUNNING, "bb", True), (STOPPED, "aa", True), (AGAIN, "aa", True), (ABSENT, "aa", True)],
)
def test_needs_restart(state, wanted, expected):
    assert needs_restart(state, wanted) is expected


@pytest.mark.parametrize(
    ("state", "wanted", "changes"),
    [
        (RUNNING, "started", False),
        (STOPPED, "started", True),
        (AGAIN, "started", True),
        (ABSENT, "started", True),
        (RUNNING, "stopped", True),
        (STOPPING, "stopped", True),
        (FAILED, "stopped", True),
        (AGAIN, "stopped", True),
        (STOPPED, "stopped", False),
        (ABSENT, "stopped", False),
        (RUNNING, "restarted", True),
        (STOPPED, "restarted", True),
    ],
)
def test_plan_state(state, wanted, changes):
    plan = plan_state("x.service", state, wanted)
    assert plan.changed is changes
    assert all(change.before == state.text() for change in plan.changes)


@pytest.mark.parametrize(
    ("state", "wanted", "expected"),
    [
        (RUNNING, "started", True),
        (AGAIN, "restarted", False),
        (STOPPED, "stopped", True),
        (FAILED, "stopped", True),
        (STOPPING, "stopped", False),
        (ABSENT, "stopped", True),
    ],
)
def test_reached(state, wanted, expected):
    assert reached(state, wanted) is expected


NOT_ENABLED = UnitState("loaded", "active", "running", "disabled")


@pytest.mark.parametrize(
    ("files", "state", "enable", "changed"),
    [
        ({"r.json": (None, "r"), "u.service": (None, "u")}, ABSENT, True, ["r.json", "u.service", "u.service at boot"]),
        ({"r.json": ("r", "r"), "u.service": ("u", "u"), "q.container": (None, None)}, RUNNING, True, []),
        ({"r.json": ("r", "r"), "u.service": ("old", "u")}, RUNNING, True, ["u.service"]),
        ({"u.service": ("u", "u")}, NOT_ENABLED, True, ["u.service at boot"]),
        ({"q.container": ("q", "q")}, NOT_ENABLED, False, []),
        ({"q.container": (None, "q"), "u.service": ("u", None)}, RUNNING, False, ["q.container", "u.service"]),
    ],
)
def test_plan_unit(files, state, enable, changed):
    plan = plan_unit(files, "u.service", state, enable)
    assert [change.what for change in plan.changes] == changed


def test_every_file_has_its_reason():
    files = {"r.json": (None, "r"), "g.py": (None, "g"), "u.service": (None, "u"), "q.container": ("q", None)}
    assert plan_unit(files, "u.service", RUNNING).reasons() == [
        "r.json: what the engine is run from",
        "g.py: finds the GIDs at each start",
        "u.service: the engine's unit",
        "q.container: another renderer's, not used any more",
    ]
