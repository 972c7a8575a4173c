# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ranks of a group are doing, and when the own one has to end because of another: looks and words in, an action out; pure.

A copy runs on the nodes without Ansible, so this file imports the standard library only. All times but `wall` are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

ABSENT, STOPPED, STARTING, RUNNING, STOPPING, FAILED, UNKNOWN = (
    "absent",
    "stopped",
    "starting",
    "running",
    "stopping",
    "failed",
    "unknown",
)
STATES = (ABSENT, STOPPED, STARTING, RUNNING, STOPPING, FAILED)
ALIVE = (STARTING, RUNNING, STOPPING)

BY_HAND = "systemd was asked to stop it"
GRACE_S = 1.0  # until journal and guard have said whether an end was meant
LONE_S = 10.0  # until a rank that a boot began is a lone one: a neighbour that goes down for a boot of its own has stopped talking by then
SLACK_S = 1.0  # a stop that belongs to the runs before is not taken for one of this run
WHY_LIMIT = 200  # characters of a reason in a word
#: In a state for as long as nobody knows. A monotonic clock begins at boot, so 0 would be news of a node that has just booted.
LONG_AGO = -1e9


class Rank(NamedTuple):
    """A rank as it is known. run: systemd's identity of its present or last run. since: when it came into this state.

    heard: when that was last known. why: of a failure or a stop. by: who stopped it on purpose. incident: that it belongs to.
    waits: it does not run, and systemd is about to start it.
    """

    rank: int
    state: str = UNKNOWN
    run: str = ""
    since: float = 0.0
    heard: float = float("-inf")
    why: str = ""
    by: str = ""
    incident: str = ""
    waits: bool = False


class Look(NamedTuple):
    """One look at the engine's unit. main: whether its main process lives. began: when its present or last run did; ended: when
    its main process did. 0: not known. queued: systemd has a job for it, at a boot the start that waits for the network.
    """

    load: str = "not-found"
    active: str = "inactive"
    run: str = ""
    result: str = "success"
    status: int = 0
    main: bool = False
    began: float = 0.0
    ended: float = 0.0
    queued: bool = False


class Purpose(NamedTuple):
    """A stop or start that was meant. wall: Unix seconds."""

    want: str
    by: str
    why: str
    wall: float = 0.0
    incident: str = ""


class Action(NamedTuple):
    """The own rank is to end. incident: of the failure, empty for one that has none yet; deliberate: there is none."""

    why: str
    incident: str = ""
    deliberate: bool = False


def parse_intent(values: Mapping[str, Any]) -> Purpose | None:
    """What intent.json says; None when it says nothing of use."""
    want, wall = values.get("want"), values.get("at")
    if want not in (STOPPED, "started") or not isinstance(wall, (int, float)):
        return None
    return Purpose(
        str(want), str(values.get("by", "")), str(values.get("why", "")), float(wall), str(values.get("incident", ""))
    )


def purpose_of_end(
    intent: Purpose | None, guard: Mapping[str, Any], stop_job: bool, run: str, began_wall: float
) -> Purpose | None:
    """Who meant the end of this run; None when nobody did. guard: the memory guard's status. stop_job: systemd was asked to stop it."""
    if intent and intent.want == STOPPED and intent.wall >= began_wall:
        return intent
    if guard.get("phase") == STOPPED and run and guard.get("run") == run:
        return Purpose(STOPPED, "guard", "the memory guard stopped it")
    return Purpose(STOPPED, "systemctl", BY_HAND) if stop_job else None


def is_ordered(intent: Purpose | None) -> bool:
    """Whether a run that has just begun was meant: role and orders say so first. There is no intent since a boot."""
    return intent is not None and intent.want == "started"


def follow(before: Rank, look: Look, purpose: Purpose | None, ending_for: float, now: float) -> Rank:
    """The own rank after a look. purpose: of its end, or of what was asked since. ending_for: seconds since an end was first seen."""
    waits = look.queued and look.active in ("inactive", "failed")
    return _followed(before, look, purpose, ending_for, now)._replace(waits=waits)


def _followed(before: Rank, look: Look, purpose: Purpose | None, ending_for: float, now: float) -> Rank:
    if look.load == "not-found" and not look.run:
        return _moved(before, ABSENT, look, now)
    if look.active == "activating":
        return _moved(before, STARTING, look, now)
    if look.active in ("active", "reloading"):
        unseen = not look.main and before.state == RUNNING and before.run == look.run  # systemd has yet to see its end
        return before._replace(heard=now) if unseen else _moved(before, RUNNING, look, now)
    return _ended(before, look, purpose, ending_for, now)


def _ended(before: Rank, look: Look, purpose: Purpose | None, ending_for: float, now: float) -> Rank:
    """The unit is deactivating, inactive or failed."""
    over = look.active != "deactivating"
    if before.state == FAILED and before.run == look.run:
        return _purposely(before, STOPPED, look, purpose, now) if purpose else before._replace(heard=now)
    if before.state not in ALIVE and (before.run == look.run or not look.run):
        if purpose and before.state == STOPPED:  # ended with its group, and now it is meant to stay so
            return _purposely(before, STOPPED, look, purpose, now)
        return _moved(before, STOPPED, look, now)
    if not purpose and not over and look.main and look.result == "success":
        purpose = Purpose(STOPPED, "systemctl", BY_HAND)
    if purpose:
        return _purposely(before, STOPPED if over else STOPPING, look, purpose, now)
    if before.state == STOPPING or ending_for < GRACE_S:
        return before._replace(state=STOPPED if over and before.state == STOPPING else before.state, heard=now)
    why = f"its engine ended by itself: {look.result}, status {look.status}"
    return Rank(before.rank, FAILED, look.run, now, now, why)


def _moved(before: Rank, state: str, look: Look, now: float) -> Rank:
    """A state that needs no reason. A stop keeps its reason; a new run has none."""
    if state in ALIVE:
        return Rank(before.rank, state, look.run, look.began or now, now)
    if before.state == state:
        return before._replace(heard=now)
    if before.state == STOPPING:
        return before._replace(state=state, heard=now)
    # Stopped when it was first seen: how long ago is not known, so it is no news.
    return before._replace(state=state, run=look.run, since=LONG_AGO if before.state == UNKNOWN else now, heard=now)


def _purposely(before: Rank, state: str, look: Look, purpose: Purpose, now: float) -> Rank:
    since = before.since if before.state in (STOPPING, STOPPED) and before.run == look.run else now
    return Rank(before.rank, state, look.run, since, now, purpose.why[:WHY_LIMIT], purpose.by, purpose.incident)


def word(rank: Rank, now: float) -> dict[str, Any]:
    """What the others are told; since travels as an age, clocks are each node's own."""
    said: dict[str, Any] = {"state": rank.state, "run": rank.run, "age": round(max(0.0, now - rank.since), 2)}
    said |= {"waits": True} if rank.waits else {}
    return {**said, **{key: value for key in ("why", "by", "incident") if (value := getattr(rank, key)[:WHY_LIMIT])}}


def hear(rank: int, values: Mapping[str, Any], now: float) -> Rank | None:
    """A neighbour as its word tells; None when that makes no sense."""
    state, age = values.get("state"), values.get("age")
    if state not in STATES or not isinstance(age, (int, float)):
        return None
    texts = {key: str(values.get(key, ""))[:WHY_LIMIT] for key in ("run", "why", "by", "incident")}
    return Rank(rank=rank, state=state, since=now - age, heard=now, waits=values.get("waits") is True, **texts)


def silent(rank: Rank, now: float, silence_s: float) -> Rank:
    """A neighbour that has not been heard for long is unknown; what was last known of it stays in run and since."""
    if rank.state == UNKNOWN or now - rank.heard < silence_s:
        return rank
    return rank._replace(state=UNKNOWN, why=f"not heard for {now - rank.heard:.0f} s, last {rank.state}")


def decide(me: Rank, others: Mapping[str, Rank], ran_with: frozenset[str], ordered: bool = True) -> Action | None:
    """Whether the own rank has to end. ran_with: neighbours that ran at the same time as this run of it.

    ordered: the role or an order began this run, and goes on with the others. A boot begins the own rank alone.
    """
    if me.state not in (STARTING, RUNNING):
        return None
    lone = None if ordered else _lone(me, others)
    if lone:
        return lone
    for name, other in others.items():
        failed = other.state == FAILED and _heard_since(me, other) and (ordered or not _ended_before(me, other))
        if failed or (other.incident and _ended_since(me, other)):
            return Action(f"{name}: {other.why}" if other.state == FAILED else other.why, other.incident)
    for name, other in others.items():
        if other.state == UNKNOWN and name in ran_with:
            return Action(f"{name} was lost: {other.why}")
    for name, other in others.items():
        if _ended_since(me, other):
            return Action(f"{name} was stopped by {other.by or 'somebody'}: {other.why}", deliberate=True)
    return None


def _lone(me: Rank, others: Mapping[str, Rank]) -> Action | None:
    """A rank that a boot began beside one that had ended before and stays so would wait for it. When all nodes boot, all begin."""
    for name, other in others.items():
        if _ended_before(me, other) and not other.waits and other.heard >= me.since + LONE_S:
            why = f"{name} was {other.state} before this rank was started alone, as at a boot"
            return Action(f"{why}. To start the group: `gb10-ring-group start`, or site.yml", deliberate=True)
    return None


def _ended_before(me: Rank, other: Rank) -> bool:
    return other.state in (STOPPED, FAILED) and other.since <= me.since + SLACK_S


def _ended_since(me: Rank, other: Rank) -> bool:
    return other.state in (STOPPING, STOPPED) and other.since > me.since + SLACK_S


def _heard_since(me: Rank, other: Rank) -> bool:
    """What was last heard before this run began says nothing of it: the group may have been started without that node."""
    return other.heard >= me.since


def running_with(me: Rank, others: Mapping[str, Rank], before: frozenset[str]) -> frozenset[str]:
    """Neighbours that have been seen alive since the own rank runs."""
    if me.state not in (STARTING, RUNNING):
        return frozenset()
    alive = {name for name, other in others.items() if other.state in (STARTING, RUNNING) and _heard_since(me, other)}
    return before | alive
