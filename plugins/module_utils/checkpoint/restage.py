# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What re-staging or rolling back comes to for the whole group: the table, the refusals, the order. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..report.checks import Check, errors, line
from . import units
from .switch import Standing, lost_way_back, needs_switch, origin_of, target_of_rollback


@dataclass(frozen=True)
class Node:
    """What one node said. budget: its arithmetic in bytes. in_place: how the old revision is replaced, empty when it stays.

    frees: bytes that pruning gives back afterwards. unrecorded: whether something is to be done though no file comes.
    rows: bytes of Engram rows to bring. row_files: files with rows to bring or change, row_paths: their names. shares: directory of
    rows that all revisions share, where they lie in one; held: whether rows are recorded there. served: checks that rows which a running
    engine reads would change. manifests: directory of the manifests that are kept.
    """

    standing: Standing
    summary: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, int] = field(default_factory=dict)
    in_place: Mapping[str, Any] = field(default_factory=dict)
    frees: int = 0
    unrecorded: bool = False
    rows: int = 0
    row_files: int = 0
    row_paths: tuple[str, ...] = ()
    shares: str = ""
    held: bool = True
    served: Sequence[Mapping[str, Any]] = ()
    manifests: str = "manifests"
    checks: Sequence[Mapping[str, Any]] = ()

    @property
    def name(self) -> str:
        return self.standing.node

    def bytes(self, *actions: str) -> int:
        return sum(int(self.summary.get(action, {}).get("bytes", 0)) for action in actions)

    @property
    def changes(self) -> bool:
        """Whether anything has to be brought onto the node."""
        kinds = ("fetch", "link", "staged")
        files = any(self.summary.get(kind, {}).get("files", 0) for kind in kinds)
        return files or self.unrecorded or bool(self.row_files)

    def gives_up_rows(self, revision: str) -> bool:
        """Whether rows that the engine reads become others: those of another revision, since both have one directory, or of another rank."""
        shared = self.shares_change and self.held and self.standing.current not in ("", revision)
        return shared or bool(self.served)

    @property
    def shares_change(self) -> bool:
        """Whether rows change that every revision would be served with, whatever was recorded of them: a run that was killed left no record."""
        return bool(self.shares and self.row_files)

    def given_up(self, revision: str) -> str:
        """Files that the old revision loses on the way to this one, by name, and where its manifest is kept."""
        active = self.standing.serves if self.served else self.standing.current
        parts, old = [], str(self.in_place.get("old") or active)
        if self.in_place:
            first = [f"revision {name} is deleted first" for name in self.in_place.get("dropped", ())]
            paths = list(self.in_place.get("files", ()))
            parts += [*first, f"{units.files(len(paths))} of revision {old} are replaced ({', '.join(paths)})"]
        if self.gives_up_rows(revision):
            names = f" ({', '.join(self.row_paths)})" if self.row_paths else ""
            where = self.shares or f"revisions/{revision}"
            parts.append(
                f"{units.files(self.row_files)} of Engram rows of revision {old} in {where} are replaced{names}"
            )
        return f"{', '.join(parts)}; the manifest is kept as {self.manifests}/{old}.json" if parts else ""

    @property
    def after(self) -> int:
        """Bytes in use when all is done."""
        if self.in_place:
            return int(self.in_place["after"])
        return int(self.budget.get("after", 0)) - self.frees


@dataclass(frozen=True)
class Decision:
    """revision: what all nodes shall serve. origin: what they go back to if it fails, empty when there is nothing.

    stage: whether bytes move or files are made. switch: whether the group has to change over. in_place: nodes that have to
    give up their old revision file by file, given_up: which files these are. lost: why the active revision is nothing to go back
    to, of each node where it is not whole. refusal: why nothing may be done.
    """

    revision: str
    origin: str = ""
    stage: bool = False
    switch: bool = False
    in_place: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    refusal: str = ""
    rows: tuple[Mapping[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "revision": self.revision,
            "origin": self.origin,
            "stage": self.stage,
            "switch": self.switch,
            "in_place": bool(self.in_place),
            "reasons": list(self.reasons),
        }

    def text(self) -> str:
        """What is going to happen, in a sentence or two."""
        if self.refusal:
            return self.refusal
        if not (self.stage or self.switch):
            return f"all nodes serve revision {self.revision}; nothing to do"
        parts = []
        if self.in_place:
            parts.append(
                f"the group is stopped, then {', '.join(self.in_place)} replace the old revision file by file: there is no way "
                "back to it but staging it again. " + ". ".join(self.given_up)
            )
        elif self.stage:
            parts.append(f"stage revision {self.revision} beside what is served")
        if self.switch and self.origin == self.revision and not self.stage:
            parts.append(f"start all nodes again with revision {self.revision}")
        elif self.switch:
            lost = f" ({'; '.join(self.lost)})" if self.lost else ""
            back = f"on failure back to {self.origin}" if self.origin else f"with nothing to go back to{lost}"
            parts.append(f"switch all nodes to {self.revision}, {back}")
        return "; ".join(parts)


def decide(nodes: Sequence[Node], revision: str, consent: bool = False) -> Decision:
    """Re-staging: what has to come onto the nodes, and whether the group switches. consent: to give up the old revision for it."""
    standings = tuple(node.standing for node in nodes)
    reasons = needs_switch(standings, revision)
    # What is stopped for its rows is to be started again, also where nothing else changes.
    reasons += [f"{node.name}: the Engram rows that its engine reads change" for node in nodes if node.served]
    rows = tuple(node for node in nodes if node.gives_up_rows(revision))
    in_place = tuple(node.name for node in nodes if node.in_place or node in rows)
    origin = "" if in_place else _way_back(nodes, revision)
    switch = bool(reasons)
    lost = _lost(nodes, revision)
    found = [check for node in nodes for check in node.checks]
    if not consent:
        found += [check for node in rows for check in _rows_checks(node)]
        found += [_lost_check(name, why).to_dict() for name, why in lost.items()]
    bad = errors(found)
    return Decision(
        revision=revision,
        origin=origin,
        stage=any(node.changes for node in nodes),
        switch=switch,
        in_place=in_place,
        given_up=_given_up(nodes, revision),
        lost=tuple(f"{name}: {why}" for name, why in lost.items()),
        reasons=tuple(reasons),
        refusal="\n".join(["nothing was changed:", *(f"- {line(check)}" for check in bad)]) if bad else "",
        rows=tuple(_row(node, _downtime(nodes) if switch else "none") for node in nodes),
    )


def _way_back(nodes: Sequence[Node], revision: str) -> str:
    """The revision to go back to. An older one would be started with the shared rows of this one, which its engine cannot tell from its own."""
    origin = origin_of(tuple(node.standing for node in nodes))
    return "" if origin != revision and any(node.shares_change for node in nodes) else origin


def _lost(nodes: Sequence[Node], revision: str) -> dict[str, str]:
    """Why the active revision is nothing to go back to, by node. Where rows of all revisions lie in one place, what changes these says it."""
    standings = [replace(node.standing, unfit={}) if node.shares else node.standing for node in nodes]
    return lost_way_back(tuple(standings), revision)


def _lost_check(name: str, why: str) -> Check:
    return Check(
        id="checkpoint.way_back",
        node=name,
        ok=False,
        found=f"{why}; it is active, and the group could not go back to it",
        expected="the active revision is whole until the group has accepted another one",
        cure="bring it in order first (restage.yml or site.yml from a prefix that holds it, which fetches those files alone), or set "
        "checkpoint_in_place to true: if the new revision is refused then, the group stays stopped",
    )


def _given_up(nodes: Sequence[Node], revision: str) -> tuple[str, ...]:
    """What is lost, once for all nodes on which it is the same."""
    losing: dict[str, list[str]] = {}
    for node in nodes:
        losing.setdefault(node.given_up(revision), []).append(node.name)
    return tuple(f"{', '.join(names)}: {text}" for text, names in losing.items() if text)


def _rows_checks(node: Node) -> Sequence[Mapping[str, Any]]:
    """Why rows of the node stay as they are without consent."""
    return node.served or (_rows_check(node).to_dict(),)


def _rows_check(node: Node) -> Check:
    return Check(
        id="checkpoint.engram_shared",
        node=node.name,
        ok=False,
        found=f"{units.files(node.row_files)} of Engram rows in {node.shares} would change under revision {node.standing.current}",
        expected="rows of the active revision stay until the group has accepted another one",
        cure="let each revision have its own rows (checkpoint_engram_placement: shard), or set checkpoint_in_place to true: the "
        "group is stopped first, and there is no way back but staging the old revision again",
    )


def roll_back(nodes: Sequence[Node], named: str) -> Decision:
    """Rolling back: to the named revision, or to the one before."""
    standings = tuple(node.standing for node in nodes)
    revision, problem = target_of_rollback(standings, named)
    if problem:
        return Decision(revision, refusal=f"nothing was changed: {problem}")
    reasons = needs_switch(standings, revision)
    origin = _served(standings, revision)
    return Decision(revision, origin=origin, switch=bool(reasons), reasons=tuple(reasons))


def _served(standings: tuple[Standing, ...], revision: str) -> str:
    """What the group goes on with when the old revision does not come up: what is active, unless that is half a switch."""
    if any(standing.record.open for standing in standings):
        return ""
    origin = origin_of(standings)
    return origin if origin != revision else ""


def _downtime(nodes: Iterable[Node]) -> str:
    known = [node.standing.record.downtime_s for node in nodes if node.standing.record.downtime_s is not None]
    return f"{max(known):.1f} s last time" if known else "not measured yet"


def _row(node: Node, downtime: str) -> dict[str, str]:
    reused = int(node.summary.get("reused", {}).get("bytes", 0))
    size = int(node.budget.get("size", 0))
    verdict = "in place" if node.in_place else "stage" if node.changes else "nothing to stage"
    if errors(node.checks):
        verdict = "refused"
    return {
        "node": node.name,
        "reused": units.human(node.bytes("keep", "staged", "link") + reused),
        "fetched": units.human(node.bytes("fetch") - reused + node.rows),
        "freed": units.human(int(node.in_place.get("frees", 0)) if node.in_place else node.frees),
        "disk before": f"{units.human(int(node.budget.get('used', 0)))} of {units.human(size)}",
        "disk after": units.human(node.after),
        "downtime": downtime,
        "verdict": verdict,
    }
