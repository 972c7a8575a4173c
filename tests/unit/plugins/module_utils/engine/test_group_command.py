# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import threading
import time

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import group_command, group_intent

RANKS = {
    "spark2": {"rank": 1, "state": "failed", "since": 90.0, "by": "", "why": "its engine ended by itself"},
    "spark1": {
        "rank": 0,
        "state": "stopped",
        "since": 95.0,
        "by": "group",
        "why": "spark2: its engine ended by itself",
    },
}


def test_what_status_shows():
    status = {"ranks": RANKS, "incident": {"id": "I", "why": "x"}}
    assert group_command.lines(status, 100.0) == [
        "spark1  rank 0  stopped for 5 s, by group: spark2: its engine ended by itself",
        "spark2  rank 1  failed for 10 s: its engine ended by itself",
        "last incident I: x",
    ]
    assert group_command.lines({"ranks": {}, "incident": None}, 0.0) == []
    assert "does not run" in group_command.lines({}, 0.0)[0]


@pytest.mark.parametrize(
    ("order", "found"),
    [
        (None, None),
        ({"id": "2", "state": "done", "text": "x"}, None),
        ({"id": "1", "state": "doing", "text": ""}, None),
        ({"id": "1", "state": "done", "text": "x"}, (0, "x")),
        ({"id": "1", "state": "failed", "text": "y"}, (1, "y")),
    ],
)
def test_what_became_of_an_order(order, found):
    assert group_command.outcome({"order": order}, "1") == found


def test_the_command_says_how_it_ended(tmp_path, capsys):
    run = str(tmp_path)
    assert group_command.main(["status"], run) == 1
    assert group_command.main(["start"], run) == 1
    assert capsys.readouterr().out.count("does not run") == 2
    assert not group_intent.path(run, "order").exists()
    group_intent.replace(group_intent.path(run, "status"), {"at": time.monotonic(), "ranks": RANKS})

    def answer():
        while not (order := group_intent.read(group_intent.path(run, "order"))):
            time.sleep(0.01)
        done = {"id": order["id"], "state": "done", "text": f"{order['do']} because {order['reason']}"}
        group_intent.replace(group_intent.path(run, "status"), {"at": time.monotonic(), "ranks": RANKS, "order": done})

    supervisor = threading.Thread(target=answer)
    supervisor.start()
    assert group_command.main(["stop", "--reason", "a test"], run) == 0
    supervisor.join()
    assert capsys.readouterr().out == "stop because a test\n"
    assert group_command.main(["status"], run) == 0


def test_files_of_others_are_no_intent(tmp_path):
    place = tmp_path / "x.json"
    for text in ("", "[]", "{"):
        place.write_text(text)
        assert group_intent.read(place) == {}
    group_intent.write(str(tmp_path), "stopped", "role", "y", "z")
    held = group_intent.path(str(tmp_path), "intent")
    assert json.loads(held.read_text())["incident"] == "z"
    assert (held.stat().st_mode & 0o777, held.parent.stat().st_mode & 0o777) == (0o600, 0o700)
