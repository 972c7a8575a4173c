# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory guard as it runs on a node (gb10-ring-guard.service): looks, asks guard.step what to do, does it, says so.

A copy runs on the nodes without Ansible, so this file imports the standard library and its siblings guard, guard_machine and guard_notice only.
Nothing here may block the loop: dropping, stopping and asking the engine happen in threads.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import guard, guard_machine, guard_notice
from .guard import Action, Memory, Sample, State
from .guard_machine import ERROR, INFO, WARNING, Job, notify, run_of, say

STATUS_EVERY_S = 5.0
PING_EVERY_S = 60.0
HEALTH_EVERY_S = 2.0
_IP_FREEBIND = 15  # the address may come up after the guard


class Guard:
    """The guard of one node. settings: what guard_unit.settings makes."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.node: str = settings["node"]
        self.unit: str = settings["unit"]
        self.limits = guard.limits_from(settings["limits"])
        self.paths: dict[str, str] = settings["paths"]
        self.names: dict[str, str] = {address: name for name, address in settings["peers"].items()}
        self.place = (settings["address"], settings["port"])
        self.digest: str = settings["digest"]
        self.started = time.time()
        self.state = State()
        self.listener = guard_notice.Listener()
        self.teller = guard_notice.Teller(self.node)
        self.channel: socket.socket | None = None
        self.unheard = False
        self.problem = ""
        self.told = ""
        self.ready_run = ""
        self.jobs: dict[str, Job] = {}
        self.before: dict[str, tuple[Memory, str]] = {}
        self.last: dict[str, Any] = {}
        self.memory = Memory(0, 0, 0)
        self.health: tuple[float, str] = (float("-inf"), "")
        self.written = float("-inf")

    # --- One round

    def round(self) -> float:
        """Look, act, report; seconds until the next look."""
        now = time.monotonic()
        ended = self._ended()
        try:
            self.memory = guard.parse_meminfo(Path(self.paths["meminfo"]).read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            return self._blind(f"cannot read {self.paths['meminfo']}, so that nothing is guarded: {error}", now, ended)
        if self.problem:
            say(INFO, f"{self.paths['meminfo']} can be read again")
            self.problem = ""
        self._finish(ended)
        run = run_of(self.paths["units"], self.unit)
        self._ask_engine(run, now)
        sample = Sample(now, self.memory, run, self.ready_run == run != "", guard.DROP in self.jobs, self._heard(run))
        earlier, (self.state, action) = self.state, guard.step(self.state, sample, self.limits)
        self._follow(earlier)
        if action:
            self._act(action, now)
        if action or earlier.phase != self.state.phase or now - self.written >= STATUS_EVERY_S:
            self._write_status(now)
        pause = guard.pause(self.state, sample, self.limits)
        return min(pause, guard.SHORTEST_S) if self.before else pause  # to see what an action came to as it ends

    def _blind(self, problem: str, now: float, ended: list[str]) -> float:
        """Without figures it still does what a neighbour says."""
        if problem != self.problem:
            say(ERROR, problem)
        self.problem = problem
        self._finish(ended)
        run = run_of(self.paths["units"], self.unit)
        told = self._heard(run)
        if told and run:
            self.state = self.state._replace(phase=guard.STOPPED, run=run)
            self._act(Action(guard.STOP, told), now)
        self._write_status(now)
        return self.limits.interval_s

    def _heard(self, run: str) -> str:
        told, self.told = self.told, ""
        if told and not run:
            say(WARNING, f"{told}; no engine runs here")
        return told

    def _follow(self, earlier: State) -> None:
        """Say a new phase, and let what belongs to the run before be forgotten."""
        if self.state.run != earlier.run and self.state.run:
            self.listener.renew()
            self.teller.forget()
        if self.state.phase not in (earlier.phase, guard.STOPPED):
            say(INFO, f"engine {self.state.phase}: {self.memory.text()}")

    def _ask_engine(self, run: str, now: float) -> None:
        """Whether the group serves: the head's /health, until it has said yes once in this run."""
        job = self.jobs.get("health")
        if job and job.result is not None:
            del self.jobs["health"]
            if job.result == "" and self.health[1] == run:
                self.ready_run = run
        elif not job and run and run != self.ready_run and now - self.health[0] >= HEALTH_EVERY_S:
            self.health = (now, run)
            self.jobs["health"] = Job(lambda: guard_machine.healthy(self.paths["engine"]))

    # --- Actions

    def _act(self, action: Action, now: float) -> None:
        self.before[action.kind] = (self.memory, action.why)
        if action.kind == guard.DROP:
            self.jobs[guard.DROP] = Job(lambda: guard_machine.drop(self.paths["drop_caches"]))
            return
        units, run = self.paths["units"], self.state.run
        self.jobs[guard.STOP] = Job(
            lambda: guard_machine.stop(self.unit, self.paths, lambda: run_of(units, self.unit) != run)
        )
        self.last = {"at": time.time(), "run": run, "why": action.why, "told": not action.tell}
        if action.tell:
            for address in self.names:
                self.teller.tell(address, guard_notice.STOP, action.why, now)

    def _ended(self) -> list[str]:
        """Actions that have ended. Asked before the memory is looked at, so that the figures are those of after."""
        jobs = ((kind, self.jobs.get(kind)) for kind in (guard.DROP, guard.STOP))
        return [kind for kind, job in jobs if job is not None and job.result is not None]

    def _finish(self, ended: list[str]) -> None:
        """Say what came of a drop and of a stop, one line each with the memory before and now."""
        for kind in ended:
            job = self.jobs.pop(kind)
            before, why = self.before.pop(kind)
            figures = (
                f"MemFree {before.free} -> {self.memory.free}, MemAvailable {before.available} -> {self.memory.available}, "
                f"page cache {before.cached} -> {self.memory.cached} MiB in {job.seconds:.2f} s"
            )
            if job.result:
                say(ERROR, f"{kind} failed: {job.result} ({why}): {figures}")
            elif kind == guard.STOP:
                say(ERROR, f"stop: {why}; {figures}. The engine of the whole group is stopped")
            else:
                say(INFO, f"{kind} done ({why}): {figures}")
            if kind == guard.STOP:
                self._keep_last(figures, job.result or "")

    def _keep_last(self, figures: str, problem: str) -> None:
        self.last = {**self.last, "figures": figures, "problem": problem}
        try:
            guard_machine.replace(self.paths["last"], self.last)
        except OSError as error:
            say(WARNING, f"cannot keep the reason of the stop in {self.paths['last']}: {error}")

    # --- Neighbours

    def token(self) -> str:
        try:
            return Path(self.paths["token"]).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return ""

    def open(self) -> None:
        """Listen on the management plane; without it the node is guarded all the same."""
        if self.channel is not None:
            return
        channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            channel.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
            channel.setblocking(False)
            channel.bind(self.place)
        except OSError as error:
            channel.close()
            if not self.unheard:
                say(WARNING, f"neighbours cannot be told, nor tell: {self.place[0]}:{self.place[1]}: {error.strerror}")
            self.unheard = True
            return
        self.channel, self.unheard = channel, False

    def wait(self, seconds: float) -> None:
        """Talk to the neighbours until the next look, or until one of them wants the engine stopped."""
        end = time.monotonic() + seconds
        while not self.told:
            self._send_due()
            left = end - time.monotonic()
            if left <= 0:
                return
            stopping = any(word.kind == guard_notice.STOP for word in self.teller.words.values())
            left = min(left, guard_notice.REPEAT_S) if stopping else left
            if self.channel is None:
                time.sleep(left)
            elif select.select([self.channel], [], [], left)[0]:
                self._receive()

    def _send_due(self) -> None:
        now, token = time.monotonic(), self.token() if self.names else ""
        for address in self.names:
            if now - self.teller.answered.get(address, float("-inf")) >= PING_EVERY_S:
                self.teller.tell(address, guard_notice.PING, "", now)
        for address in self.teller.given_up(now):
            say(ERROR, f"{self.names[address]} ({address}) was not told of the stop: no answer")
        for address, message in self.teller.due(now, token):
            self._send(address, message)

    def _send(self, address: str, message: guard_notice.Message) -> None:
        if not message or self.channel is None:
            return
        try:
            self.channel.sendto(guard_notice.encode(message), (address, self.place[1]))
        except OSError:
            return  # no route, full buffer: it is sent again

    def _receive(self) -> None:
        if self.channel is None:
            return
        try:
            data, (address, _port) = self.channel.recvfrom(guard_notice.LIMIT)
        except OSError:
            return  # a neighbour's port was closed when the last datagram came
        if address not in self.names:
            return
        message, token = guard_notice.decode(data), self.token()
        reply, heard = self.teller.hear(address, message, token, time.monotonic())
        if heard:
            say(INFO, f"{self.names[address]} ({address}) knows of the stop")
        if not reply:
            reply, self.told = self.listener.hear(message, token)
        self._send(address, reply)

    # --- Reports

    def _write_status(self, now: float) -> None:
        self.written = now
        status = {
            "phase": self.state.phase,
            "run": self.state.run,
            "at": now,
            "armed_since": self.started,
            "memory": self.memory._asdict(),
            "problem": self.problem,
            "answered": {name: self.teller.answered.get(address) for address, name in self.names.items()},
            "listening": self.channel is not None,
            "digest": self.digest,
        }
        try:
            guard_machine.replace(self.paths["status"], status)
        except OSError as error:
            say(WARNING, f"cannot write {self.paths['status']}: {error}")


def main() -> None:
    """Guard until systemd ends it. argv: the path of the settings. Raises when there is nothing to go by."""
    one = Guard(json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8")))
    guard_machine.lock_memory()
    one.open()
    guard.parse_meminfo(
        Path(one.paths["meminfo"]).read_text(encoding="ascii")
    )  # a guard that sees nothing does not start
    pause = one.round()
    say(INFO, f"armed for {one.unit}, engine {one.state.phase}: {one.memory.text()}")
    notify("READY=1")
    while True:
        notify("WATCHDOG=1")
        one.open()
        one.wait(pause)
        pause = one.round()
