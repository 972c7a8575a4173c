# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard's state machine along a recorded trace: 4 GiB taken at up to 1.2 GiB/s, held and given back, then 1 GiB of page cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory import guard
from ansible_collections.gb10.ring.plugins.module_utils.memory.guard import Memory, Sample, State, step
from ansible_collections.gb10.ring.plugins.module_utils.memory.guard_profiles import RING

FIXTURES = Path(__file__).parents[3] / "fixtures/memory"
GIB = 1024


def recorded(others: int, less_cache: int = 0):
    """Seconds and memory, as if others held so many MiB more, and so much less were in the page cache."""
    lines = (FIXTURES / "recorded/trace.tsv").read_text(encoding="ascii").splitlines()[1:]
    names, *rows = [line.split("\t") for line in lines]
    found = []
    for row in rows:
        memory = guard.parse_meminfo("".join(f"{name}: {kib} kB\n" for name, kib in zip(names, row, strict=True)))
        less = Memory(others, others + less_cache, less_cache)
        found.append((float(row[0]), Memory(*(now - held for now, held in zip(memory, less, strict=True)))))
    return found


def follow(trace, ready):
    """What the guard does along a trace that goes on whatever it does, at its own pace: kind and MiB free at that moment."""
    state, actions, now = State(), [], trace[0][0]
    while now <= trace[-1][0]:
        one = Sample(now, [memory for at, memory in trace if at <= now][-1], "a", ready=ready)
        state, action = step(state, one, RING)
        if action:
            actions.append((action.kind, one.memory.free))
        now += guard.pause(state, one, RING)
    return actions


def test_the_recorded_trace_is_one_of_a_process_that_takes_4_gib():
    free = [memory.free for _at, memory in recorded(0)]
    assert max(free) - min(free) > 4 * GIB
    assert min(free) > 5 * GIB and max(memory.cached for _at, memory in recorded(0)) > 12 * GIB


@pytest.mark.parametrize("ready", [True, False], ids=["serving", "loading"])
def test_a_recorded_machine_with_room_is_left_alone(ready):
    assert follow(recorded(0), ready) == []


@pytest.mark.parametrize("less_cache", [0, 10100])
@pytest.mark.parametrize(("others", "lowest"), [(5300, 392), (4500, 1192)])
def test_a_recorded_fall_is_stopped_above_1_gib(others, lowest, less_cache):
    trace = recorded(others, less_cache)
    assert min(memory.free for _at, memory in trace) == lowest
    actions = follow(trace, ready=True)
    assert [kind for kind, _free in actions] == (["stop"] if less_cache else ["drop", "stop"])
    assert actions[-1][1] > 1.3 * GIB


def test_a_recorded_cache_that_fills_is_dropped_and_stops_nothing():
    """MemFree sinks below 4 GiB while MemAvailable stays."""
    assert {kind for kind, _free in follow(recorded(4000, 10100), ready=True)} == {"drop"}
