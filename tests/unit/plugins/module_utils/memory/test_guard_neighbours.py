# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guards of a group that hear each other: real datagrams on loopback, systemctl written down instead of run."""

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.gb10.ring.tests.unit.fixtures.guarded_machine import UNIT, Machine, port


@pytest.fixture
def two(tmp_path):
    udp = port()
    a = Machine(tmp_path / "a", "spark1", "127.0.0.1", udp, {"spark2": "127.0.0.2"})
    b = Machine(tmp_path / "b", "spark2", "127.0.0.2", udp, {"spark1": "127.0.0.1"})
    for one in (a, b):
        one.guard.open()
    yield a, b
    for one in (a, b):
        one.guard.channel.close()


def both(a, b, condition, seconds: float = 5) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, (a.status(), b.status())
        for one in (a, b):
            one.guard.round()
            one.guard.wait(0.02)


def test_neighbours_answer_and_a_stop_reaches_them(two, systemctl, capsys):
    a, b = two
    both(a, b, lambda: a.guard.teller.answered and b.guard.teller.answered)
    for one in two:
        one.engine("run")
        one.guard.round()
    a.memory(700, 0)
    both(a, b, lambda: b.guard.state.phase == "stopped" and not a.guard.teller.words)
    for one in two:
        one.engine("")
    both(a, b, lambda: (a.root / "last").exists() and (b.root / "last").exists())
    said = capsys.readouterr().out
    assert "<3>stop: spark1 says: 700 MiB are left and" in said
    assert "<6>spark2 (127.0.0.2) knows of the stop" in said
    assert json.loads((b.root / "last").read_text())["told"] is True


def test_a_guard_without_figures_does_what_its_neighbour_says(two, systemctl):
    a, b = two
    for one in two:
        one.engine("run")
        one.guard.round()
    (b.root / "meminfo").write_text("nothing\n")
    a.memory(700, 0)
    both(a, b, lambda: b.guard.state.phase == "stopped")
    assert ["systemctl", "kill", "--signal=KILL", UNIT] in systemctl.calls
    for one in two:
        one.engine("")
    both(a, b, lambda: (a.root / "last").exists() and (b.root / "last").exists())


def test_a_stop_where_no_engine_runs_is_told_and_nothing_else(two, systemctl, capsys):
    a, b = two
    a.engine("run")
    a.guard.round()
    a.memory(700, 0)
    both(a, b, lambda: "no engine runs here" in capsys.readouterr().out)
    assert b.guard.state.phase == "idle"
    assert "stop" not in b.guard.jobs
    a.engine("")
    both(a, b, (a.root / "last").exists)


def test_other_tokens_and_strangers_are_not_heard(two, systemctl):
    a, b = two
    (a.root / "token").write_text("u" * 48)
    b.engine("run")
    b.guard.round()
    a.engine("run")
    a.guard.round()
    a.memory(700, 0)
    limit = time.monotonic() + 1.5
    while time.monotonic() < limit:
        for one in two:
            one.guard.round()
            one.guard.wait(0.02)
    assert b.guard.state.phase == "loading"
    assert a.guard.teller.answered == {}
    a.engine("")
    both(a, b, (a.root / "last").exists)


def test_an_address_that_is_taken_is_told_once_and_the_node_is_guarded(two, tmp_path, capsys):
    a, _b = two
    late = Machine(tmp_path / "c", "spark3", *a.guard.place, {"spark2": "127.0.0.2"})
    for _attempt in range(2):
        late.guard.open()
    assert capsys.readouterr().out.count("neighbours cannot be told, nor tell: 127.0.0.1") == 1
    late.guard.round()
    assert late.status()["listening"] is False
    late.guard.wait(0.01)
