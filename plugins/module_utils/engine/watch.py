# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the watchdog relaunches the group: probes in, actions out; pure, the clock is in the sample.

waiting  --first full pass-->  armed  --failed too often, or a rank died-->  stopping -> settling -> starting  --full pass-->  armed
Every deliberate stop leads back to waiting from anywhere. Too many relaunches lead to gave-up, which a person ends.

A copy runs on the nodes without Ansible, so this file imports the standard library only. All times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

WAITING, ARMED, STOPPING, SETTLING, STARTING, GAVE_UP = (
    "waiting",
    "armed",
    "stopping",
    "settling",
    "starting",
    "gave-up",
)
RELAUNCHING = (STOPPING, SETTLING, STARTING)
STOP, START, SAY, WARN = "stop", "start", "say", "warn"
DOING, FAILED = "doing", "failed"  # of an order


class Limits(NamedTuple):
    """What the role's variables set. failures: probes in a row that fail. relaunches: at most so many within window_s."""

    interval_s: float = 60.0
    health_timeout_s: float = 10.0
    probe_timeout_s: float = 45.0
    failures: int = 3
    busy_grace_s: float = 600.0
    settle_s: float = 60.0
    ready_timeout_s: float = 900.0
    relaunches: int = 3
    window_s: float = 21600.0


class Probe(NamedTuple):
    """One look at the API. health, answer: empty when right, else what was wrong. slow: the answer did not come in time.

    tokens: counted by the engine since its start; queued: requests it has; None where it does not tell.
    """

    health: str = ""
    answer: str = ""
    slow: bool = False
    tokens: float | None = None
    queued: float | None = None

    @property
    def passed(self) -> bool:
        return not self.health and not self.answer

    def text(self) -> str:
        return "; ".join(part for part in (self.health, self.answer) if part) or "health and answer are right"


class Sample(NamedTuple):
    """One look. run: identity of the head's run. hold: why nothing may be done, empty when it may.

    broken, incident: why the group ended by itself. lost: the supervisor says nothing. order: state of the watchdog's last order.
    missing: nodes that are not heard. probe: None when the API was not asked.
    """

    at: float
    run: str = ""
    hold: str = ""
    broken: str = ""
    incident: str = ""
    lost: str = ""
    order: str = ""
    order_text: str = ""
    missing: str = ""
    probe: Probe | None = None


class Action(NamedTuple):
    """kind: STOP or START the group, SAY or WARN a line."""

    kind: str
    text: str


class State(NamedTuple):
    """since: when the phase began. failed: probes in a row. busy_since: since when it is busy without a token.

    relaunches: when. handled: the last incident that was reacted to. why: of the phase. problem: last one of a probe.
    """

    phase: str = WAITING
    since: float = 0.0
    run: str = ""
    failed: int = 0
    busy_since: float | None = None
    tokens: float | None = None
    relaunches: tuple[float, ...] = ()
    handled: str = ""
    why: str = "no full pass yet"
    problem: str = ""


Step = tuple[State, tuple[Action, ...]]


def asks(state: State, sample: Sample) -> bool:
    """Whether the API is to be asked for this sample: not while it is stopped, or known to be down."""
    return state.phase not in (STOPPING, SETTLING) and not sample.hold and not sample.broken


def step(state: State, sample: Sample, limits: Limits) -> Step:
    """The next state and what is to be done."""
    if sample.hold:
        return _disarmed(state, sample)
    if sample.lost and state.phase != WAITING:
        return _lost(state, sample)
    if state.phase in (WAITING, GAVE_UP):
        return _waiting(state, sample)
    if state.phase == STOPPING:
        return _stopping(state, sample)
    steps = {ARMED: _armed, SETTLING: _settling, STARTING: _starting}
    return steps[state.phase](state, sample, limits)


def _disarmed(state: State, sample: Sample) -> Step:
    """A person or the role is at work: nothing is done, and what was counted is forgotten."""
    after = State(since=sample.at, why=sample.hold, handled=sample.incident or state.handled)
    if state.phase == WAITING:
        return after._replace(since=state.since), ()
    return after, (Action(SAY, f"disarmed: {sample.hold}"),)


def _lost(state: State, sample: Sample) -> Step:
    """Without the supervisor nothing can be done; said once."""
    if state.problem == sample.lost:
        return state, ()
    return state._replace(problem=sample.lost), (Action(WARN, f"cannot watch: {sample.lost}"),)


def _waiting(state: State, sample: Sample) -> Step:
    probe = sample.probe
    if probe is None or not probe.passed or sample.broken:
        return _noted(state, probe)._replace(handled=sample.incident or state.handled), ()
    if state.phase == GAVE_UP and sample.run == state.run:
        return _noted(
            state, probe
        ), ()  # the group that it gave up; whoever starts another one is the person it waits for
    after = State(ARMED, sample.at, sample.run, tokens=probe.tokens, handled=state.handled, why="a full pass")
    return after, (Action(SAY, "armed: the group serves"),)


def _armed(state: State, sample: Sample, limits: Limits) -> Step:
    if sample.broken:
        return _broken(state, sample, limits)
    if sample.run != state.run:
        why = (
            "the group was started anew by somebody else"
            if sample.run
            else "the head does not run, and nobody says why"
        )
        after = State(since=sample.at, handled=state.handled, why=why)
        return after, (Action(SAY, f"disarmed: {after.why}"),)
    probe = sample.probe
    if probe is None:
        return state, ()
    if probe.passed:
        return _noted(state, probe)._replace(failed=0, busy_since=None, tokens=probe.tokens), ()
    return _failing(state, sample, probe, limits)


def _broken(state: State, sample: Sample, limits: Limits) -> Step:
    """The group ended by itself."""
    if sample.incident and sample.incident == state.handled:
        return state, ()
    return _absent(state, sample) if sample.missing else _relaunch(state, sample, limits, sample.broken)


def _absent(state: State, sample: Sample) -> Step:
    """A node that is off, or boots, cannot be started on: what it costs is time, not a relaunch. Said once."""
    problem = f"{sample.broken}; it is relaunched when {sample.missing} is heard again"
    if state.problem == problem:
        return state, ()
    return state._replace(problem=problem), (Action(WARN, problem),)


def _failing(state: State, sample: Sample, probe: Probe, limits: Limits) -> Step:
    seen = state._replace(problem=probe.text(), tokens=probe.tokens)
    if probe.slow and _goes_on(state, probe):
        return seen._replace(failed=0, busy_since=None), ()
    if probe.slow and not probe.health and probe.queued != 0:
        since = sample.at if state.busy_since is None else state.busy_since
        if sample.at - since < limits.busy_grace_s:
            return seen._replace(busy_since=since), ()
        return _relaunch(seen, sample, limits, f"busy for {sample.at - since:.0f} s without a token; {probe.text()}")
    seen = seen._replace(failed=state.failed + 1)
    if seen.failed < limits.failures:
        return seen, (Action(WARN, f"failure {seen.failed} of {limits.failures}: {probe.text()}"),)
    return _relaunch(seen, sample, limits, f"failed {seen.failed} times: {probe.text()}")


def _goes_on(state: State, probe: Probe) -> bool:
    """Whether it has worked on tokens since the last look: slow, but alive."""
    return probe.tokens is not None and state.tokens is not None and probe.tokens > state.tokens


def recent(state: State, now: float, limits: Limits) -> tuple[float, ...]:
    """The relaunches that still count."""
    return tuple(at for at in state.relaunches if now - at < limits.window_s)


def _relaunch(state: State, sample: Sample, limits: Limits, why: str) -> Step:
    counted = recent(state, sample.at, limits)
    handled = sample.incident or state.handled
    if len(counted) >= limits.relaunches:
        after = state._replace(phase=GAVE_UP, since=sample.at, relaunches=counted, handled=handled, why=why)
        text = f"gave up after {len(counted)} relaunches within {limits.window_s:g} s, waiting for a person: {why}"
        return after, (Action(WARN, text),)
    after = State(STOPPING, sample.at, state.run, relaunches=(*counted, sample.at), handled=handled, why=why)
    text = f"relaunch {len(after.relaunches)} of {limits.relaunches}: {why}"
    return after, (Action(WARN, text), Action(STOP, why))


def _stopping(state: State, sample: Sample) -> Step:
    if sample.order in (DOING, ""):
        return state, ()
    if sample.order == FAILED and sample.missing:
        after = state._replace(phase=ARMED, since=sample.at, relaunches=state.relaunches[:-1], handled="")
        return after, (Action(WARN, f"not relaunched yet: {sample.order_text}"),)
    if sample.order == FAILED:
        after = state._replace(phase=GAVE_UP, since=sample.at, why=f"cannot stop the group: {sample.order_text}")
        return after, (Action(WARN, f"gave up, waiting for a person: {after.why}. A node may have to be rebooted"),)
    return state._replace(phase=SETTLING, since=sample.at), ()


def _settling(state: State, sample: Sample, limits: Limits) -> Step:
    """The memory of what ended comes back after a while; a start into that fails."""
    if sample.at - state.since < limits.settle_s:
        return state, ()
    return state._replace(phase=STARTING, since=sample.at, run=""), (Action(START, state.why),)


def _starting(state: State, sample: Sample, limits: Limits) -> Step:
    if sample.order in (DOING, ""):
        return state, ()
    if sample.order == FAILED:
        return _relaunch(state, sample, limits, f"the relaunch failed: {sample.order_text}")
    if sample.broken and sample.incident != state.handled:
        return _relaunch(state, sample, limits, f"the relaunch failed: {sample.broken}")
    took = sample.at - state.since
    if sample.probe and sample.probe.passed:
        after = state._replace(phase=ARMED, since=sample.at, run=sample.run, tokens=sample.probe.tokens)
        return after, (Action(SAY, f"armed again: the group serves {took:.0f} s after its start"),)
    if took > limits.ready_timeout_s:
        said = sample.probe.text() if sample.probe else "not asked"
        return _relaunch(state, sample, limits, f"the relaunch does not serve within {took:.0f} s: {said}")
    return _noted(state, sample.probe), ()


def _noted(state: State, probe: Probe | None) -> State:
    """With what the probe found; a sample without one tells nothing new."""
    return state if probe is None else state._replace(problem="" if probe.passed else probe.text())


def pause(state: State, limits: Limits) -> float:
    """Seconds until the API is asked again. What is waited for step by step is looked at more often."""
    if state.phase in RELAUNCHING or (state.phase == ARMED and state.failed):
        return min(limits.interval_s, 5.0)
    return limits.interval_s


def state_from(values: Mapping[str, Any]) -> State:
    """A state as it was written before; a new one when it makes no sense."""
    try:
        found = State(**{**values, "relaunches": tuple(float(at) for at in values.get("relaunches", ()))})
    except (TypeError, ValueError):
        return State()
    return found if found.phase in (WAITING, ARMED, *RELAUNCHING, GAVE_UP) else State()


def limits_from(values: Mapping[str, Any]) -> Limits:
    """Raises TypeError when a key is missing or unknown, ValueError for what no watchdog can work with."""
    limits = Limits(**values)
    low = [name for name in Limits._fields if name != "settle_s" and getattr(limits, name) <= 0]
    if low:
        raise ValueError(f"{', '.join(low)}: expected more than 0")
    return limits
