# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import socket
import time

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import group_intent, group_machine, group_service
from ansible_collections.gb10.ring.plugins.module_utils.engine.group import Look

NODES = {"spark1": "127.0.0.2", "spark2": "127.0.0.3", "spark3": "127.0.0.4"}
TOKEN = "t" * 48


class Machine:
    """A node with an engine that runs until it is told otherwise; what the supervisors ask systemd for."""

    def __init__(self) -> None:
        self.runs = 0
        self.look = Look("loaded", "inactive")
        self.starts: list[float] = []

    def start(self) -> str:
        self.runs += 1
        self.starts.append(time.monotonic())
        self.look = Look("loaded", "active", f"{id(self)}-{self.runs}", main=True, began=time.monotonic())
        return ""

    def stop(self) -> str:
        self.look = self.look._replace(active="inactive", main=False, result="success")
        return ""

    def die(self) -> None:
        self.look = self.look._replace(active="failed", main=False, result="signal", status=9, ended=time.monotonic())


class Group:
    """Three supervisors on loopback, run in turns."""

    def __init__(self, root, monkeypatch, **settings) -> None:
        self.root = root
        self.machines = {node: Machine() for node in NODES}
        units = {f"{node}.service": machine for node, machine in self.machines.items()}
        monkeypatch.setattr(group_machine.Eye, "look", lambda eye, _now: units[eye._unit].look)
        monkeypatch.setattr(group_machine, "asked_to_stop", lambda _unit, _run: False)
        monkeypatch.setattr(group_machine, "tail", lambda unit, _lines, _run: [f"log of {unit}", "token=secret1"])
        monkeypatch.setattr(group_machine, "stop", lambda unit, _paths, _stop_s: units[unit].stop())
        monkeypatch.setattr(group_machine, "start", lambda unit: units[unit].start())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.2", 0))
            port = probe.getsockname()[1]
        self.ones = {node: self.supervisor(node, port, settings) for node in NODES}

    def supervisor(self, node, port, settings):
        place = self.root / node
        place.mkdir()
        (place / "token").write_text(TOKEN)
        peers = {
            name: {"rank": rank, "address": address}
            for rank, (name, address) in enumerate(NODES.items())
            if name != node
        }
        paths = {name: str(place / name) for name in ("token", "engine", "guard", "incidents", "units", "run")}
        own = {"node": node, "rank": list(NODES).index(node), "unit": f"{node}.service", "address": NODES[node]}
        values = {"port": port, "peers": peers, "silence_s": 30, "stop_s": 1, "digest": "d", "paths": paths}
        return group_service.Supervisor({**own, **values, **settings})

    def close(self):
        for one in self.ones.values():
            if one.channel._socket:
                one.channel._socket.close()

    def run(self, nodes=tuple(NODES)) -> None:
        for node in nodes:
            one = self.ones[node]
            one.channel.open()
            one.talk(0.01)
            one.round()

    def until(self, condition, seconds=15.0, nodes=tuple(NODES)) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, {node: self.states(node) for node in nodes}
            self.run(nodes)

    def states(self, node) -> list[str]:
        ranks = self.status(node)["ranks"]
        return [ranks[name]["state"] for name in NODES]

    def status(self, node):
        return group_intent.status(str(self.root / node / "run"))

    def everywhere(self, *states):
        """Whether every node knows these states."""
        return lambda: all(self.status(node) and self.states(node) == list(states) for node in NODES)

    def serve(self) -> None:
        for machine in self.machines.values():
            machine.start()
        self.until(self.everywhere("running", "running", "running"))

    def incidents(self, node):
        place = self.root / node / "incidents"
        return sorted(place.iterdir()) if place.is_dir() else []


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.setattr(group_service.group, "GRACE_S", 0.05)
    one = Group(tmp_path, monkeypatch)
    yield one
    one.close()


def test_a_dead_rank_ends_the_others_and_every_node_has_every_log(group):
    group.serve()
    group.machines["spark3"].die()
    began = time.monotonic()
    group.until(group.everywhere("stopped", "stopped", "failed"), 10)
    assert time.monotonic() - began < 5
    group.until(lambda: all(len(group.status(node)["incident"]["logs"]) == 3 for node in NODES))
    names = {group.status(node)["incident"]["id"] for node in NODES}
    assert len(names) == 1
    for node in NODES:
        (place,) = group.incidents(node)
        assert place.name in names
        for one in NODES:
            assert (place / f"{one}.log").read_text() == f"log of {one}.service\ntoken=...\n"
        about = json.loads((place / "incident.json").read_text())
        assert (about["node"], about["why"].rpartition(": ")[2]) == ("spark3", "signal, status 9")
        assert group.status(node)["stopped"] is None
    assert "secret1" not in "".join(path.read_text() for path in group.root.rglob("*") if path.is_file())


def test_ranks_that_die_together_are_one_incident(group):
    group.serve()
    for machine in group.machines.values():
        machine.die()
        time.sleep(0.01)
    group.until(group.everywhere("failed", "failed", "failed"))
    group.until(lambda: all(len(group.status(node)["incident"]["logs"]) == 3 for node in NODES))
    (name,) = {path.name for node in NODES for path in group.incidents(node)}
    assert json.loads((group.incidents("spark3")[0] / "incident.json").read_text())["node"] == "spark1"
    assert name == group.status("spark2")["incident"]["id"]


def test_a_stop_on_purpose_is_none(group):
    group.serve()
    for node in NODES:
        group_intent.write(str(group.root / node / "run"), "stopped", "role", "a test")
        group.machines[node].stop()
    group.until(group.everywhere("stopped", "stopped", "stopped"))
    assert group.status("spark1")["stopped"]["by"] == "role"
    assert [group.incidents(node) for node in NODES] == [[], [], []]


def test_a_stop_after_a_failure_is_known_and_the_next_failure_is_another_incident(group, monkeypatch):
    group.serve()
    group.machines["spark3"].die()
    group.until(group.everywhere("stopped", "stopped", "failed"))
    for node in NODES:
        group_intent.write(str(group.root / node / "run"), "stopped", "role", "enough")
    group.until(group.everywhere("stopped", "stopped", "stopped"))
    group.until(lambda: all((group.status(node)["stopped"] or {}).get("by") == "role" for node in NODES))
    group.until(lambda: {rank["incident"] for node in NODES for rank in group.status(node)["ranks"].values()} == {""})
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    for node in ("spark2", "spark3"):  # the head's turn does not come
        group.machines[node].start()
    group.until(lambda: group.states("spark1")[1:] == ["running", "running"])
    group.machines["spark3"].die()
    group.until(group.everywhere("stopped", "stopped", "failed"))
    group.until(lambda: all(group.status(node)["incident"]["logs"] == list(NODES) for node in NODES))
    names = [[path.name for path in group.incidents(node)] for node in NODES]
    assert names[0] == names[1] == names[2]
    assert len(names[0]) == 2
    assert {group.status(node)["incident"]["id"] for node in NODES} == {names[0][1]}


def test_a_rank_that_is_stopped_alone_takes_the_group_along(group, monkeypatch):
    monkeypatch.setattr(group_service.group, "SLACK_S", 0.0)
    monkeypatch.setattr(group_machine, "asked_to_stop", lambda _unit, _run: True)
    group.serve()
    group.machines["spark2"].stop()
    group.until(group.everywhere("stopped", "stopped", "stopped"))
    assert group.status("spark3")["ranks"]["spark2"]["by"] == "systemctl"
    assert group.status("spark3")["ranks"]["spark3"]["by"] == "group"
    assert group.status("spark1")["stopped"]["by"] == "systemctl"
    assert [group.incidents(node) for node in NODES] == [[], [], []]


def test_the_guards_stop_is_no_failure(group):
    group.serve()
    for node in NODES:
        (group.root / node / "guard").write_text(json.dumps({"phase": "stopped", "run": group.machines[node].look.run}))
        group.machines[node].die()
    group.until(group.everywhere("stopped", "stopped", "stopped"))
    assert group.status("spark1")["stopped"]["by"] == "guard"
    assert group.incidents("spark1") == []


def test_an_order_starts_a_failed_group_in_order(group):
    group.serve()
    group.machines["spark2"].die()
    group.until(group.everywhere("stopped", "failed", "stopped"))
    identity = group_intent.order(str(group.root / "spark1" / "run"), "start", "a person", "again")
    group.until(lambda: (group.status("spark1")["order"] or {}).get("state") == "done")
    order = group.status("spark1")["order"]
    assert order == {"id": identity, "do": "start", "state": "done", "text": "every rank runs"}
    group.until(group.everywhere("running", "running", "running"))
    third, second, first = (group.machines[node].starts for node in ("spark3", "spark2", "spark1"))
    assert [len(third), len(second), len(first)] == [2, 2, 2]
    assert third[-1] < second[-1] < first[-1]


def test_an_order_to_stop_with_an_incident_saves_every_log_first(group):
    group.serve()
    name = "20261130T055655108Z-3a5791"
    group_intent.order(str(group.root / "spark1" / "run"), "stop", "watchdog", "health hangs", name)
    group.until(lambda: (group.status("spark1")["order"] or {}).get("state") == "done")
    group.until(lambda: all(len(group.status(node)["incident"]["logs"]) == 3 for node in NODES))
    assert {path.name for node in NODES for path in group.incidents(node)} == {name}
    about = json.loads((group.incidents("spark3")[0] / "incident.json").read_text())
    assert (about["node"], about["why"]) == ("", "health hangs")
    assert group.states("spark1") == ["stopped"] * 3
    assert group.status("spark2")["stopped"] is None


def test_an_order_without_one_is_deliberate(group):
    group.serve()
    group_intent.order(str(group.root / "spark2" / "run"), "stop", "a person", "enough")
    group.until(group.everywhere("stopped", "stopped", "stopped"))
    assert group.status("spark3")["stopped"]["by"] == "a person"
    assert group.incidents("spark1") == []


def test_a_node_that_is_lost_ends_the_rest(tmp_path, monkeypatch):
    group = Group(tmp_path, monkeypatch, silence_s=1.0)
    group.serve()
    rest = ("spark1", "spark2")
    group.until(
        lambda: all(group.status(node)["ranks"][node]["state"] == "stopped" for node in rest), seconds=10, nodes=rest
    )
    assert group.states("spark1")[2] == "unknown"
    group.until(lambda: group.status("spark1")["incident"]["logs"] == list(rest), nodes=rest)
    assert "spark3 was lost: not heard for 1 s" in group.status("spark1")["incident"]["why"]
    group.close()


def test_words_with_another_token_are_not_heard(group):
    (group.root / "spark3" / "token").write_text("u" * 48)
    for machine in group.machines.values():
        machine.start()
    group.until(lambda: group.states("spark1")[:2] == ["running", "running"] if group.status("spark1") else False)
    group.machines["spark3"].die()
    for _turn in range(60):
        group.run()
    assert group.states("spark1") == ["running", "running", "unknown"]
    assert group.states("spark3") == ["unknown", "unknown", "failed"]


def test_the_lone_rank_of_a_rebooted_node_ends_and_an_order_starts_the_group(group, monkeypatch):
    monkeypatch.setattr(group_service.group, "LONE_S", 0.3)
    said = []
    monkeypatch.setattr(group_service, "say", lambda _level, text: said.append(text))
    group.until(group.everywhere("stopped", "stopped", "stopped"))
    group.machines["spark3"].start()  # as a boot does
    group.until(lambda: group.status("spark3")["ranks"]["spark3"]["by"] == "group")
    group.until(group.everywhere("stopped", "stopped", "stopped"))
    assert [
        text
        for text in said
        if "To start the group: `gb10-ring-group start`, or site.yml" in text and "with its group" in text
    ]
    assert [group.incidents(node) for node in NODES] == [[], [], []]
    assert group.status("spark1")["stopped"] is None
    group_intent.order(str(group.root / "spark1" / "run"), "start", "a person", "again")
    group.until(lambda: (group.status("spark1")["order"] or {}).get("state") == "done")
    assert group.status("spark1")["order"]["text"] == "every rank runs"


def test_ranks_of_nodes_that_boot_one_after_another_wait_for_each_other(group, monkeypatch):
    monkeypatch.setattr(group_service.group, "LONE_S", 0.1)
    for machine in group.machines.values():
        machine.look = machine.look._replace(queued=True)
    group.until(group.everywhere("stopped", "stopped", "stopped"))
    for node in NODES:
        group.machines[node].start()
        until = time.monotonic() + 0.6
        while time.monotonic() < until:
            group.run()
    group.until(group.everywhere("running", "running", "running"))
    assert [machine.runs for machine in group.machines.values()] == [1, 1, 1]


def test_an_ordered_start_that_takes_long_is_no_lone_rank(group, monkeypatch):
    monkeypatch.setattr(group_service.group, "LONE_S", 0.0)
    group.until(group.everywhere("stopped", "stopped", "stopped"))
    for node in reversed(NODES):  # as the role does
        group_intent.write(str(group.root / node / "run"), "started", "role", "a test")
        group.machines[node].start()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            group.run()
    group.until(group.everywhere("running", "running", "running"))
    assert [machine.runs for machine in group.machines.values()] == [1, 1, 1]
