# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends and hears the frames of the cabling probe on this machine's fabric netdevs."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..host import HostError, run
from .cabling_nics import Nic
from .cabling_window import Tally, Timing, Wanted, Window
from .frames import Hello, Received, decode, encode, filter_program

INTERVAL = 0.25  # seconds between two frames of a netdev
_ALL_PROTOCOLS = 3  # ETH_P_ALL
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
_GET_FLAGS = 0x8913  # SIOCGIFFLAGS
_FLAG_UP, _FLAG_RUNNING = 0x1, 0x40


class Wire(Protocol):
    """One netdev, as the exchange needs it."""

    mac: str

    def fileno(self) -> int: ...
    def send(self, frame: bytes) -> bool: ...
    def receive(self) -> Received | None: ...
    def carrier(self) -> bool: ...


class PacketWire:
    """A raw socket on a netdev. Raises HostError when there is none to be had."""

    def __init__(self, netdev: str) -> None:
        self._netdev = netdev
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, 0
        )  # deaf until it is bound: no frame of other netdevs
        try:
            program = ctypes.create_string_buffer(filter_program())
            pointer = struct.pack("@HP", len(filter_program()) // 8, ctypes.addressof(program))
            self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, pointer)
            self._socket.bind((netdev, _ALL_PROTOCOLS))
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise
        self.mac = self._socket.getsockname()[4].hex(":")

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes) -> bool:
        try:
            return self._socket.send(frame) == len(frame)
        except OSError:  # down, or no room in the queue: counted as not sent
            return False

    def receive(self) -> Received | None:
        """The next frame from the wire; None when there is none, or it is one that this machine sends itself."""
        try:
            frame, address = self._socket.recvfrom(2048)
        except OSError:  # nothing there, or the netdev went down: seen as no carrier
            return None
        return None if address[2] == socket.PACKET_OUTGOING else decode(frame)

    def flags(self) -> int:
        try:
            reply = fcntl.ioctl(self._socket, _GET_FLAGS, struct.pack("@16sH22x", self._netdev.encode(), 0))
        except OSError:  # the netdev is gone
            return 0
        return int(struct.unpack("@16sH22x", reply)[1])

    def up(self) -> bool:
        return bool(self.flags() & _FLAG_UP)

    def carrier(self) -> bool:
        return bool(self.flags() & _FLAG_RUNNING)

    def close(self) -> None:
        self._socket.close()


def exchange(
    wires: Mapping[Nic, Wire],
    hello: Callable[[Nic], Hello],
    timing: Timing,
    wanted: Wanted,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[list[Any], float], list[Any]] | None = None,
) -> dict[Nic, Tally]:
    """Send on every wire and count what each hears until the window closes."""
    wait = wait or _readable
    tallies = {nic: Tally() for nic in wires}
    frames = {nic: encode(hello(nic), wire.mac) for nic, wire in wires.items()}
    if not wires:
        return tallies
    window = Window(clock(), timing)
    carriers: set[Nic] = set()
    due = clock()
    while True:
        now = clock()
        if now >= due:
            due = now + INTERVAL
            for nic, wire in wires.items():
                tallies[nic].sent += wire.send(frames[nic])
            alive = {nic for nic, wire in wires.items() if wire.carrier()}
            if alive - carriers:
                window.gained(now)
            carriers = alive
            since = wanted()
            if since is not None:
                window.wanted(now, since)
            if window.closed(now, waiting=len(alive) < len(wires)):
                return tallies
        for wire in wait(list(wires.values()), max(due - now, 0)):
            _drain(wire, tallies[_nic_of(wires, wire)], window, now)


def _readable(wires: list[Any], seconds: float) -> list[Any]:
    return select.select(wires, [], [], seconds)[0]


def _nic_of(wires: Mapping[Nic, Wire], wanted: Wire) -> Nic:
    return next(nic for nic, wire in wires.items() if wire is wanted)


def _drain(wire: Wire, tally: Tally, window: Window, now: float) -> None:
    received = wire.receive()
    if received is not None and tally.add(received):
        window.met(now)


def observe(nics: Sequence[Nic], sender: Hello, timing: Timing, bring_up: bool, wanted: Wanted) -> list[dict[str, Any]]:
    """Run the probe; a dictionary for each netdev. sender: what all frames of this machine have in common. Raises HostError."""
    wires, absent = _open(nics)
    with _closing(wires):
        was_up = {nic: wire.up() for nic, wire in wires.items()}
        probed = {nic: wire for nic, wire in wires.items() if was_up[nic] or bring_up}
        with _set_up([nic.netdev for nic in probed if not was_up[nic]]):
            tallies = exchange(
                probed, lambda nic: replace(sender, netdev=nic.netdev, port=nic.port, rail=nic.rail), timing, wanted
            )
            carriers = {nic: wire.carrier() for nic, wire in probed.items()}
        rows = []
        for nic in nics:
            row: dict[str, Any] = {
                "netdev": nic.netdev,
                "port": nic.port,
                "rail": nic.rail,
                "present": nic not in absent,
            }
            tally = tallies.get(nic, Tally())
            row |= {"mac": wires[nic].mac if nic in wires else "", "was_up": was_up.get(nic, False)}
            row |= {"probed": nic in probed, "carrier": carriers.get(nic, False), "sent": tally.sent}
            rows.append(row | {"heard": tally.listing(), "others": sorted(tally.strangers)})
        return rows


def _open(nics: Sequence[Nic]) -> tuple[dict[Nic, PacketWire], set[Nic]]:
    """A socket for each netdev, and the netdevs that do not exist: DGX OS powers unused ports off."""
    wires: dict[Nic, PacketWire] = {}
    absent = set()
    present = {name for _index, name in socket.if_nameindex()}
    for nic in nics:
        if nic.netdev not in present:
            absent.add(nic)
            continue
        try:
            wires[nic] = PacketWire(nic.netdev)
        except OSError as error:
            for wire in wires.values():
                wire.close()
            cure = "; run as root (become: true)" if isinstance(error, PermissionError) else ""
            raise HostError(f"cannot open a raw socket on {nic.netdev}: {error.strerror}{cure}") from error
    return wires, absent


@contextlib.contextmanager
def _closing(wires: Mapping[Nic, PacketWire]) -> Iterator[None]:
    try:
        yield
    finally:
        for wire in wires.values():
            wire.close()


@contextlib.contextmanager
def _set_up(netdevs: Sequence[str]) -> Iterator[None]:
    """Set netdevs up, and down again whatever happens, the end of the SSH session included."""
    stops = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.signal(number, _stop) for number in stops}
    done: list[str] = []
    try:
        for netdev in netdevs:
            done.append(netdev)
            run(["ip", "link", "set", "dev", netdev, "up"])
        yield
    finally:
        problems = [_set_down(netdev) for netdev in done]
        for number, handler in before.items():
            signal.signal(number, handler)
        if any(problems):
            raise HostError("; ".join(filter(None, problems)))


def _stop(number: int, _frame: object) -> None:
    raise HostError(f"stopped by {signal.Signals(number).name}")


def _set_down(netdev: str) -> str:
    try:
        run(["ip", "link", "set", "dev", netdev, "down"])
    except HostError as error:
        return f"{netdev} was down before the probe and could not be set down again: {error}"
    return ""
