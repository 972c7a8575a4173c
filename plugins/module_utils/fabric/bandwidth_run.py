# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs ib_write_bw: receivers as transient units that end by themselves, senders one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..host import HostError, run
from ..report.checks import Check
from . import bandwidth
from .bandwidth import Device, Rate, Settings
from .info import Function
from .ports import Port

CONNECT = 10.0  # seconds until a receiver must have started
MARGIN = 30.0  # seconds beyond the duration for connecting and ending


def devices(ports: Sequence[Port], functions: Mapping[str, Function]) -> dict[str, Device]:
    """Device and GID of each leg that has both, by netdev; looked up now, since the index moves."""
    found = {}
    for port in ports:
        function = functions.get(port.netdev)
        if function is not None and function.rdma_device and function.gid_index is not None:
            found[port.netdev] = Device(function.rdma_device, function.gid_index)
    return found


def listen(ports: Sequence[Port], known: Mapping[str, Device], settings: Settings, lifetime: int) -> list[str]:
    """Start a receiver for each measurement of each leg, and return the units; one from an earlier run is replaced.

    lifetime in seconds: systemd ends a receiver that nobody used.
    """
    stop(settings)
    units = []
    for port in ports:
        for together in (False, True) if port.netdev in known else ():
            tcp_port = bandwidth.listening_port(ports, port, together, settings)
            units.append(bandwidth.unit_name(tcp_port))
            properties = [f"RuntimeMaxSec={lifetime}", "LimitMEMLOCK=infinity", "StandardOutput=null"]
            run(
                [
                    *("systemd-run", "--quiet", "--collect", f"--unit={units[-1]}"),
                    *(f"--property={one}" for one in properties),
                    "--",
                    *bandwidth.argv(known[port.netdev], settings, tcp_port),
                ]
            )
    return units


def stop(settings: Settings) -> None:
    """End what listens, and forget what failed."""
    names = [bandwidth.unit_name(settings.first_port + offset) for offset in range(bandwidth.TCP_PORTS)]
    run(["systemctl", "stop", *names], check=False)
    run(["systemctl", "reset-failed", *names], check=False)


def measure(
    node: str, ports: Sequence[Port], up: Sequence[Port], known: Mapping[str, Device], settings: Settings
) -> list[Check]:
    """Each leg of ``up`` alone, then all rails of each cable at once. ports: all that the node has."""
    checks = []
    for legs in bandwidth.cables(up):
        alone = {port.netdev: _send(ports, port, known, settings, together=False) for port in legs}
        checks += [bandwidth.leg_check(node, port, alone[port.netdev], settings) for port in legs]
        if len(legs) > 1 and all(rate.gbps is not None for rate in alone.values()):
            with ThreadPoolExecutor(max_workers=len(legs)) as pool:
                sent = [pool.submit(_send, ports, port, known, settings, together=True) for port in legs]
                both = {port.netdev: future.result() for port, future in zip(legs, sent, strict=True)}
            checks.append(bandwidth.sum_check(node, legs, both, settings))
    return checks


def _send(ports: Sequence[Port], port: Port, known: Mapping[str, Device], settings: Settings, together: bool) -> Rate:
    device = known.get(port.netdev)
    if device is None:
        return Rate(None, f"no RDMA device with a RoCE v2 GID for {port.address} at {port.netdev}")
    tcp_port = bandwidth.sending_port(ports, port, together, settings)
    return attempt(lambda: _run(bandwidth.argv(device, settings, tcp_port, port.peer_address), settings))


def _run(argv: Sequence[str], settings: Settings) -> Rate:
    try:
        done = run(argv, timeout=settings.duration + MARGIN, check=False)
    except HostError as error:
        return Rate(None, str(error))
    return bandwidth.parse(done.stdout, done.stderr, done.rc)


def attempt(
    work: Callable[[], Rate],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Rate:
    """Try again while the receiver is not there, for up to CONNECT seconds; the last answer counts."""
    deadline = clock() + CONNECT
    while True:
        rate = work()
        if not bandwidth.refused(rate) or clock() >= deadline:
            return rate
        sleep(1.0)
