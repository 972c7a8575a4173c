# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supervisor of a group as it runs on a node (gb10-ring-group.service): looks, hears, asks group.decide, ends the own rank.

A copy runs on the nodes without Ansible, so this file imports the standard library and its siblings only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from ..memory.guard_machine import ERROR, INFO, WARNING, Job, notify, say
from . import group, group_channel, group_incident, group_intent, group_machine, group_order
from .group import Action, Look, Purpose, Rank
from .group_channel import Channel, Heard
from .group_order import Order, Progress, Tell

TICK_S = 0.5
STATUS_EVERY_S = 1.0


class Supervisor:
    """The supervisor of one node. settings: what group_unit.settings makes."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.node: str = settings["node"]
        self.unit: str = settings["unit"]
        self.paths: dict[str, str] = settings["paths"]
        self.silence_s: float = settings["silence_s"]
        self.stop_s: float = settings["stop_s"]
        self.digest: str = settings["digest"]
        self.run_root: str = self.paths["run"]
        peers = settings["peers"]
        self.me = Rank(settings["rank"])
        self.others = {name: Rank(peer["rank"]) for name, peer in peers.items()}
        names = {peer["address"]: name for name, peer in peers.items()}
        self.channel = Channel(self.node, (settings["address"], settings["port"]), names, self.say_state)
        self.gathered = {name: group_incident.Gathered() for name in peers}
        self.store = group_incident.Store(self.paths["incidents"])
        self.eye = group_machine.Eye(self.unit, self.paths["units"])
        self.ran_with: frozenset[str] = frozenset()
        self.ordered = True
        self.job: Job | None = None
        self.jobs: list[Callable[[], str]] = []
        self.end_seen: tuple[str, float] = ("", 0.0)
        self.known_wall = 0.0
        self.incident: dict[str, Any] = {}
        self.renamed: dict[str, str] = {}
        self.stopped: dict[str, Any] | None = None
        self.progress: Progress | None = None
        self.order_file = group_machine.changed(self._run("order"))
        self.done: list[tuple[str, str]] = []
        self.written = float("-inf")
        self.ending = False

    def _run(self, name: str) -> str:
        return str(group_intent.path(self.run_root, name))

    def say_state(self) -> str:
        return json.dumps(group.word(self.me, time.monotonic()), sort_keys=True)

    # --- One round

    def round(self) -> None:
        now = time.monotonic()
        before = self._known()
        look = self.eye.look(now)
        if look:
            self._follow(look, now)
        self.others = {name: group.silent(rank, now, self.silence_s) for name, rank in self.others.items()}
        self.ran_with = group.running_with(self.me, self.others, self.ran_with)
        self._finish_job()
        self._orders(now)
        action = None if self.job else group.decide(self.me, self.others, self.ran_with, self.ordered)
        if action:
            self._end(action)
        if before != self._known() or now - self.written >= STATUS_EVERY_S:
            self._write_status(now)

    def _known(self) -> tuple[Any, ...]:
        """What a status without delay is worth."""
        ranks = [(rank.state, rank.run, rank.by) for rank in (self.me, *self.others.values())]
        return (*ranks, self.incident.get("id"), self.progress and (self.progress.order.id, self.progress.state))

    def _follow(self, look: Look, now: float) -> None:
        """The own rank, as it is now, and what there is to say about it."""
        before, over = self.me, look.active in ("deactivating", "inactive", "failed")
        if not over or self.end_seen[0] != look.run:
            self.end_seen = (look.run if over else "", now)
        self.me = group.follow(before, look, self._purpose(look, now) if over else None, now - self.end_seen[1], now)
        if before.run != self.me.run and self.me.state in group.ALIVE:
            self.ordered = group.is_ordered(group.parse_intent(group_intent.read(self._run("intent"))))
        kept = ("state", "run", "by", "why", "incident")
        if all(getattr(self.me, name) == getattr(before, name) for name in kept):
            return
        self.known_wall = time.time()
        if self.me.state == group.FAILED:
            ended = now - look.ended if look.ended > look.began else 0.0
            self._record(self._new_name(time.time() - ended), self.node, self.me.why)
            self.me = self.me._replace(incident=self.incident["id"])
        self._note_stop(self.me)
        reason = f" ({self.me.by}: {self.me.why})" if self.me.by else f" ({self.me.why})" if self.me.why else ""
        say(ERROR if self.me.state == group.FAILED else INFO, f"rank {self.me.rank} is {self.me.state}{reason}")

    def _purpose(self, look: Look, now: float) -> Purpose | None:
        intent = group.parse_intent(group_intent.read(self._run("intent")))
        if self.me.state not in group.ALIVE and self.me.run == look.run:
            if intent is None or intent.wall <= self.known_wall:
                return None
            return intent if self.me.state == group.FAILED or intent.want == group.STOPPED else None
        began = time.time() - (now - look.began) if look.began else 0.0
        guard = group_intent.read(self.paths["guard"])
        found = group.purpose_of_end(intent, guard, False, look.run, began)
        if found is None and group_machine.asked_to_stop(self.unit, look.run):
            found = group.purpose_of_end(intent, guard, True, look.run, began)
        return found

    def _note_stop(self, rank: Rank) -> None:
        if rank.state in (group.STOPPING, group.STOPPED) and rank.by not in ("", "group") and not rank.incident:
            self.stopped = {"by": rank.by, "why": rank.why, "at": time.time()}

    # --- Ending the own rank

    def _end(self, action: Action) -> None:
        """Because of another rank: the log first, then the engine."""
        name = ""
        if not action.deliberate:
            known = action.incident if group_incident.is_name(action.incident) else self._recent()
            self._record(known or self._new_name(time.time()), "", action.why)
            name = self.incident["id"]
        say(WARNING if action.deliberate else ERROR, f"rank {self.me.rank} is stopped with its group: {action.why}")
        self._stop("group", action.why, name)

    def _stop(self, by: str, why: str, incident: str) -> None:
        try:
            group_intent.write(self.run_root, "stopped", by, why, incident)
        except OSError as error:
            say(WARNING, f"cannot write {self._run('intent')}: {error}")
        self._start_job(lambda: group_machine.stop(self.unit, self.paths, self.stop_s))

    def _start_job(self, work: Callable[[], str]) -> None:
        self.jobs.append(work)
        self._finish_job()

    def _finish_job(self) -> None:
        """One after another: a start has to find the stop before it done."""
        if self.job is not None and self.job.result is not None:
            if self.job.result:
                say(ERROR, self.job.result)
            self.job = None
        if self.job is None and self.jobs:
            self.job = Job(self.jobs.pop(0))

    # --- Incidents

    def _new_name(self, wall: float) -> str:
        return group_incident.new_name(wall, os.urandom(3).hex())

    def _recent(self) -> str:
        """The present incident, when what happens now can belong to it."""
        return self._joined(self._new_name(time.time()))

    def _joined(self, name: str) -> str:
        """The present incident, when this name is of it."""
        known = self.incident
        same = known and known["run"] == self.me.run and group_incident.together(known["id"], name)
        return str(known["id"]) if same else ""

    def _record(self, name: str, node: str, why: str) -> None:
        """Keep the own log under this incident, and send it to the others."""
        name = self.renamed.get(name, name)
        if self.incident.get("id") == name:
            return
        earlier = self._joined(name)
        if earlier and earlier < name:
            self.renamed[name] = earlier
            return
        about = {"node": node or group_incident.node_in(why, [self.node, *self.others]), "why": why, "at": time.time()}
        text = group_incident.tidy(group_machine.tail(self.unit, group_incident.LINES, self.me.run))
        self.incident = {"id": name, "run": self.me.run, **about}
        try:
            self.store.open(name, about, known=True)
            self.store.add(name, self.node, text)
            if earlier:
                self.renamed[earlier] = name
                self.store.join(earlier, name)
        except OSError as error:
            say(WARNING, f"cannot keep the log of incident {name}: {error}")
        self.channel.tail(group_incident.pack(name, text))
        say(ERROR, f"incident {name}: {why}; the ranks' logs are in {self.store.root}/{name}")

    def _keep(self, node: str, text: str) -> None:
        """A piece of a neighbour's log."""
        complete = self.gathered[node].add(text)
        if not complete:
            return
        name, why = self.renamed.get(complete[0], complete[0]), self.others[node].why
        about = {"node": node if self.others[node].state == group.FAILED else "", "why": why, "at": time.time()}
        try:
            self.store.open(name, about)
            self.store.add(name, node, complete[1])
        except OSError as error:
            say(WARNING, f"cannot keep the log of {node} of incident {name}: {error}")

    # --- Orders

    def _orders(self, now: float) -> None:
        """Carry out an order for the whole group that somebody on this node has given."""
        stamp = group_machine.changed(self._run("order"))
        if stamp != self.order_file:
            self.order_file = stamp
            order = group_order.parse(group_intent.read(self._run("order")))
            if order and (self.progress is None or self.progress.order.id != order.id):
                say(INFO, f"{order.by} wants the group to {order.do}: {order.reason}")
                self.progress = Progress(order)
        if self.progress is None or self.progress.state != group_order.DOING:
            return
        ranks = {self.node: self.me, **self.others}
        self.progress, tells = group_order.step(self.progress, ranks, now, group_order.Times())
        for tell in tells:
            self._tell(tell, self.progress.order._replace(do=tell.do))
        if self.progress.state != group_order.DOING:
            say(
                INFO,
                f"order {self.progress.order.do} of {self.progress.order.by} {self.progress.state}: {self.progress.text}",
            )

    def _tell(self, tell: Tell, order: Order) -> None:
        if tell.node == self.node:
            self._do(order)
        else:
            self.channel.order(tell.node, order._asdict())

    def _do(self, order: Order) -> None:
        """The own part of an order; said twice it is done once."""
        if (order.id, order.do) in self.done:
            return
        self.done = [*self.done[-9:], (order.id, order.do)]
        if order.do == group_order.START:
            group_intent.write(self.run_root, "started", order.by, order.reason)
            self._start_job(lambda: group_machine.start(self.unit))
            return
        incident = order.incident if group_incident.is_name(order.incident) else ""
        if incident:
            self._record(incident, "", order.reason)
            incident = self.incident["id"]
        self._stop(order.by, order.reason, incident)

    # --- Neighbours

    def talk(self, seconds: float) -> None:
        token = group_machine.token(self.paths["token"]) if self.others else ""
        for heard in self.channel.talk(seconds, token):
            self._hear(heard)

    def _hear(self, heard: Heard) -> None:
        if heard.kind == group_channel.TAIL:
            self._keep(heard.node, heard.text)
            return
        try:
            values = json.loads(heard.text)
        except ValueError:
            return
        if heard.kind == group_channel.ORDER:
            order = group_order.parse(values)
            if order:
                self._do(order)
            return
        before = self.others[heard.node]
        rank = group.hear(before.rank, values, time.monotonic())
        if rank is None:
            return
        self.others[heard.node] = rank
        if rank.state != before.state:
            self._note_stop(rank)
            say(INFO, f"{heard.node} (rank {rank.rank}) is {rank.state}{f': {rank.why}' if rank.why else ''}")
        if group_incident.is_name(rank.incident):
            self._hear_incident(heard.node, rank)

    def _hear_incident(self, node: str, rank: Rank) -> None:
        """Another name for what this node has seen too, or something that it could not see, since its own rank did not run."""
        name = self.renamed.get(rank.incident, rank.incident)
        if name == self.incident.get("id"):
            return
        news = self.me.state not in group.ALIVE and name > self.incident.get("id", "")
        if not self._joined(name) and not news:
            return
        if self.node not in self.store.logs(name):
            self._record(name, node, rank.why)
        else:  # from before this supervisor started
            self.incident = {"id": name, "run": self.me.run, "node": node, "why": rank.why, "at": time.time()}

    # --- Reports

    def _write_status(self, now: float) -> None:
        self.written = now
        keep = ("rank", "state", "run", "since", "heard", "why", "by", "incident")
        ranks = {name: {key: getattr(rank, key) for key in keep} for name, rank in self._everybody().items()}
        for rank in ranks.values():
            rank["heard"] = rank["heard"] if rank["heard"] > float("-inf") else None
        incident = {**self.incident, "logs": self.store.logs(self.incident["id"])} if self.incident else None
        status = {
            "at": now,
            "node": self.node,
            "digest": self.digest,
            "listening": self.channel.listening,
            "ranks": ranks,
            "stopped": self.stopped,
            "incident": incident,
            "order": group_order.report(self.progress) if self.progress else None,
        }
        try:
            group_intent.replace(self._run("status"), status)
        except OSError as error:
            say(WARNING, f"cannot write {self._run('status')}: {error}")

    def _everybody(self) -> dict[str, Rank]:
        return {self.node: self.me, **self.others}

    def end(self, _number: int, _frame: FrameType | None) -> None:
        self.ending = True


def main() -> None:
    """Supervise until systemd ends it. argv: the path of the settings."""
    one = Supervisor(json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8")))
    signal.signal(signal.SIGTERM, one.end)
    one.channel.open()
    one.round()
    say(INFO, f"rank {one.me.rank} is {one.me.state}; with {', '.join(one.others) or 'no other rank'}")
    notify("READY=1")
    while not one.ending:
        notify("WATCHDOG=1")
        one.channel.open()
        one.talk(TICK_S)
        one.round()
    one.ending = False  # a last word: the machine may be going down, and its engine has just ended
    one.round()
    one.talk(TICK_S)
