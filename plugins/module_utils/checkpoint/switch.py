# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switch of a group from one revision to another in two phases: what a node records of it, and what each phase does.

The record says where a node came from and where it is going; the link ``current`` says how far it is. Each is replaced in one
rename, so a node that stops at any point knows what it was at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ..plan import Change, Plan
from ..report.checks import Check

#: now: without the group. prepare, commit, finish: the way forward. revert: back to where the group was.
Phase = Literal["now", "prepare", "commit", "finish", "revert"]
PHASES: tuple[Phase, ...] = ("now", "prepare", "commit", "finish", "revert")


class SwitchError(ValueError):
    """A record that cannot be read, or a phase that does not follow; its text is the message for the user."""


@dataclass(frozen=True)
class Record:
    """active: the revision that the group serves or goes back to. previous: the one before it. target: the one that it goes to.

    Without a target the switch is over. downtime_s: what the last finished switch cost. left: what was active here before a switch
    that has no way back: it is nothing to go back to, and nothing to be deleted either.
    """

    active: str = ""
    previous: str = ""
    target: str = ""
    downtime_s: float | None = None
    left: str = ""

    @property
    def open(self) -> bool:
        return bool(self.target)


def parse(text: str | None, where: str) -> Record:
    """The record in this text, an empty one when there is none. Raises SwitchError."""
    if not text:
        return Record()
    try:
        data = json.loads(text)
        seconds = data.get("downtime_s")
        return Record(
            str(data["active"]),
            str(data["previous"]),
            str(data["target"]),
            None if seconds is None else float(seconds),
            str(data.get("left") or ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SwitchError(
            f"{where} is not a record of gb10.ring ({type(error).__name__}: {error}); move it away: the link current stands, "
            "only the name of the revision before it is lost"
        ) from error


def render(record: Record) -> str:
    return json.dumps(asdict(record)) + "\n"


@dataclass(frozen=True)
class Step:
    """What a phase leaves: the record, and the revision that the link names (empty: no link)."""

    record: Record
    link: str


def step(phase: Phase, record: Record, current: str, revision: str, origin: str | None = None) -> Step:
    """What the phase makes of record and link. origin: where the group as a whole comes from; None: this node's own account.

    Raises SwitchError when the phase does not follow from what there is.
    """
    came_from = origin if origin is not None else _origin(record, current)
    if phase == "now":
        return Step(_settled(record, came_from or record.left, revision), revision)
    if phase == "prepare":
        left = "" if came_from else _origin(record, current) or record.left
        return Step(Record(came_from, record.previous, revision, record.downtime_s, left), current)
    if phase == "revert":
        return Step(_taken_back(record, current), record.active or current) if record.open else Step(record, current)
    if phase == "commit" and record.target != revision:
        raise SwitchError(
            f"revision {revision} was not prepared here ({state_text(record, current)}); run restage.yml or rollback.yml again"
        )
    if phase == "finish" and current != revision:
        raise SwitchError(
            f"current is {current or 'absent'}, not {revision}: it was not committed here; run the same playbook again"
        )
    if phase == "commit":
        return Step(record, revision)
    return Step(_settled(record, record.active or record.left, revision), revision)


def _origin(record: Record, current: str) -> str:
    return record.active if record.open else current


def _taken_back(record: Record, current: str) -> Record:
    """The switch is given up. Where there was nothing to go back to, the link stays: it could name nothing better."""
    stays = not record.active and bool(record.left) and current == record.target
    return Record(record.active, record.left if stays else record.previous, "", record.downtime_s)


def _settled(record: Record, origin: str, revision: str) -> Record:
    """The switch to this revision is over. A switch from a revision to itself leaves what was before it."""
    return Record(revision, origin if origin and origin != revision else record.previous, "", record.downtime_s)


def plan_of(step: Step, record: Record, current: str, link: str, where: str) -> Plan:
    """link, where: paths of the link and of the record."""
    changes = []
    if step.link != current:
        changes.append(Change(link, _target(current), _target(step.link), "the revision that the engine opens"))
    if step.record != record:
        changes.append(Change(where, _shown(record), render(step.record), "where this node is in a switch"))
    return Plan(tuple(changes))


def _target(revision: str) -> str:
    return f"revisions/{revision}" if revision else ""


def _shown(record: Record) -> str:
    return render(record) if record != Record() else ""


def state_text(record: Record, current: str) -> str:
    """For a person: where this node is."""
    here = f"revision {current}" if current else "no revision"
    if not record.open:
        before = f", {record.previous} before it" if record.previous else ""
        return f"{here} is active{before}"
    origin = record.active or "none"
    if current == record.target:
        return f"switched from {origin} to {record.target}, not accepted yet"
    return f"{here} is active, the switch from {origin} to {record.target} is prepared"


def check(node: str, record: Record, current: str, problem: str = "") -> Check:
    """Whether this node is in the middle of a switch."""
    astray = not record.open and bool(record.active) and record.active != current
    found = problem or state_text(record, current)
    if astray:
        found += f", but the last switch ended with {record.active}"
    return Check(
        id="checkpoint.switch",
        node=node,
        ok=not (problem or record.open or astray),
        found=found,
        expected="no switch under way",
        cure="run restage.yml, which finishes it on all nodes, or rollback.yml, which takes all nodes back",
    )


# --- the group ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """Where a node stands. complete: revisions that are there whole. serves: the revision its engine's unit names.

    healthy: whether its part of the group serves; None when nobody looked. unfit: why revisions that are there whole cannot be
    served with the Engram rows of this node. damaged: which files of others are not as they were verified.
    """

    node: str
    current: str = ""
    record: Record = field(default_factory=Record)
    complete: frozenset[str] = frozenset()
    serves: str = ""
    healthy: bool | None = None
    unfit: Mapping[str, str] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, node: str, data: Mapping[str, Any]) -> Standing:
        return cls(
            node=node,
            current=str(data.get("current") or ""),
            record=Record(**dict(data.get("record") or {})),
            complete=frozenset(str(name) for name in data.get("complete") or ()),
            unfit=_texts(data.get("unfit")),
            damaged=_texts(data.get("damaged")),
            serves=str(data.get("serves") or ""),
        )


def _texts(found: Mapping[str, Any] | None) -> dict[str, str]:
    return {str(name): str(why) for name, why in (found or {}).items()}


def origin_of(standings: tuple[Standing, ...]) -> str:
    """The revision that the whole group can go back to, or an empty text.

    Records of a switch that is under way say it. Otherwise it is what all engines serve, for a link can be moved without them;
    then what is active, on most nodes when they differ.
    """
    whole = [frozenset(standing.complete) for standing in standings]
    everywhere = frozenset.intersection(*whole) if whole else frozenset()
    named = [standing.record.active for standing in standings if standing.record.open]
    served = {standing.serves for standing in standings}
    if not named and len(served) == 1 and served <= everywhere:
        return served.pop()
    named = named or [standing.current for standing in standings]
    able = [name for name in named if name in everywhere]
    return max(sorted(set(able)), key=able.count) if able else ""


def lost_way_back(standings: tuple[Standing, ...], wanted: str) -> dict[str, str]:
    """Why the revision that is active on all nodes is nothing to go back to, by node, where nodes have it and it has gone wrong.

    One that was given up on purpose has left no account of itself, and nodes with different revisions never had one in common.
    """
    active = {standing.current for standing in standings}
    if len(active) != 1 or active <= {"", wanted} or origin_of(standings):
        return {}
    name = active.pop()
    found = {one.node: one.damaged.get(name) or one.unfit.get(name, "") for one in standings}
    return {node: f"revision {name}: {why}" for node, why in found.items() if why}


def needs_switch(standings: tuple[Standing, ...], wanted: str) -> list[str]:
    """Why the group has to switch to this revision, one text a node; none when all nodes serve it."""
    reasons = []
    for standing in standings:
        if standing.record.open:
            reasons.append(f"{standing.node}: {state_text(standing.record, standing.current)}")
        elif standing.current != wanted:
            reasons.append(f"{standing.node}: revision {standing.current or 'none'} is active")
        elif standing.healthy is False:
            reasons.append(f"{standing.node}: its engine does not serve as its unit says")
        elif standing.healthy is not None and standing.serves != wanted:
            reasons.append(f"{standing.node}: the engine serves revision {standing.serves or 'none'}")
    return reasons


def target_of_rollback(standings: tuple[Standing, ...], named: str) -> tuple[str, str]:
    """The revision to go back to, and why there is none. named: what the user asks for, empty for the one before."""
    wanted = named or _before(standings)
    if not wanted:
        states = "; ".join(f"{one.node}: {state_text(one.record, one.current)}" for one in standings)
        return (
            "",
            f"no revision is recorded as the one before, or nodes differ ({states}); name one with checkpoint_rollback_revision",
        )
    lacking = [standing.node for standing in standings if wanted not in standing.complete]
    if not lacking:
        return wanted, ""
    unfit = [f"{standing.node}: {standing.unfit[wanted]}" for standing in standings if wanted in standing.unfit]
    if unfit:
        return "", f"revision {wanted} cannot be served by this group: {'; '.join(unfit)}"
    whole = [standing.complete for standing in standings]
    have = sorted(frozenset.intersection(*whole)) if whole else []
    return "", (
        f"revision {wanted} is not there whole on {', '.join(lacking)}; on all nodes there are {', '.join(have) or 'none'}. "
        "Stage it again with restage.yml from a prefix that holds it, or name another with checkpoint_rollback_revision"
    )


def _before(standings: tuple[Standing, ...]) -> str:
    """Amid a switch that is the revision which the group comes from, otherwise the one before the active one."""
    if any(standing.record.open for standing in standings):
        return origin_of(standings)
    names = {standing.record.previous for standing in standings}
    return names.pop() if len(names) == 1 else ""
