# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog as it runs on the head (gb10-ring-watch.service): looks, asks watch.step what to do, has the supervisor do it.

A copy runs on the nodes without Ansible, so this file imports the standard library, its siblings, and memory/guard_machine.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..memory.guard_machine import ERROR, INFO, WARNING, notify, replace, say
from . import group_incident, group_intent, watch, watch_group, watch_probe
from .diagnosis import describe, diagnose
from .watch import Action, Probe, Sample
from .watch_group import BY, Group
from .watch_probe import Target

TICK_S = 2.0
STATUS_EVERY_S = 5.0
LOGS_WITHIN_S = 15.0  # after that an incident is described with the logs that have come


class Watch:
    """The watchdog. settings: what watch_unit makes. ask: one look at the API."""

    def __init__(self, settings: Mapping[str, Any], ask: Callable[..., Probe] = watch_probe.look) -> None:
        self.limits = watch.limits_from(settings["limits"])
        self.paths: dict[str, str] = settings["paths"]
        self.digest: str = settings["digest"]
        self.ask = ask
        before = group_intent.read(self.paths["status"])
        self.state = watch.state_from(before.get("state", {}))
        self.order = str(before.get("order", ""))
        self.incident = str(before.get("incident", ""))
        self.reported = str(before.get("reported", ""))
        self.cause = str(before.get("cause", ""))
        where = before.get("where") or {}
        self.where = where if set(where) == set(Target._fields) else {}  # else of another version
        self.asked = self.written = float("-inf")

    def round(self) -> float:
        """Look, act, report; seconds until the next look."""
        now = time.monotonic()
        seen, probe = self._group(now), None
        if now - self.asked >= watch.pause(self.state, self.limits) and watch.asks(self.state, _sample(seen, now)):
            self.asked, probe = now, self._probe()
            now = time.monotonic()
            seen = self._group(now)  # somebody may have stopped it meanwhile
        earlier = self.state
        self.state, actions = watch.step(self.state, _sample(seen, now, probe), self.limits)
        for action in actions:
            self._act(action, seen)
        self._describe(now)
        if actions or earlier != self.state or now - self.written >= STATUS_EVERY_S:
            self._write_status(now)
        return min(TICK_S, self.limits.interval_s)

    def _group(self, now: float) -> Group:
        root = self.paths["run"]
        intent = group_intent.read(group_intent.path(root, "intent"))
        seen = watch_group.group(group_intent.status(root), intent, self.order, now)
        held = Path(self.paths["hold"])
        return seen._replace(hold=f"held by a person: {held} is there") if held.exists() else seen

    def _probe(self) -> Probe:
        try:
            record = json.loads(Path(self.paths["engine"]).read_text(encoding="utf-8"))
            if not self.where or record.get("hash", "") in ("", self._running()):
                self.where = watch_probe.target(record)._asdict()
        except (OSError, ValueError, AttributeError) as error:
            return Probe(health=f"{self.paths['engine']}: {error}", answer="not asked")
        return self.ask(Target(**self.where), self.limits)

    def _running(self) -> str:
        """The configuration that the rank here was started from. A record of another one was written and does not serve yet."""
        try:
            return Path(self.paths["running"]).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return ""

    def _act(self, action: Action, seen: Group) -> None:
        if action.kind in (watch.SAY, watch.WARN):
            say(INFO if action.kind == watch.SAY else WARNING, action.text)
            return
        if action.kind == watch.STOP:
            self.incident = seen.incident or group_incident.new_name(time.time(), os.urandom(3).hex())
        incident = self.incident if action.kind == watch.STOP else ""
        try:
            self.order = group_intent.order(self.paths["run"], action.kind, BY, action.text, incident)
        except OSError as error:
            self.order = ""
            say(ERROR, f"cannot ask the supervisor to {action.kind} the group: {error}")
            return
        say(WARNING, f"{action.kind} the group: {action.text}{f' (incident {incident})' if incident else ''}")

    # --- Incidents

    def _describe(self, now: float) -> None:
        """Say why an incident happened, once, when the logs of all ranks have come."""
        status = group_intent.status(self.paths["run"])
        last = status.get("incident") or {}
        name = str(last.get("id", ""))
        if not name or name == self.reported:
            return
        complete = set(last.get("logs", ())) >= set(status.get("ranks", {}))
        if not complete and time.time() - float(last.get("at", 0.0)) < LOGS_WITHIN_S:
            return
        self.reported = name
        folder = Path(self.paths["incidents"]) / name
        tails = {log.stem: log.read_text("utf-8", "replace").splitlines() for log in sorted(folder.glob("*.log"))}
        found = diagnose(tails)
        self.cause = found[0].text() if found else "no known cause in the logs"
        text = f"incident {name}: {watch_group.told(last)}\n{describe(found, tails)}\n"
        say(ERROR, f"incident {name}: {self.cause}")
        try:
            place = folder / "diagnosis.txt"
            place.write_text(text, encoding="utf-8")
            place.chmod(0o600)
        except OSError as error:
            say(WARNING, f"cannot keep the diagnosis of incident {name}: {error}")
        self._write_status(now)

    def _write_status(self, now: float) -> None:
        self.written = now
        status = {
            "at": now,
            "digest": self.digest,
            "state": self.state._asdict(),
            "ages": [round(now - at) for at in self.state.relaunches],
            "order": self.order,
            "incident": self.incident,
            "reported": self.reported,
            "cause": self.cause,
            "where": self.where,
        }
        try:
            replace(self.paths["status"], status)
        except OSError as error:
            say(WARNING, f"cannot write {self.paths['status']}: {error}")


def _sample(seen: Group, now: float, probe: Probe | None = None) -> Sample:
    return Sample(now, *seen, probe=probe)


def main() -> None:
    """Watch until systemd ends it. argv: the path of the settings. Raises when there is nothing to go by."""
    one = Watch(json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8")))
    say(INFO, f"watching, {one.state.phase}: {one.state.why}")
    notify("READY=1")
    while True:
        notify("WATCHDOG=1")
        time.sleep(one.round())
