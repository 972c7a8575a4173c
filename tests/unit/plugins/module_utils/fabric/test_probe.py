# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for the legs, with a clock of its own and stand-ins for ip and ping."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.checks import Ping
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ladder import Route
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.fabric.probe import (
    POLL,
    look,
    observe,
    route,
    survey,
    verbs_mtus,
)
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures import sysfs
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands, link
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

TWO = parse_ports(PORTS[:2], 9000)
READY = [link(port.netdev, port.cidr) for port in TWO]
NO_CARRIER = [link(port.netdev, flags=("UP", "NO-CARRIER")) for port in TWO]
ANSWER = "echo '2 packets transmitted, 2 received, 0% packet loss, time 1ms'"
SILENCE = "echo '2 packets transmitted, 0 received, 100% packet loss, time 1ms'; exit 1"


class Clock:
    """Time passes only in sleep(); what a test plans for a moment happens then."""

    def __init__(self) -> None:
        self.now = 100.0
        self.plans = {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for moment in [moment for moment in self.plans if moment <= self.now - 100.0]:
            self.plans.pop(moment)()

    def observe(self, timeout: float):
        return observe(TWO, 9000, timeout, clock=lambda: self.now, sleep=self.sleep)

    @property
    def passed(self) -> float:
        return self.now - 100.0


@pytest.fixture
def commands(tmp_path, monkeypatch):
    stand_ins = Commands(tmp_path / "bin", monkeypatch)
    stand_ins.links(*READY)
    stand_ins.script("ping", ANSWER)
    return stand_ins


def test_a_healthy_fabric_is_looked_at_once(commands):
    clock = Clock()
    seen = clock.observe(30)
    assert seen.pings == {port.netdev: Ping(2, 2) for port in TWO}
    assert (clock.passed, len(commands.calls("ip")), len(commands.calls("ping"))) == (0, 1, 2)


def test_every_leg_is_pinged_over_its_own_netdev(commands):
    Clock().observe(0)
    assert sorted(commands.calls("ping")) == [
        "-M do -s 8972 -c 2 -i 0.2 -W 2 -I enP2p1s0f0np0 10.100.1.2",
        "-M do -s 8972 -c 2 -i 0.2 -W 2 -I enp1s0f0np0 10.100.0.2",
    ]


def test_it_waits_for_carrier(commands):
    commands.links(*NO_CARRIER)
    clock = Clock()
    clock.plans[2.0] = lambda: commands.links(*READY)
    seen = clock.observe(30)
    assert all(ping.ok for ping in seen.pings.values())
    assert clock.passed == 2.0


def test_it_pings_again_only_what_did_not_answer(commands):
    commands.script("ping", f'case "$*" in *10.100.0.2) {ANSWER};; *) {SILENCE};; esac')
    clock = Clock()
    clock.plans[1.0] = lambda: commands.script("ping", ANSWER)
    seen = clock.observe(30)
    assert all(ping.ok for ping in seen.pings.values())
    assert len([call for call in commands.calls("ping") if call.endswith("10.100.0.2")]) == 1
    assert len([call for call in commands.calls("ping") if call.endswith("10.100.1.2")]) == 3


@pytest.mark.parametrize(("timeout", "looks"), [(0, 1), (2, 5)])
def test_it_gives_up_at_the_timeout_and_returns_the_last_state(commands, timeout, looks):
    commands.links(*NO_CARRIER)
    clock = Clock()
    seen = clock.observe(timeout)
    assert (seen.pings, clock.passed, len(commands.calls("ip"))) == ({}, timeout, looks)
    assert not seen.links["enp1s0f0np0"].carrier
    assert POLL == 0.5


def test_it_does_not_wait_for_an_absent_netdev(commands):
    commands.links(READY[0])
    clock = Clock()
    seen = clock.observe(30)
    assert (list(seen.pings), clock.passed) == (["enp1s0f0np0"], 0)


def test_a_leg_that_loses_its_carrier_is_not_counted_as_answered(commands):
    commands.script("ping", f'case "$*" in *10.100.0.2) {ANSWER};; *) {SILENCE};; esac')
    clock = Clock()
    clock.plans[1.0] = lambda: commands.links(NO_CARRIER[0], READY[1])
    assert list(clock.observe(2).pings) == ["enP2p1s0f0np0"]


@pytest.mark.parametrize(
    ("small", "expected"),
    [("echo '1 packets transmitted, 1 received'", True), ("echo '1 packets transmitted, 0 received'", False)],
)
def test_a_failed_ping_is_tried_small(commands, small, expected):
    commands.script("ping", f'case "$*" in *"-s 56 -c 1 "*) {small};; *) {SILENCE};; esac')
    assert Clock().observe(0).pings == {port.netdev: Ping(2, 0, small=expected) for port in TWO}


def test_a_missing_program_is_named(commands, monkeypatch):
    (commands.folder / "ping").unlink()
    monkeypatch.setenv("PATH", str(commands.folder))
    commands.script("ip", f"/bin/cat {commands.folder}/links.json")
    with pytest.raises(HostError, match="ping is not installed on this machine"):
        Clock().observe(0)


def test_a_route_is_asked_for(commands):
    commands.route("10.100.0.2", "enp1s0f0np0", "10.100.0.1")
    assert route(TWO[0]) == Route("enp1s0f0np0", "10.100.0.1")
    assert route(TWO[1]) == Route("", reason="RTNETLINK answers: Network is unreachable")
    assert "-j route get 10.100.0.2" in commands.calls("ip")


def test_a_route_that_is_no_json_is_an_error(commands):
    (commands.folder / "route-10.100.0.2").write_text("what")
    with pytest.raises(HostError, match=r"ip -j route get 10\.100\.0\.2: not the JSON"):
        route(TWO[0])


def test_verbs_are_asked_where_they_are_installed(commands, monkeypatch):
    commands.script("ibv_devinfo", "printf 'hca_id:\\trocep1s0f0\\n\\t\\tactive_mtu:\\t4096 (5)\\n'")
    assert verbs_mtus() == {"rocep1s0f0": 4096}
    (commands.folder / "ibv_devinfo").unlink()
    monkeypatch.setenv("PATH", str(commands.folder))
    assert verbs_mtus() == {}


def test_a_survey_sees_everything(commands, tmp_path):
    sysfs.machine(tmp_path / "sys", "dgx-spark")
    commands.script("ibv_devinfo", "echo 'No IB devices found'")
    seen = survey(TWO, 9000, 0, tmp_path / "sys")
    assert seen.pings == {port.netdev: Ping(2, 2) for port in TWO}
    assert set(seen.links) == set(seen.routes) == {port.netdev for port in TWO}
    assert {name: function.gid_index for name, function in look(TWO, tmp_path / "sys").items() if function.planned} == {
        port.netdev: 3 for port in TWO
    }
    assert (seen.functions["enP2p1s0f0np0"].rdma_device, seen.verbs) == ("roceP2p1s0f0", {})
