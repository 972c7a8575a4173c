# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a whole group is stopped, or started in order, by one supervisor that tells the others; pure.

A copy runs on the nodes without Ansible, so this file imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .group import ABSENT, FAILED, RUNNING, STOPPED, UNKNOWN, Rank

STOP, START = "stop", "start"
DOING, DONE, BROKEN = "doing", "done", "failed"


class Order(NamedTuple):
    """What somebody on this node wants of the whole group. do: STOP or START."""

    id: str
    do: str
    by: str
    reason: str
    incident: str = ""


class Progress(NamedTuple):
    """How far it is. phase: STOP, which comes first for both, or START. left: ranks that have yet to be started, the next first."""

    order: Order
    phase: str = STOP
    told: bool = False
    since: float = 0.0
    left: tuple[int, ...] = ()
    state: str = DOING
    text: str = ""


class Times(NamedTuple):
    """Seconds that stopping all ranks may take, and starting one."""

    stop_s: float = 60.0
    start_s: float = 120.0


class Tell(NamedTuple):
    """One node is to do something."""

    node: str
    do: str


def parse(values: Mapping[str, Any]) -> Order | None:
    """The content of order.json or of an order's word; None when it is none."""
    texts = {key: str(values.get(key, "")) for key in Order._fields}
    return Order(**texts) if texts["id"] and texts["do"] in (STOP, START) else None


def step(progress: Progress, ranks: Mapping[str, Rank], now: float, times: Times) -> tuple[Progress, tuple[Tell, ...]]:
    """The next progress, and what the nodes are to be told. ranks: of all nodes, the own one too."""
    if progress.state != DOING:
        return progress, ()
    return _stop(progress, ranks, now, times) if progress.phase == STOP else _start(progress, ranks, now, times)


def _stop(progress: Progress, ranks: Mapping[str, Rank], now: float, times: Times) -> tuple[Progress, tuple[Tell, ...]]:
    if not progress.told:
        return progress._replace(told=True, since=now), tuple(Tell(name, STOP) for name in ranks)
    late = {name: rank for name, rank in ranks.items() if not _is_off(rank, progress.since)}
    if not late:
        if progress.order.do == STOP:
            return progress._replace(state=DONE, text="every rank is stopped"), ()
        left = tuple(sorted((rank.rank for rank in ranks.values()), reverse=True))
        return progress._replace(phase=START, told=False, since=now, left=left), ()
    if now - progress.since > times.stop_s:
        return _broken(progress, f"not stopped within {times.stop_s:g} s: {_said(late)}"), ()
    return progress, ()


def _is_off(rank: Rank, told: float) -> bool:
    """Stopped, as said after it was told: what was heard before does not count."""
    return rank.state in (STOPPED, ABSENT) and rank.heard > told


def _start(
    progress: Progress, ranks: Mapping[str, Rank], now: float, times: Times
) -> tuple[Progress, tuple[Tell, ...]]:
    by_rank = {rank.rank: (name, rank) for name, rank in ranks.items()}
    broken = {name: rank for name, rank in ranks.items() if rank.state in (FAILED, UNKNOWN)}
    if broken:
        return _broken(progress, _said(broken)), ()
    if not progress.left:
        return _all_run(progress, ranks, now, times), ()
    name, rank = by_rank[progress.left[0]]
    if not progress.told:
        return progress._replace(told=True, since=now), (Tell(name, START),)
    if rank.state == RUNNING and rank.heard > progress.since:
        return progress._replace(told=False, left=progress.left[1:]), ()
    if now - progress.since > times.start_s:
        return _broken(progress, f"not running within {times.start_s:g} s: {_said({name: rank})}"), ()
    return progress, ()


def _all_run(progress: Progress, ranks: Mapping[str, Rank], now: float, times: Times) -> Progress:
    off = {name: rank for name, rank in ranks.items() if rank.state != RUNNING}
    if not off:
        return progress._replace(state=DONE, text="every rank runs")
    return _broken(progress, _said(off)) if now - progress.since > times.start_s else progress


def _broken(progress: Progress, text: str) -> Progress:
    return progress._replace(state=BROKEN, text=text)


def _said(ranks: Mapping[str, Rank]) -> str:
    return "; ".join(f"{name} is {rank.state}{': ' + rank.why if rank.why else ''}" for name, rank in ranks.items())


def report(progress: Progress) -> dict[str, str]:
    """For status.json."""
    return {"id": progress.order.id, "do": progress.order.do, "state": progress.state, "text": progress.text}
