# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory.guard_checks import checks
from ansible_collections.gb10.ring.plugins.module_utils.memory.guard_unit import Found

ARMED = Found({}, active=True, enabled=True)
STATUS = {
    "phase": "serving",
    "run": "b",
    "at": 1000.0,
    "armed_since": 1796005404,
    "memory": {"free": 10240, "available": 11264, "cached": 1500},
    "problem": "",
    "answered": {"spark2": 990.0, "spark3": 995.0},
    "digest": "d",
}
LAST = {"at": 1796005404, "run": "b", "why": "900 MiB are left", "figures": "MemFree 900 -> 90000"}


def look(found=ARMED, last=None, now=1001.0, **given):
    status = given.get("status", STATUS)
    rows = checks("spark1", found, "d", status=status, last=last or {}, peers=["spark2", "spark3"], now=now)
    return {row.id: row for row in rows}


def test_an_armed_guard_tells_phase_and_memory():
    rows = look()
    assert {name: row.ok for name, row in rows.items()} == {"memory.guard": True, "memory.guard_peers": True}
    assert rows["memory.guard"].found == (
        "armed since 2026-11-30 02:23:24 UTC, engine serving, MemFree 10240 MiB, MemAvailable 11264 MiB"
    )
    assert rows["memory.guard_peers"].found == "2 of 2 answer"


@pytest.mark.parametrize(
    ("found", "status", "now", "said"),
    [
        (Found({}), {}, 1001.0, "does not run"),
        (Found({}, active=True), STATUS, 1001.0, "is not started at boot"),
        (ARMED, STATUS, 1031.0, "has not said anything for more than 30 s"),
        (ARMED, {}, 1001.0, "has not said anything"),
        (ARMED, {**STATUS, "problem": "cannot read /proc/meminfo"}, 1001.0, "cannot read /proc/meminfo"),
        (ARMED, {**STATUS, "digest": "e"}, 1001.0, "runs from other settings or another version"),
    ],
)
def test_a_guard_that_is_not_armed_is_an_error(found, status, now, said):
    rows = look(found, status=status, now=now)
    assert list(rows) == ["memory.guard"]
    assert not rows["memory.guard"].ok
    assert rows["memory.guard"].severity == "error"
    assert said in rows["memory.guard"].found
    assert "journalctl -u gb10-ring-guard.service" in rows["memory.guard"].cure


@pytest.mark.parametrize("answered", [None, {}, {"spark2": 990.0}, {"spark2": 990.0, "spark3": 800.0}])
def test_a_silent_neighbour_is_named(answered):
    row = look(status={**STATUS, "answered": answered})["memory.guard_peers"]
    assert (row.ok, row.severity) == (False, "warning")
    assert row.found.endswith("spark3")


@pytest.mark.parametrize(("run", "told"), [("b", True), ("", True), (None, True), ("c", False)])
def test_a_stop_is_told_until_the_engine_runs_again(run, told):
    rows = look(status={**STATUS, "run": run}, last=LAST)
    assert ("memory.guard_stop" in rows) is told
    if told:
        assert rows["memory.guard_stop"].severity == "warning"
        assert rows["memory.guard_stop"].found == (
            "the group was stopped at 2026-11-30 02:23:24 UTC: 900 MiB are left; MemFree 900 -> 90000"
        )
