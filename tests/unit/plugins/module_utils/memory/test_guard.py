# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard's state machine: single decisions, published traces, and a node in simulation that reacts to what the guard does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory import guard
from ansible_collections.gb10.ring.plugins.module_utils.memory.guard import Memory, Sample, State, step
from ansible_collections.gb10.ring.plugins.module_utils.memory.guard_profiles import PROFILES, RING, limits

GIB = 1024
HEALTHY = Memory(free=10 * GIB, available=11 * GIB, cached=1500)


def sample(at: float, memory: Memory = HEALTHY, run: str = "a", **more) -> Sample:
    return Sample(at, memory, run, **{"ready": True, **more})


def replay(samples, values=RING):
    """All actions of a run over these samples, as (at, kind, why)."""
    state, actions = State(), []
    for one in samples:
        state, action = step(state, one, values)
        if action:
            actions.append((one.at, action.kind, action.why))
    return actions


def every(seconds: float, count: int, memory: Memory, **more):
    return [sample(index * seconds, memory, **more) for index in range(count)]


def kinds(actions):
    return [(at, kind) for at, kind, _why in actions]


# --- What /proc/meminfo says


def test_meminfo_of_a_spark():
    text = "MemTotal: 127600000 kB\nMemFree: 10485760 kB\nMemAvailable: 11534336 kB\nBuffers: 1 kB\nCached: 3145728 kB\nShmem: 1048576 kB\n"
    assert guard.parse_meminfo(text) == Memory(10240, 11264, 2048)


@pytest.mark.parametrize(
    ("text", "missing"),
    [("", "MemFree, MemAvailable, Cached"), ("MemFree: 1 kB\nMemAvailable: x kB\nCached: 2 kB\n", "MemAvailable")],
)
def test_meminfo_without_what_is_needed(text, missing):
    with pytest.raises(ValueError, match=f"no {missing} in it"):
        guard.parse_meminfo(text)


# --- Phases


def test_it_does_nothing_while_no_engine_runs():
    assert replay(every(2, 20, Memory(100, 100, 60000), run="")) == []


def test_the_start_of_an_engine_drops_once_and_without_condition():
    samples = [sample(0, run=""), sample(2, ready=False), sample(4, ready=False), sample(6)]
    assert replay(samples) == [(2, "drop", "the engine starts")]


def test_a_guard_that_starts_beside_a_running_engine_does_not_take_it_for_a_start():
    assert replay([sample(0), sample(2)]) == []
    assert replay([sample(0, ready=False), sample(2)]) == []


@pytest.mark.parametrize(
    ("cached", "drops"), [(40 * GIB, []), (40 * GIB + 1, [(0, "drop"), (6, "drop"), (12, "drop")])]
)
def test_while_loading_it_drops_above_40_gib_of_cache_at_most_once_in_5_s(cached, drops):
    memory = Memory(free=3 * GIB, available=45 * GIB, cached=cached)
    assert kinds(replay(every(2, 8, memory, ready=False))) == drops


@pytest.mark.parametrize(
    ("free", "cached", "drops"),
    [
        (4 * GIB, 9000, []),
        (4 * GIB - 1, 512, []),
        (4 * GIB - 1, 513, [(0, "drop"), (6, "drop")]),
    ],
)
def test_while_serving_it_drops_below_4_gib_free_with_cache_to_gain(free, cached, drops):
    assert kinds(replay(every(2, 6, Memory(free, free + cached, cached)))) == drops


def test_no_second_drop_while_one_is_at_work():
    low = Memory(3 * GIB, 9 * GIB, 6 * GIB)
    assert kinds(replay([sample(0, low), *(sample(2.0 * i, low, dropping=True) for i in range(1, 5))])) == [(0, "drop")]


# --- Stopping


def test_1_5_gib_for_10_s_even_after_a_drop_stops_the_group_once():
    actions = replay(every(2, 30, Memory(1500, 1500, 600)))
    assert kinds(actions) == [(0, "drop"), (6, "drop"), (10, "stop")]
    assert actions[-1][2] == (
        "less than 1536 MiB have been left for 10 s, now 1500 MiB, even after a last drop of the page cache"
    )


def test_without_cache_to_gain_a_last_drop_is_made_before_the_stop():
    actions = replay(every(2, 30, Memory(1500, 1500, 100)))
    assert kinds(actions) == [(10, "drop"), (12, "stop")]
    assert "last try" in actions[0][2]


def test_a_last_drop_at_work_is_awaited_but_not_for_ever():
    low = Memory(1500, 1500, 100)
    samples = [*every(2, 6, low), *(sample(2.0 * i, low, dropping=True) for i in range(6, 15))]
    assert kinds(replay(samples)) == [(10, "drop"), (20, "stop")]


def test_a_dip_of_less_than_10_s_stops_nothing():
    low, fine = Memory(1300, 1300, 400), Memory(1600, 1600, 400)
    samples = [sample(2.0 * i, low if i % 5 else fine) for i in range(40)]
    assert kinds(replay(samples)) == []


def test_while_loading_cache_counts_as_room():
    full = Memory(free=300, available=30 * GIB, cached=30 * GIB)
    assert replay(every(2, 30, full, ready=False)) == []
    empty = Memory(free=300, available=1000, cached=800)
    actions = replay(every(2, 30, empty, ready=False))
    assert kinds(actions) == [(10, "stop")]
    assert "what the page cache can give included" in actions[0][2]


def test_raised_watermarks_do_not_count_as_used():
    """min_free_kbytes of 1 GiB and watermark_scale_factor 200 take about 6 GiB off MemAvailable."""
    assert replay(every(2, 30, Memory(free=7 * GIB, available=1 * GIB, cached=100), ready=False)) == []


def test_after_the_stop_it_waits_for_a_new_run():
    low = Memory(1000, 1000, 100)
    first = [*every(2, 20, low), sample(40, low, run=""), sample(42, low, run="")]
    again = [sample(44.0 + 2 * i, low, run="b", ready=i > 2) for i in range(20)]
    stops = [at for at, kind, _why in replay([*first, *again]) if kind == "stop"]
    assert len(stops) == 2
    assert stops[0] < 40
    assert stops[1] >= 54


def test_a_neighbours_word_stops_a_running_engine_and_is_not_passed_on():
    state, action = step(State(), sample(0, told="spark2: why"), RING)
    assert action == guard.Action("stop", "spark2: why", tell=False)
    assert state.phase == "stopped"
    assert step(State(), sample(0, run="", told="spark2: why"), RING)[1] is None


def test_its_own_stop_is_to_be_told():
    state, action = State(), None
    for one in every(2, 7, Memory(1000, 1000, 100)):
        state, action = step(state, one, RING)
    assert action is not None
    assert action.tell


def test_an_engine_that_uses_the_page_cache_is_never_dropped():
    mapped = PROFILES["mapped"]
    starts = [sample(0, run=""), *(sample(2.0 * i, Memory(300, 60000, 70000), ready=False) for i in range(1, 9))]
    assert replay(starts, mapped) == []
    assert replay(every(2, 30, Memory(300, 60000, 70000)), mapped) == []
    assert kinds(replay(every(2, 30, Memory(300, 900, 700)), mapped)) == [(10, "stop")]


@pytest.mark.parametrize(("free", "actions"), [(1500, []), (251, []), (249, [(2, "drop"), (4, "stop")])])
def test_the_lean_profile_leaves_its_working_point_alone(free, actions):
    assert kinds(replay(every(2, 30, Memory(free, free, 200)), PROFILES["lean"])) == actions


# --- A node in simulation: the guard acts, the node reacts


@dataclass
class Node:
    """121.7 GiB, as a Spark has. take, read: MiB/s that the engine allocates and reads into the cache, by seconds from the start."""

    take: Callable[[float], float]
    read: Callable[[float], float]
    used: float
    cached: float = 0
    total: float = 124600
    ready_at: float = 0
    drop_s: float = 0.6  # sync and drop of a few GiB
    kill_s: float = 0.35  # from the decision until nothing grows any more
    now: float = 0
    lowest: float = 1e9
    actions: list[tuple[float, str, str]] = field(default_factory=list)
    drops_until: float = -1
    stops_at: float = 1e9

    @property
    def free(self) -> float:
        return self.total - self.used - self.cached

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9:
            tick = 0.01
            if self.now < self.stops_at:
                self.used += self.take(self.now) * tick
                self.cached += self.read(self.now) * tick
            self.cached = max(0.0, min(self.cached, self.total - self.used - 100))  # the kernel takes cache back
            if 0 <= self.drops_until <= self.now:
                self.cached, self.drops_until = 0, -1
            self.now += tick
            self.lowest = min(self.lowest, self.free)

    def memory(self) -> Memory:
        return Memory(int(self.free), int(self.free + self.cached), int(self.cached))

    def run(self, seconds: float, values=RING) -> Node:
        state = State(run="")
        while self.now < min(seconds, self.stops_at):
            one = Sample(self.now, self.memory(), "a", self.now >= self.ready_at, self.drops_until >= 0)
            state, action = step(state, one, values)
            if action:
                self.actions.append((self.now, action.kind, action.why))
                if action.kind == "drop":
                    self.drops_until = self.now + self.drop_s
                else:
                    self.stops_at = self.now + self.kill_s
            self.advance(guard.pause(state, one, values))
        self.advance(1)
        return self

    @property
    def kinds(self) -> list[str]:
        return [kind for _at, kind, _why in self.actions]


@pytest.mark.parametrize("rate", [0.02, 0.15, 0.5, 1.0])
def test_a_450k_prefill_stops_nothing(rate):
    """MemFree of 10 GiB goes as Engram rows are read from disk, 7.3 GiB in 15 s at worst; 450K tokens at 1740 a second."""
    node = Node(take=lambda at: 0, read=lambda at: rate * GIB, used=124600 - 10 * GIB).run(260)
    assert "stop" not in node.kinds
    assert node.lowest > 2 * GIB
    assert node.kinds.count("drop") <= 260 / 5


@pytest.mark.parametrize("dropping", [False, True])
def test_the_published_troughs_of_that_prefill_stop_nothing(dropping):
    """As if no drop helped: 2.7 GiB with a flusher each 15 s, 1.0 GiB without any for just less than 10 s."""

    def filled(free: int) -> Memory:
        return Memory(free, 10900, 10900 - free)

    flushed = [sample(i * 0.5, filled(10240 - 243 * (i % 31)), dropping=dropping) for i in range(520)]
    assert min(one.memory.free for one in flushed) == 2950
    assert "stop" not in [kind for _at, kind, _why in replay(flushed)]
    levels = [*range(10240, 1024, -240), *[1024] * 8, *[9000] * 9]
    sunk = [sample(float(at), filled(level), dropping=dropping) for at, level in enumerate(levels * 5)]
    assert "stop" not in [kind for _at, kind, _why in replay(sunk)]


@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0, 1.5, 2e9 / 2**30])
@pytest.mark.parametrize("left", [3, 4, 5, 6.3, 10, 17.7, 30, 60])
@pytest.mark.parametrize("ready_at", [0, 1e9], ids=["serving", "loading"])
@pytest.mark.parametrize("offset", [0.0, 0.11, 0.24, 0.5, 1.3])
def test_a_runaway_is_stopped_before_1_gib(rate, left, ready_at, offset):
    """Growth begins at any moment between two samples."""
    node = Node(
        take=lambda at: rate * GIB if at >= 3 + offset else 0,
        read=lambda at: 0,
        used=124600 - left * GIB,
        ready_at=ready_at,
    ).run(400)
    assert node.kinds[-1] == "stop"
    assert node.kinds.count("stop") == 1
    assert node.lowest > GIB, node.actions


@pytest.mark.parametrize("cached", [2, 8, 20])
@pytest.mark.parametrize("left", [4.5, 10])
def test_a_runaway_with_a_full_page_cache_too(cached, left):
    """The cache is dropped on the way, and the group still stopped above 1 GiB."""
    node = Node(
        take=lambda at: 2e9 / 2**20 if at >= 3 else 0,
        read=lambda at: 0,
        used=124600 - (left + cached) * GIB,
        cached=cached * GIB,
    ).run(100)
    assert "drop" in node.kinds
    assert node.kinds[-1] == "stop"
    assert node.lowest > GIB, node.actions


@pytest.mark.parametrize("rate", [1, 3, 6])
@pytest.mark.parametrize("left", [8, 10, 14])
def test_loading_82_gib_stops_nothing(rate, left):
    """82.5 GiB of weights at NVMe speed into memory, read through the page cache; 8 to 14 GiB are left at the end."""
    end = 82.5 / rate
    node = Node(
        take=lambda at: rate * GIB if at < end else 0,
        read=lambda at: rate * GIB if at < end else 0,
        used=124600 - (82.5 + left) * GIB,
        ready_at=end + 60,
    ).run(end + 120)
    assert "stop" not in node.kinds, node.actions


def test_bursts_at_the_working_point_stop_nothing():
    """1 GiB taken within a quarter of a second and given back, at 3 GiB free: work space of a long prefill."""

    def take(at: float) -> float:
        place = at % 3
        return 4 * GIB if place < 0.25 else -4 * GIB if 1 <= place < 1.25 else 0

    assert Node(take=take, read=lambda at: 0, used=124600 - 3 * GIB).run(120).kinds == ["drop"]


@pytest.mark.parametrize(("name", "least"), [("lean", 250), ("early", 2 * GIB)])
def test_a_runaway_meets_the_floor_of_each_profile(name, least):
    node = Node(take=lambda at: 2e9 / 2**20, read=lambda at: 0, used=124600 - 8 * GIB, ready_at=1e9)
    assert node.run(60, PROFILES[name]).kinds[-1] == "stop"
    assert node.lowest > least


# --- Pace


@pytest.mark.parametrize(
    ("free", "run", "seconds"),
    [
        (100, "", 2),
        (60 * GIB, "a", 2),
        (10 * GIB, "a", 0.5625),
        (4 * GIB, "a", 0.1875),
        (2 * GIB, "a", 0.1),
        (500, "a", 0.1),
    ],
)
def test_samples_come_faster_the_less_is_left(free, run, seconds):
    one = sample(0, Memory(free, free, 0), run)
    state, _action = step(State(), one, RING)
    assert guard.pause(state, one, RING) == seconds


# --- Limits


def test_own_limits_replace_those_of_the_profile():
    values = limits("ring", {"stop_free_mib": 2048.0, "drops": False})
    assert (values.stop_free_mib, values.drops, values.floor_mib) == (2048, False, 1024)
    assert limits("ring", {}) == RING


@pytest.mark.parametrize("name", PROFILES)
def test_each_profile_passes_its_own_check(name):
    assert limits(name, PROFILES[name]._asdict()) == PROFILES[name]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            {"stop_mib": 1},
            "stop_mib is not a limit of the guard, expected one of drops, drop_at_start, loading_cached_mib",
        ),
        ({"drops": "no"}, "drops is 'no', expected true or false"),
        ({"interval_s": 60}, "interval_s is 60, expected a number from 0.25 to 5"),
        ({"floor_mib": True}, "floor_mib is True, expected a number from 64"),
        (
            {"stop_free_mib": 5000},
            "stop_free_mib is 5000 and serving_free_mib is 4096, expected stop_free_mib not above",
        ),
        ({"interval_s": "2", "least_growth_mib_s": 0}, "interval_s is '2'.*; least_growth_mib_s is 0"),
    ],
)
def test_bad_limits_are_told_all_at_once(own, said):
    with pytest.raises(ValueError, match=said):
        limits("ring", own)
