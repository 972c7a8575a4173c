# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the memory guard drops the page cache and when it stops the group: samples in, actions out; pure.

A copy runs on the nodes without Ansible, so this file imports the standard library only. NamedTuple instead of dataclass keeps
1.3 MiB out of a process that has to stay small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

IDLE, LOADING, SERVING, STOPPED = "idle", "loading", "serving", "stopped"
DROP, STOP = "drop", "stop"

REACTION_S = 0.6  # the next sample at the densest pace, and systemd's time to kill the engine
SHORTEST_S = 0.1
WINDOW_S = 0.75  # a fall is measured over at least this much, so that one burst is not taken for a trend
PACE = 8.0  # samples in the time that growth at growth_mib_s needs to the floor


class Limits(NamedTuple):
    """What a guard profile sets: sizes in MiB of 1024 KiB, times in seconds."""

    drops: bool
    drop_at_start: bool
    loading_cached_mib: int
    serving_free_mib: int
    serving_cached_mib: int
    drop_interval_s: float
    loading_stop_mib: int
    stop_free_mib: int
    stop_after_s: float
    floor_mib: int
    growth_mib_s: int
    least_growth_mib_s: int
    interval_s: float


class Memory(NamedTuple):
    """From /proc/meminfo, in MiB. cached: the page cache without Shmem, which no drop frees."""

    free: int
    available: int
    cached: int

    def text(self) -> str:
        return f"MemFree {self.free}, MemAvailable {self.available}, page cache {self.cached} MiB"


class Sample(NamedTuple):
    """One look. at: monotonic seconds. run: identity of the engine's run on this node, empty when none. told: a neighbour's stop."""

    at: float
    memory: Memory
    run: str
    ready: bool = False
    dropping: bool = False
    told: str = ""


class Action(NamedTuple):
    """kind: DROP or STOP. tell: whether the neighbours are to be told."""

    kind: str
    why: str
    tell: bool = False


class State(NamedTuple):
    """run: None before the first sample. low_since: since when too little is left. last_drop: when a drop was last asked for.

    trail: the samples of the last WINDOW_S and the one before them.
    """

    phase: str = IDLE
    run: str | None = None
    low_since: float | None = None
    last_drop: float | None = None
    trail: tuple[tuple[float, Memory], ...] = ()


def parse_meminfo(text: str) -> Memory:
    """Raises ValueError when a line is missing."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, _colon, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            values[name] = int(words[0])
    missing = [name for name in ("MemFree", "MemAvailable", "Cached") if name not in values]
    if missing:
        raise ValueError(f"no {', '.join(missing)} in it")
    cached = max(0, values["Cached"] - values.get("Shmem", 0))
    return Memory(values["MemFree"] // 1024, values["MemAvailable"] // 1024, cached // 1024)


def limits_from(values: Mapping[str, Any]) -> Limits:
    """Raises TypeError when a key is missing or unknown."""
    return Limits(**values)


def step(state: State, sample: Sample, limits: Limits) -> tuple[State, Action | None]:
    """The next state and at most one action."""
    after = _follow(state, sample, limits)
    if after.phase in (IDLE, STOPPED):
        return after, None
    began = state.run is not None and after.run != state.run
    if sample.told:
        return after._replace(phase=STOPPED), Action(STOP, sample.told)
    why = _runaway(after, sample, limits) or _exhausted(after, sample, limits)
    if why:
        return after._replace(phase=STOPPED), Action(STOP, why, tell=True)
    why = "" if sample.dropping or not limits.drops else _drop(after, sample, limits, began)
    if why:
        return after._replace(last_drop=sample.at), Action(DROP, why)
    return after, None


def pause(state: State, sample: Sample, limits: Limits) -> float:
    """Seconds until the next sample: short enough to see sudden growth at growth_mib_s several times before the floor."""
    if state.phase in (IDLE, STOPPED):
        return limits.interval_s
    left = _left(state.phase, sample.memory, limits) - limits.floor_mib
    return min(limits.interval_s, max(SHORTEST_S, left / limits.growth_mib_s / PACE))


def _follow(state: State, sample: Sample, limits: Limits) -> State:
    """The phase, from the engine's run and its readiness; what is known of an earlier phase does not count in the next."""
    if sample.run != state.run:
        phase = IDLE if not sample.run else SERVING if sample.ready else LOADING
        state = State(phase, sample.run)
    elif state.phase == LOADING and sample.ready:
        state = State(SERVING, sample.run, last_drop=state.last_drop)
    low_since = None
    if _left(state.phase, sample.memory, limits) < _least(state.phase, limits):
        low_since = sample.at if state.low_since is None else state.low_since
    return state._replace(low_since=low_since, trail=_trail(state.trail, sample))


def _trail(trail: tuple[tuple[float, Memory], ...], sample: Sample) -> tuple[tuple[float, Memory], ...]:
    older = [entry for entry in trail if sample.at - entry[0] >= WINDOW_S]
    newer = [entry for entry in trail if sample.at - entry[0] < WINDOW_S]
    return (*older[-1:], *newer, (sample.at, sample.memory))


def _reclaimable(memory: Memory) -> int:
    """What is free or can be freed. MemAvailable alone is less than MemFree where the watermarks are raised."""
    return max(memory.free, memory.available)


def _left(phase: str, memory: Memory, limits: Limits) -> int:
    """The measure of exhaustion. While loading the page cache fills all that is free, and gives way.

    While serving it is MemFree, since the driver's allocations do not wait for the cache; unless dropping it is not allowed.
    """
    return memory.free if phase == SERVING and limits.drops else _reclaimable(memory)


def _least(phase: str, limits: Limits) -> int:
    return limits.loading_stop_mib if phase == LOADING else limits.stop_free_mib


def _cache_gives_way(state: State, sample: Sample, limits: Limits) -> bool:
    """Whether the page cache still counts as room: a drop is at work, or one has yet to be tried."""
    if state.phase == LOADING or not limits.drops:
        return True
    asked = None if state.last_drop is None else sample.at - state.last_drop
    if sample.dropping:
        return asked is None or asked < limits.stop_after_s
    return sample.memory.cached > limits.serving_cached_mib and (asked is None or asked >= limits.drop_interval_s)


def _runaway(state: State, sample: Sample, limits: Limits) -> str:
    """Why the group is stopped at once: what is left is gone before the guard could act again.

    What counts as growth is what neither stays free nor becomes page cache: reading files takes MemFree too, and is no danger.
    """
    since, earlier = state.trail[0]
    elapsed = max(WINDOW_S, sample.at - since)
    memory = sample.memory
    left = _reclaimable(memory) if _cache_gives_way(state, sample, limits) else memory.free
    growth = (earlier.free + earlier.cached - memory.free - memory.cached) / elapsed
    if growth < limits.least_growth_mib_s or left - growth * REACTION_S >= limits.floor_mib:
        return ""
    when = "" if left < limits.floor_mib else f" within {(left - limits.floor_mib) / growth:.1f} s"
    return f"{left} MiB are left and {growth:.0f} MiB/s go, which passes the floor of {limits.floor_mib} MiB{when}"


def _long_low(state: State, sample: Sample, limits: Limits) -> bool:
    return state.low_since is not None and sample.at - state.low_since >= limits.stop_after_s


def _tried(state: State) -> bool:
    """Whether a drop was asked for since too little is left."""
    return state.low_since is not None and state.last_drop is not None and state.last_drop >= state.low_since


def _exhausted(state: State, sample: Sample, limits: Limits) -> str:
    """Why the group is stopped after a while: too little is left, and a drop has not helped."""
    if not _long_low(state, sample, limits):
        return ""
    left = _left(state.phase, sample.memory, limits)
    said = f"less than {_least(state.phase, limits)} MiB have been left for {limits.stop_after_s:g} s, now {left} MiB"
    if state.phase == LOADING or not limits.drops:
        return f"{said}, what the page cache can give included"
    if not _tried(state) or (sample.dropping and _cache_gives_way(state, sample, limits)):
        return ""  # a last drop comes first, or is at work
    return f"{said}, even after a last drop of the page cache"


def _drop(state: State, sample: Sample, limits: Limits, began: bool) -> str:
    """Why the page cache is dropped."""
    memory = sample.memory
    if began and limits.drop_at_start:
        return "the engine starts"
    if state.last_drop is not None and sample.at - state.last_drop < limits.drop_interval_s:
        return ""
    if state.phase == LOADING:
        return f"page cache above {limits.loading_cached_mib} MiB" if memory.cached > limits.loading_cached_mib else ""
    if memory.free < limits.serving_free_mib and memory.cached > limits.serving_cached_mib:
        return f"MemFree below {limits.serving_free_mib} MiB"
    return "a last try before the group is stopped" if _long_low(state, sample, limits) and not _tried(state) else ""
