# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import cabling_probe
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_nics import Nic
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_window import STRANGERS, Tally, Timing, Window
from ansible_collections.gb10.ring.plugins.module_utils.fabric.frames import Hello, Received, decode, encode
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError

TIMING = Timing(duration=4, carrier_timeout=6)
ME, PEER = Hello("r", "m1", "spark1", "e0", 0, 0), Hello("r", "m2", "spark2", "e1", 1, 0)


def test_a_window_with_carrier_everywhere_is_the_duration() -> None:
    window = Window(100, TIMING)
    window.wanted(100)
    assert not window.closed(103.9, waiting=False)
    assert window.closed(104, waiting=False)


def test_a_window_waits_for_missing_carriers() -> None:
    window = Window(100, TIMING)
    window.wanted(100)
    assert not window.closed(105.9, waiting=True)
    assert window.closed(106, waiting=True)


def test_a_late_carrier_gets_the_whole_duration() -> None:
    window = Window(100, TIMING)
    window.wanted(100)
    window.gained(105)
    assert not window.closed(108.9, waiting=False)
    assert window.closed(109, waiting=False)


def test_carriers_that_come_and_go_do_not_go_on_for_ever() -> None:
    window = Window(100, TIMING)
    window.wanted(100)
    for now in range(100, 160):
        window.gained(now)
    assert window.closed(110, waiting=False)


def test_a_node_that_starts_late_is_waited_for() -> None:
    window = Window(100, TIMING)
    window.wanted(100)
    window.met(103.5)
    assert not window.closed(105.4, waiting=False)
    assert window.closed(105.5, waiting=False)


def test_a_window_stays_open_until_the_result_is_wanted_and_two_seconds_more() -> None:
    window = Window(100, TIMING)
    assert not window.closed(150, waiting=False)
    window.wanted(150)
    window.wanted(151)
    assert not window.closed(151.9, waiting=False)
    assert window.closed(152, waiting=False)


def test_a_window_does_not_wait_for_nodes_that_have_started_long_ago() -> None:
    for since, end in ((0.0, 152.0), (1.5, 150.5), (3.0, 150.0)):
        window = Window(100, TIMING)
        window.wanted(150, since)
        assert window.closed(150, waiting=False) is (since > 2)
        assert window.closed(end, waiting=False)
    window = Window(148, TIMING)
    window.wanted(150, 3.0)
    assert not window.closed(151.9, waiting=False)  # its own duration holds in any case


def test_a_window_that_nobody_wants_closes_after_two_minutes() -> None:
    assert Window(100, TIMING).closed(220, waiting=False)


def test_a_tally_counts_frames_by_sender() -> None:
    tally = Tally()
    assert [tally.add(Received("a", PEER)), tally.add(Received("a", PEER)), tally.add(Received("b", None))] == [
        True,
        False,
        False,
    ]
    assert tally.listing() == [
        {"nonce": "r", "machine": "m2", "node": "spark2", "netdev": "e1", "port": 1, "rail": 0, "count": 2}
    ]
    assert tally.strangers == {"b": 1}


def test_a_tally_does_not_grow_without_limit() -> None:
    tally = Tally()
    for number in range(200):
        tally.add(Received(f"mac{number}", None))
        tally.add(Received("a", Hello("r", f"m{number}", "spark2", "e1", 1, 0)))
    assert len(tally.strangers) == STRANGERS
    assert len(tally.heard) == 64


class FakeWire:
    """Hears what is put into it; carrier from a time on."""

    def __init__(self, clock: Any, carrier_from: float = 0, mac: str = "02:00:00:00:00:01") -> None:
        self.mac, self.clock, self.carrier_from = mac, clock, carrier_from
        self.sent: list[bytes] = []
        self.incoming: list[Received] = []

    def fileno(self) -> int:
        return 0

    def send(self, frame: bytes) -> bool:
        self.sent.append(frame)
        return self.carrier()

    def receive(self) -> Received | None:
        return self.incoming.pop(0) if self.incoming else None

    def carrier(self) -> bool:
        return bool(self.clock() >= self.carrier_from)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, wires: list[Any], seconds: float) -> list[Any]:
        self.now += max(seconds, 0.01)
        return [wire for wire in wires if wire.incoming]


NICS = (Nic(0, 0, "e0"), Nic(1, 0, "e1"))


def exchange(wires: Sequence[FakeWire], clock: Clock, wanted_from: float = 0) -> dict[Nic, Tally]:
    def hello(nic: Nic) -> Hello:
        return Hello("r", "m1", "spark1", nic.netdev, nic.port, nic.rail)

    given = dict(zip(NICS, wires, strict=False))
    return cabling_probe.exchange(
        given, hello, TIMING, lambda: 0.0 if clock() >= wanted_from else None, clock=clock, wait=clock.wait
    )


def test_every_wire_sends_four_frames_a_second_with_its_own_place() -> None:
    clock = Clock()
    wires = [FakeWire(clock), FakeWire(clock, mac="02:00:00:00:00:02")]
    tallies = exchange(wires, clock)
    assert clock.now == pytest.approx(4, abs=0.3)
    assert 15 <= tallies[NICS[0]].sent <= 17
    received = decode(wires[1].sent[0])
    assert received == Received("02:00:00:00:00:02", Hello("r", "m1", "spark1", "e1", 1, 0))


def test_what_is_heard_is_kept_by_netdev() -> None:
    clock = Clock()
    wires = [FakeWire(clock), FakeWire(clock)]
    wires[1].incoming = [Received("a", PEER), Received("a", PEER), Received("c", None)]
    tallies = exchange(wires, clock)
    assert tallies[NICS[0]].listing() == []
    assert tallies[NICS[1]].listing()[0]["count"] == 2
    assert tallies[NICS[1]].strangers == {"c": 1}


def test_the_exchange_goes_on_for_a_late_carrier_and_until_it_is_wanted() -> None:
    clock = Clock()
    exchange([FakeWire(clock), FakeWire(clock, carrier_from=3)], clock)
    assert clock.now == pytest.approx(7, abs=0.6)
    clock = Clock()
    exchange([FakeWire(clock)], clock, wanted_from=20)
    assert clock.now == pytest.approx(22, abs=0.6)


def test_frames_without_carrier_are_not_counted_as_sent() -> None:
    clock = Clock()
    tallies = exchange([FakeWire(clock, carrier_from=1000)], clock)
    assert tallies[NICS[0]].sent == 0
    assert clock.now == pytest.approx(6, abs=0.3)


def test_nothing_to_probe_takes_no_time() -> None:
    clock = Clock()
    assert exchange([], clock) == {}
    assert clock.now == 0


class FakeLinks:
    """Stands for `ip link set` and the raw sockets of two netdevs, of which one is down and one does not exist."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.up = {"e0": False}
        self.calls: list[tuple[str, str]] = []
        self.refuse = ""
        monkeypatch.setattr(cabling_probe, "run", self.run)
        monkeypatch.setattr(cabling_probe, "PacketWire", self.wire)
        monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "e0")])

    def run(self, argv: Sequence[str]) -> None:
        netdev, state = argv[4], argv[5]
        self.calls.append((netdev, state))
        if state == self.refuse:
            raise HostError(f"ip link: {state} refused")
        self.up[netdev] = state == "up"

    def wire(self, netdev: str) -> Any:
        links = self

        class Wire(FakeWire):
            def up(self) -> bool:
                return links.up[netdev]

            def close(self) -> None:
                return

        return Wire(lambda: 0)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> FakeLinks:
    return FakeLinks(monkeypatch)


def observe(bring_up: bool) -> list[dict[str, Any]]:
    return cabling_probe.observe(NICS, ME, Timing(0, 0), bring_up, lambda: 0.0)


def quick(monkeypatch: pytest.MonkeyPatch, outcome: Any = None) -> None:
    def stand_in(wires: Any, *_rest: Any, **_more: Any) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return {nic: Tally(sent=3) for nic in wires}

    monkeypatch.setattr(cabling_probe, "exchange", stand_in)


def test_ports_are_set_up_for_the_probe_and_down_again(links: FakeLinks, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    rows = observe(bring_up=True)
    assert links.calls == [("e0", "up"), ("e0", "down")]
    assert [(row["netdev"], row["present"], row["was_up"], row["probed"], row["sent"]) for row in rows] == [
        ("e0", True, False, True, 3),
        ("e1", False, False, False, 0),
    ]


def test_ports_that_are_down_stay_so_without_consent(links: FakeLinks, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    rows = observe(bring_up=False)
    assert links.calls == []
    assert [row["probed"] for row in rows] == [False, False]


def test_ports_that_were_up_are_left_up(links: FakeLinks, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    links.up["e0"] = True
    assert observe(bring_up=True)[0]["was_up"]
    assert links.calls == []


@pytest.mark.parametrize("error", [HostError("stopped by SIGTERM"), KeyboardInterrupt()])
def test_an_error_sets_the_ports_down_too(
    links: FakeLinks, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    quick(monkeypatch, error)
    with pytest.raises(type(error)):
        observe(bring_up=True)
    assert links.calls[-1] == ("e0", "down")


def test_a_port_that_stays_up_is_named(links: FakeLinks, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    links.refuse = "down"
    with pytest.raises(HostError, match="e0 was down before the probe and could not be set down again"):
        observe(bring_up=True)


def test_no_right_to_raw_sockets_is_one_message(links: FakeLinks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(netdev: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(cabling_probe, "PacketWire", refuse)
    with pytest.raises(HostError, match=r"raw socket on e0: Operation not permitted; run as root"):
        observe(bring_up=True)


def test_frames_of_the_largest_names_fit() -> None:
    longest = Hello("r" * 128, "m" * 128, "n" * 128, "e" * 15, 1, 1)
    assert decode(encode(longest, "02:00:00:00:00:01")) == Received("02:00:00:00:00:01", longest)
