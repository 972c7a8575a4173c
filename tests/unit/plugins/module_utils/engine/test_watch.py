# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog's decisions, as stories of samples."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import watch
from ansible_collections.gb10.ring.plugins.module_utils.engine.watch import Action, Limits, Probe, Sample, State

LIMITS = Limits(
    interval_s=60, failures=3, busy_grace_s=600, settle_s=60, ready_timeout_s=900, relaunches=2, window_s=7200
)
PASS = Probe(tokens=100.0, queued=0.0)
WEDGED = Probe("/health: no answer within 10 s", "a completion: no answer within 45 s", slow=True)
BUSY = Probe("", "a completion: no answer within 45 s", slow=True, tokens=100.0, queued=4.0)
REFUSED = Probe("/health: Connection refused", "a completion: Connection refused")
ARMED = State(watch.ARMED, 0.0, "r1", tokens=100.0, why="a full pass")


def tell(state, samples, limits=LIMITS):
    """The state at the end, and what was done, as (time, kind, text)."""
    done = []
    for sample in samples:
        state, actions = watch.step(state, sample, limits)
        done += [(sample.at, *action) for action in actions]
    return state, done


def kinds(done):
    return [(at, kind) for at, kind, _text in done]


def at(seconds, probe=None, run="r1", **more):
    return Sample(seconds, run, probe=probe, **more)


def test_it_arms_with_the_first_full_pass_and_not_before():
    state, done = tell(State(), [at(0, REFUSED), at(60, WEDGED), at(120, BUSY), at(180)])
    assert (state.phase, done) == (watch.WAITING, [])
    assert state.problem == BUSY.text()
    state, done = tell(state, [at(240, PASS)])
    assert (state.phase, state.run, state.problem) == (watch.ARMED, "r1", "")
    assert done == [(240, watch.SAY, "armed: the group serves")]


def test_a_group_that_never_served_is_not_relaunched():
    state, done = tell(State(), [at(second, REFUSED, broken="spark2: it ended", incident="i1") for second in range(99)])
    assert (state.phase, state.handled, done) == (watch.WAITING, "i1", [])


@pytest.mark.parametrize(
    "probe", [WEDGED, REFUSED, Probe("/health: status 503", ""), Probe("", "a completion: status 500")]
)
def test_failures_in_a_row_relaunch(probe):
    state, done = tell(ARMED, [at(60, probe), at(65, probe)])
    assert (state.phase, state.failed) == (watch.ARMED, 2)
    assert kinds(done) == [(60, watch.WARN), (65, watch.WARN)]
    assert "failure 2 of 3" in done[-1][2]
    state, done = tell(state, [at(70, probe)])
    assert (state.phase, state.relaunches) == (watch.STOPPING, (70,))
    assert kinds(done) == [(70, watch.WARN), (70, watch.STOP)]
    assert done[0][2].startswith("relaunch 1 of 2: failed 3 times: ")


def test_a_pass_in_between_counts_from_the_start():
    state, _done = tell(ARMED, [at(60, WEDGED), at(65, WEDGED), at(70, PASS), at(130, WEDGED), at(135, WEDGED)])
    assert (state.phase, state.failed) == (watch.ARMED, 2)


def test_busy_with_progress_is_never_relaunched():
    working = [
        at(60 * n, BUSY._replace(tokens=100.0 + n, health=WEDGED.health if n % 2 else "")) for n in range(1, 500)
    ]
    state, done = tell(ARMED, working)
    assert (state.phase, state.failed, done) == (watch.ARMED, 0, [])


def test_busy_without_progress_has_a_grace():
    stuck = [at(60 * n, BUSY) for n in range(1, 11)]
    state, done = tell(ARMED, stuck)
    assert (state.phase, state.busy_since, done) == (watch.ARMED, 60, [])
    state, done = tell(state, [at(660, BUSY)])
    assert state.phase == watch.STOPPING
    assert "busy for 600 s without a token" in done[0][2]


def test_one_token_begins_the_grace_anew():
    samples = [at(60, BUSY), at(600, BUSY._replace(tokens=101.0)), at(660, BUSY._replace(tokens=101.0)), at(720, BUSY)]
    state, done = tell(ARMED, samples)
    assert (state.phase, state.busy_since, done) == (watch.ARMED, 660, [])


@pytest.mark.parametrize(("queued", "counts"), [(0.0, 1), (None, 0), (1.0, 0)])
def test_a_late_answer_of_an_idle_engine_is_a_failure(queued, counts):
    state, _done = tell(ARMED, [at(60, BUSY._replace(queued=queued))])
    assert state.failed == counts


def test_a_dead_rank_relaunches_at_once():
    state, done = tell(ARMED, [at(10, broken="spark2: its engine ended by itself", incident="i1")])
    assert (state.phase, state.handled) == (watch.STOPPING, "i1")
    assert kinds(done) == [(10, watch.WARN), (10, watch.STOP)]


def test_a_node_that_is_off_is_waited_for():
    lost = {"broken": "spark2 was lost", "incident": "i1"}
    state, done = tell(ARMED, [at(second, missing="spark2", run="", **lost) for second in range(10, 900, 2)])
    text = "spark2 was lost; it is relaunched when spark2 is heard again"
    assert (state.phase, done) == (watch.ARMED, [(10, watch.WARN, text)])
    state, done = tell(state, [at(900, run="", **lost)])
    assert (state.phase, state.relaunches) == (watch.STOPPING, (900,))


def test_a_node_that_goes_off_during_the_stop_costs_no_relaunch():
    lost = {"broken": "spark2 was lost", "incident": "i1", "missing": "spark2"}
    failed = at(110, order="failed", order_text="not stopped within 60 s: spark2 is unknown", **lost)
    state, done = tell(relaunching(watch.STOPPING), [failed, at(112, order="failed", **lost)])
    assert (state.phase, state.relaunches) == (watch.ARMED, ())
    assert [kind for _at, kind, _text in done] == [watch.WARN, watch.WARN]
    state, done = tell(state, [at(300, order="failed", **{**lost, "missing": ""})])
    assert state.phase == watch.STOPPING


def test_the_whole_relaunch():
    samples = [
        at(70, WEDGED),
        at(71, WEDGED),
        at(72, WEDGED),
        at(74, order="doing"),
        at(76, broken="stopped", incident="i1", order="doing"),
        at(80, broken="stopped", incident="i1", order="done"),
        at(100, broken="stopped", incident="i1", order="done"),
        at(140, broken="stopped", incident="i1", order="done"),
        at(142, run="", broken="stopped", incident="i1", order="doing"),
        at(150, REFUSED, run="r2", order="done"),
        at(290, PASS, run="r2", order="done"),
        at(350, PASS, run="r2", order="done"),
    ]
    state, done = tell(ARMED._replace(handled="i1"), samples)
    assert (state.phase, state.run, state.relaunches) == (watch.ARMED, "r2", (72,))
    assert kinds(done)[2:] == [(72, watch.WARN), (72, watch.STOP), (140, watch.START), (290, watch.SAY)]
    assert done[-1][2] == "armed again: the group serves 150 s after its start"


def relaunching(phase=watch.STARTING, since=100.0, relaunches=(100.0,), handled="i1"):
    return State(phase, since, "", relaunches=relaunches, handled=handled, why="failed 3 times")


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        (at(110, order="failed", order_text="spark3 is failed"), "the relaunch failed: spark3 is failed"),
        (at(110, order="done", broken="spark3: ended", incident="i2"), "the relaunch failed: spark3: ended"),
        (at(1001, REFUSED, order="done"), "the relaunch does not serve within 901 s: " + REFUSED.text()),
    ],
)
def test_a_relaunch_that_fails_is_tried_again_and_then_given_up(sample, text):
    state, done = tell(relaunching(), [sample])
    assert state.phase == watch.STOPPING
    assert done[0][2] == f"relaunch 2 of 2: {text}"
    state, done = tell(relaunching(relaunches=(90.0, 100.0)), [sample])
    assert state.phase == watch.GAVE_UP
    assert kinds(done) == [(sample.at, watch.WARN)]
    assert done[0][2] == f"gave up after 2 relaunches within 7200 s, waiting for a person: {text}"


def test_what_was_handled_is_not_taken_for_a_failure_of_the_relaunch():
    state, done = tell(relaunching(), [at(110, broken="old", incident="i1", order="done")])
    assert (state.phase, done) == (watch.STARTING, [])


def test_relaunches_outside_the_window_do_not_count():
    old = ARMED._replace(relaunches=(0.0, 10.0), failed=2)
    state, _done = tell(old, [at(8000, WEDGED)])
    assert (state.phase, state.relaunches) == (watch.STOPPING, (8000,))


def test_a_stop_that_fails_needs_a_person():
    state, done = tell(relaunching(watch.STOPPING), [at(110, order="failed", order_text="spark2 is stopping")])
    assert state.phase == watch.GAVE_UP
    assert "cannot stop the group: spark2 is stopping" in done[0][2]


def test_after_giving_up_nothing_is_done_until_another_run_serves():
    gave_up = State(watch.GAVE_UP, 0.0, "r1", relaunches=(1.0, 2.0))
    state, done = tell(gave_up, [at(60, WEDGED), at(70, broken="x", incident="i9"), at(80, PASS)])
    assert (state.phase, done) == (watch.GAVE_UP, [])
    state, done = tell(state, [at(90, PASS, run="r2")])
    assert (state.phase, state.relaunches) == (watch.ARMED, ())


@pytest.mark.parametrize(
    "state",
    [
        ARMED._replace(failed=2, relaunches=(1.0,)),
        relaunching(watch.STOPPING),
        relaunching(watch.SETTLING),
        relaunching(watch.STARTING),
        State(watch.GAVE_UP, 0.0, "r1", relaunches=(1.0, 2.0)),
    ],
    ids=lambda state: state.phase,
)
def test_a_deliberate_stop_disarms_from_anywhere_and_is_said_once(state):
    held = "stopped by role: restart asked for"
    after, done = tell(state, [at(500, hold=held), at(502, hold=held, order="done"), at(600, hold=held)])
    assert done == [(500, watch.SAY, f"disarmed: {held}")]
    assert (after.phase, after.why, after.relaunches, after.failed, after.since) == (watch.WAITING, held, (), 0, 500)


def test_a_run_that_somebody_else_started_disarms():
    state, done = tell(ARMED, [at(60, PASS, run="r7"), at(120, PASS, run="r7")])
    assert [text for _at, _kind, text in done] == [
        "disarmed: the group was started anew by somebody else",
        "armed: the group serves",
    ]
    assert state.run == "r7"


def test_a_head_that_is_gone_without_a_word_disarms():
    state, done = tell(ARMED, [at(60, run="")])
    assert (state.phase, done) == (
        watch.WAITING,
        [(60, watch.SAY, "disarmed: the head does not run, and nobody says why")],
    )


def test_without_the_supervisor_it_says_so_once_and_does_nothing():
    lost = "the supervisor has no status"
    state, done = tell(ARMED, [at(60, WEDGED, lost=lost), at(65, WEDGED, lost=lost), at(70, WEDGED, lost=lost)])
    assert done == [(60, watch.WARN, f"cannot watch: {lost}")]
    assert state.phase == watch.ARMED


@pytest.mark.parametrize(
    ("state", "sample", "asked"),
    [
        (State(), at(0), True),
        (ARMED, at(0), True),
        (ARMED, at(0, hold="x"), False),
        (ARMED, at(0, broken="x"), False),
        (relaunching(watch.STOPPING), at(0), False),
        (relaunching(watch.SETTLING), at(0), False),
        (relaunching(), at(0), True),
    ],
)
def test_when_the_api_is_asked(state, sample, asked):
    assert watch.asks(state, sample) is asked


@pytest.mark.parametrize(
    ("state", "seconds"), [(State(), 60), (ARMED, 60), (ARMED._replace(failed=1), 5), (relaunching(), 5)]
)
def test_the_pace(state, seconds):
    assert watch.pause(state, LIMITS) == seconds


def test_a_state_survives_its_file():
    state = relaunching()
    assert watch.state_from({**state._asdict(), "relaunches": [100]}) == state
    for wrong in ({}, {"phase": "other"}, {"colour": 1}, {"relaunches": ["x"]}):
        assert watch.state_from(wrong) == State()


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({"interval_s": 0, "relaunches": -1}, ValueError, "interval_s, relaunches: expected more than 0"),
        ({"x": 1}, TypeError, "x"),
    ],
)
def test_limits_that_make_no_sense(values, error, said):
    with pytest.raises(error, match=said):
        watch.limits_from(values)


def test_limits_without_a_wait_for_memory():
    assert watch.limits_from({"settle_s": 0}).settle_s == 0


def test_actions_are_plain():
    assert Action(watch.STOP, "x") == ("stop", "x")
