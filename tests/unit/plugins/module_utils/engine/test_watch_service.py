# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service on a file tree: the supervisor's files are written by hand, its orders are read."""

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import group_intent, watch_service
from ansible_collections.gb10.ring.plugins.module_utils.engine.watch import Limits, Probe
from ansible_collections.gb10.ring.plugins.module_utils.engine.watch_service import Watch

PASS, WEDGED = Probe(), Probe("/health: no answer within 10 s", "a completion: no answer within 45 s", slow=True)
LIMITS = Limits(interval_s=0.001, failures=2, settle_s=0, relaunches=1)


class Head:
    """The head's files, and a watchdog on them."""

    def __init__(self, root):
        self.root, self.run = root, str(root / "run")
        (root / "run/gb10-ring-group").mkdir(parents=True)
        (root / "incidents").mkdir()
        self.paths = {name: str(root / name) for name in ("run", "engine", "running", "incidents", "hold", "status")}
        (root / "engine").write_text(json.dumps({"url": "http://192.0.2.1:8000", "served_model_name": "m"}))
        self.probe, self.asked, self.model = PASS, 0, ""
        self.supervisor()
        self.watch = self.begin()

    def begin(self):
        settings = {"limits": LIMITS._asdict(), "paths": self.paths, "digest": "d1"}
        return Watch(settings, self.answer)

    def answer(self, where, limits):
        self.asked += 1
        self.model = where.model
        assert where.host == "192.0.2.1"
        return self.probe

    def supervisor(self, state="running", **more):
        ranks = {name: {"rank": rank, "state": state, "run": "r1"} for rank, name in enumerate(("spark1", "spark2"))}
        status = {"at": time.monotonic(), "node": "spark1", "ranks": ranks, "stopped": None, "incident": None}
        group_intent.replace(group_intent.path(self.run, "status"), {**status, "order": None, **more})

    def rounds(self, count=1):
        for _number in range(count):
            time.sleep(0.002)
            self.watch.round()

    def order(self):
        return group_intent.read(group_intent.path(self.run, "order"))

    def status(self):
        return json.loads((self.root / "status").read_text())

    def phase(self):
        return self.status()["state"]["phase"]


@pytest.fixture
def head(tmp_path):
    return Head(tmp_path)


def test_a_wedged_head_is_stopped_with_an_incident_and_started_again(head, capsys):
    head.rounds()
    assert head.phase() == "armed"
    head.probe = WEDGED
    head.rounds(2)
    stop = head.order()
    assert (stop["do"], stop["by"]) == ("stop", "watch")
    assert stop["incident"]
    head.supervisor("stopped", order={"id": stop["id"], "do": "stop", "state": "done", "text": ""})
    asked = head.asked
    head.rounds(2)
    start = head.order()
    assert (start["do"], start["incident"], head.asked) == ("start", "", asked)
    head.supervisor(order={"id": start["id"], "do": "start", "state": "done", "text": ""})
    head.probe = PASS
    time.sleep(0.005)
    head.rounds()
    assert head.phase() == "armed"
    said = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in said] == [
        "<6>armed",
        "<4>failure 1 of 2",
        "<4>relaunch 1 of 1",
        "<4>stop the group",
        "<4>start the group",
        "<6>armed again",
    ]


def test_a_stop_that_comes_during_the_probe_is_seen(head):
    head.rounds()
    head.probe = WEDGED
    head.rounds()

    def answer(where, limits):
        group_intent.write(head.run, "stopped", "role", "restart asked for")
        return WEDGED

    head.watch.ask = answer
    head.rounds()
    assert (head.phase(), head.order()) == ("waiting", {})
    assert head.status()["state"]["why"] == "stopped by role: restart asked for"


def test_the_file_of_a_person_holds_it(head):
    head.rounds()
    (head.root / "hold").touch()
    head.probe = WEDGED
    head.rounds(5)
    assert (head.phase(), head.order()) == ("waiting", {})
    assert "held by a person" in head.status()["state"]["why"]


def test_what_it_counted_outlives_it(head):
    head.rounds()
    head.probe = WEDGED
    head.rounds(2)
    before = head.watch.state
    head.watch = head.begin()
    assert head.watch.state == before
    assert head.watch.order == head.order()["id"]


def incident(head, logs, at=None):
    folder = head.root / "incidents" / "i1"
    folder.mkdir(exist_ok=True)
    for node, text in logs.items():
        (folder / f"{node}.log").write_text(text)
    about = {
        "id": "i1",
        "node": "spark2",
        "why": "its engine ended by itself",
        "at": at or time.time(),
        "logs": list(logs),
    }
    head.supervisor("stopped", incident=about)
    return folder / "diagnosis.txt"


def test_an_incident_is_described_once_with_all_logs(head, capsys):
    place = incident(head, {"spark2": "CUDA out of memory"})
    head.rounds()
    assert not place.exists()
    incident(head, {"spark1": "Connection closed by peer", "spark2": "CUDA out of memory"})
    head.rounds(3)
    text = place.read_text()
    assert text.startswith(
        "incident i1: spark2: its engine ended by itself\nspark2: the GPU's share of the memory is used up"
    )
    assert "also spark1: another rank went away" in text
    assert place.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out.count("<3>incident i1: spark2: ") == 1
    assert head.status()["cause"].startswith("spark2: the GPU's share")


def test_an_unknown_incident_has_the_last_lines_of_the_ranks_that_were_heard(head):
    place = incident(head, {"spark2": "strange\nthings"}, at=time.time() - 20)
    head.rounds()
    assert place.read_text().splitlines()[1:] == [
        "no known cause in the logs. Their last lines:",
        "  spark2:",
        "    strange",
        "    things",
    ]


def test_an_order_that_cannot_be_written_is_said(head, capsys, monkeypatch):
    head.rounds()
    head.probe = WEDGED

    def refuse(*words):
        raise OSError("read-only file system")

    monkeypatch.setattr(group_intent, "order", refuse)
    head.rounds(2)
    assert "<3>cannot ask the supervisor to stop the group: read-only file system" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", '{"url": ""}'])
def test_without_a_record_of_the_engine_it_does_not_arm(head, text):
    (head.root / "engine").write_text(text)
    head.rounds(3)
    assert (head.phase(), head.asked) == ("waiting", 0)
    assert str(head.root / "engine") in head.status()["state"]["problem"]


def test_a_record_that_was_written_and_does_not_run_yet_is_not_asked_for(head):
    def record(name, digest):
        text = json.dumps({"url": "http://192.0.2.1:8000", "served_model_name": name, "hash": digest})
        (head.root / "engine").write_text(text)

    record("old", "h1")
    (head.root / "running").write_text("h1\n")
    head.rounds()
    record("new", "h2")
    head.rounds(2)
    assert head.model == "old"
    head.watch = head.begin()  # nor by one that was started anew
    head.rounds(2)
    assert head.model == "old"
    (head.root / "running").write_text("h2\n")
    head.rounds(2)
    assert head.model == "new"
    (head.root / "running").unlink()
    head.rounds(2)
    assert (head.model, head.phase()) == ("new", "armed")


def test_the_program_begins_with_its_settings(head, monkeypatch, capsys):
    settings = head.root / "settings"
    settings.write_text(json.dumps({"limits": LIMITS._asdict(), "paths": head.paths, "digest": "d1"}))

    class EndError(Exception):
        pass

    def end(_watch):
        raise EndError

    monkeypatch.setattr(watch_service.sys, "argv", ["-c", str(settings)])
    monkeypatch.setattr(Watch, "round", end)
    with pytest.raises(EndError):
        watch_service.main()
    assert "watching, waiting: no full pass yet" in capsys.readouterr().out
