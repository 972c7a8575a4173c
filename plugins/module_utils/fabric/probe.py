# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking at the legs of this machine: waiting for addresses, pinging the other ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ..host import HostError, run
from .checks import Ping, can_ping, parse_ping, ping_argv, settled
from .info import Function, functions
from .ladder import Route, Seen, parse_devinfo, parse_route
from .links import Link, read_links
from .ports import Port
from .rdma import Port as Planned
from .sysfs import snapshot

POLL = 0.5  # seconds between two looks
SMALL = 84  # bytes on the wire: ping's own default

Result = TypeVar("Result")


@dataclass(frozen=True)
class Observation:
    """The interfaces by name, and the pings by netdev of the legs whose own end is ready."""

    links: dict[str, Link]
    pings: dict[str, Ping]


def observe(
    ports: Sequence[Port],
    mtu: int,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Observation:
    """Look until every leg answers or ``timeout`` seconds have passed, and return the last state.

    Carrier comes when both ends are up and the address after that, so right after a change the first look may be too early.
    """
    deadline = clock() + timeout
    pings: dict[str, Ping] = {}
    while True:
        links = read_links()
        ready = [port for port in ports if can_ping(port, links.get(port.netdev), mtu)]
        answered = {port.netdev for port in ready if port.netdev in pings and pings[port.netdev].ok}
        tried = _ping_all([port for port in ready if port.netdev not in answered], mtu)
        pings = {name: ping for name, ping in pings.items() if name in answered} | tried
        waiting = [port for port in ports if not settled(port, links.get(port.netdev), mtu)]
        if (not waiting and all(ping.ok for ping in pings.values())) or clock() >= deadline:
            break
        sleep(POLL)
    return Observation(links, pings | _diagnose([port for port in ports if port.netdev in pings], pings))


def survey(ports: Sequence[Port], mtu: int, timeout: float, root: Path) -> Seen:
    """Wait as observe() does, then look at hardware, routes and RDMA of every leg; root stands for /sys."""
    first = observe(ports, mtu, timeout)
    return Seen(
        links=first.links,
        pings=first.pings,
        functions=look(ports, root),
        routes=_parallel(ports, route),
        verbs=verbs_mtus(),
    )


def look(ports: Sequence[Port], root: Path) -> dict[str, Function]:
    """The netdevs of the fabric that are there, by name."""
    planned = [Planned(port.port, port.rail, port.netdev, port.rdma_device, port.address) for port in ports]
    found = functions(snapshot(root, [port.netdev for port in ports]), {}, planned)
    return {function.netdev: function for function in found if function.present}


def route(port: Port) -> Route:
    """Where this machine sends packets for the other end."""
    done = run(["ip", "-j", "route", "get", port.peer_address], check=False)
    try:
        return parse_route(done.stdout if done.rc == 0 else "", (done.stderr.strip() or "no answer").splitlines()[-1])
    except ValueError as error:
        raise HostError(f"{' '.join(done.argv)}: not the JSON that was expected: {error}") from error


def verbs_mtus() -> dict[str, int]:
    """Active MTU by RDMA device, where ibv_devinfo is installed and finds devices; else empty."""
    try:
        return parse_devinfo(run(["ibv_devinfo"], check=False).stdout)
    except HostError:
        return {}


def _ping_all(ports: Sequence[Port], mtu: int) -> dict[str, Ping]:
    return _parallel(ports, lambda port: ping(port, mtu))


def _diagnose(ports: Sequence[Port], pings: dict[str, Ping]) -> dict[str, Ping]:
    """Failed pings, each with the answer to a small one: only the large fail where the other end's MTU is wrong."""
    failed = [port for port in ports if not pings[port.netdev].ok]
    return _parallel(failed, lambda port: replace(pings[port.netdev], small=ping(port, SMALL, count=1).ok))


def ping(port: Port, size: int, count: int = 2) -> Ping:
    done = run(ping_argv(port, size, count), timeout=30.0, check=False)
    return parse_ping(done.stdout, done.stderr)


def _parallel(ports: Sequence[Port], work: Callable[[Port], Result]) -> dict[str, Result]:
    if not ports:
        return {}
    with ThreadPoolExecutor(max_workers=len(ports)) as pool:
        return dict(zip((port.netdev for port in ports), pool.map(work, ports), strict=True))
