# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cables in wrong ports: which plugs to exchange or to move. Pure."""

from __future__ import annotations

from itertools import combinations

from .cabling_picture import Cable, End, Picture
from .cabling_plan import CablePlan
from .cabling_words import Finding, both


def swapped(wrong: set[Cable], missing: set[Cable]) -> list[Finding]:
    """Two wrong cables that one exchange of plugs turns into two planned ones; both sets lose what is explained."""
    findings = []
    for first, second in combinations(sorted(wrong, key=sorted), 2):
        if first in wrong and second in wrong and (plugs := _exchange(first, second, missing)):
            wrong -= {first, second}
            missing -= _exchanged(first, second, plugs)
            findings.append(_swap_finding(first, second, plugs))
    return findings


def _exchange(first: Cable, second: Cable, missing: set[Cable]) -> tuple[End, End] | None:
    """The plugs to exchange: rather two in one node, then those in ports 1."""
    choices = [(one, two) for one in first for two in second if _exchanged(first, second, (one, two)) <= missing]
    return min(choices, key=_handiness, default=None)


def _handiness(plugs: tuple[End, End]) -> tuple[bool, int, tuple[End, ...]]:
    one, two = plugs
    return one.node != two.node, -(one.port + two.port), plugs


def _exchanged(first: Cable, second: Cable, plugs: tuple[End, End]) -> set[Cable]:
    one, two = plugs
    return {first - {one} | {two}, second - {two} | {one}}


def _swap_finding(first: Cable, second: Cable, plugs: tuple[End, End]) -> Finding:
    ends = tuple(sorted(plugs))
    wanted = sorted(map(_words, _exchanged(first, second, plugs)))
    cure = f"exchange the plugs in {both(ends)}"
    return Finding("swapped", ends, f"{_words(first)}, {_words(second)}", ", ".join(wanted), cure)


def _words(cable: Cable) -> str:
    one, two = sorted(cable)
    return f"{one} cabled to {two}"


def misplaced(seen: Picture, plan: CablePlan, wrong: set[Cable], missing: set[Cable]) -> list[Finding]:
    """The other wrong cables; missing loses those that moving a plug makes."""
    findings = []
    for cable in sorted(wrong, key=sorted):
        move = _move(seen, cable, missing)
        if move:
            missing.discard(cable - {move[0]} | {move[1]})
        findings.append(_misplaced(plan, cable, move))
    return findings


def _move(seen: Picture, cable: Cable, missing: set[Cable]) -> tuple[End, End] | None:
    """(plug, port to move it to): rather into a port with no cable, then of the same node."""
    moves = [
        (plug, goal)
        for plug in cable
        for kept in cable - {plug}
        for wanted in missing
        if kept in wanted
        for goal in wanted - {kept}
    ]
    return min(moves, key=lambda move: _reach(seen, *move), default=None)


def _reach(seen: Picture, plug: End, goal: End) -> tuple[bool, bool, int, End, End]:
    return bool(seen.neighbours(goal)), plug.node != goal.node, -plug.port, plug, goal


def _misplaced(plan: CablePlan, cable: Cable, move: tuple[End, End] | None) -> Finding:
    one, two = sorted(cable)
    found = f"{one} is cabled to {two}"
    if move is None:
        return Finding(
            "extra",
            (one, two),
            found,
            "no cable there",
            f"take it out: shape {plan.shape} has no use for it",
            "warning",
        )
    plug, goal = move
    kept = next(iter(cable - {plug}))
    cure = f"move the plug in {plug} to {goal}"
    if plan.shape != "ring" and plug.node == goal.node:
        cure += f", or set port: {plug.port} for {plug.node} in the topology file"
    kind = (
        "loop"
        if one.node == two.node
        else "same_port"
        if plan.shape == "ring" and one.port == two.port
        else "wrong_port"
    )
    return Finding(kind, (one, two), found, f"{both(sorted((kept, goal)))} cabled to each other", cure)
