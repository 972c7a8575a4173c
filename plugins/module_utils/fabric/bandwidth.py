# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA bandwidth of the legs: how ib_write_bw is called, what it said, and what that means; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..report.checks import Check
from .ports import Port

# An adapter that started up degraded: link, PCIe and counters are clean, RDMA and TCP are slow (NVIDIA dgx-spark-playbooks PR #108).
DEGRADED = (8.0, 25.0)  # Gb/s
TCP_PORTS = 8  # two cages, two rails, alone and together

_HEADER = re.compile(r"^\s*#bytes\s.*BW average\[Gb/sec\]", re.MULTILINE)
_ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)(?:\s+[\d.]+)?\s*$", re.MULTILINE)
_NOISE = re.compile(r"^(?:\s*$|[-*\s]+$|\s*WARNING: BW peak|Conflicting CPU frequency)")
_SLOT_COUNT = 2


@dataclass(frozen=True)
class Settings:
    """duration in seconds; message_size in bytes; first_port: TCP; minimum, minimum_sum in Gb/s."""

    duration: int = 5
    message_size: int = 1048576
    first_port: int = 12000
    minimum: float = 80.0
    minimum_sum: float = 170.0


@dataclass(frozen=True)
class Device:
    """The RDMA device of a leg's own end, and the index of its RoCE v2 GID."""

    name: str
    gid_index: int


@dataclass(frozen=True)
class Rate:
    """Average in Gb/s, or None and the reason why there is none."""

    gbps: float | None
    reason: str = ""


def argv(device: Device, settings: Settings, tcp_port: int, peer: str = "") -> list[str]:
    """The call of the sender, or with no peer that of the receiver; both ends need the same size and duration."""
    return [
        "ib_write_bw",
        *("-d", device.name),
        *("-i", "1"),
        *("-x", str(device.gid_index)),
        *("-p", str(tcp_port)),
        *("-s", str(settings.message_size)),
        *("-D", str(settings.duration)),
        "-F",  # a CPU that changes its frequency is no reason to stop
        "--report_gbits",
        *([peer] if peer else []),
    ]


def listening_port(ports: Sequence[Port], port: Port, together: bool, settings: Settings) -> int:
    """TCP port on which this node waits for the sender of a leg."""
    return _tcp_port(port.port if _both_cages(ports) else 0, port.rail, together, settings)


def sending_port(ports: Sequence[Port], port: Port, together: bool, settings: Settings) -> int:
    """TCP port on which the other end of a leg waits: on a ring a cable ends in the other cage."""
    return _tcp_port(1 - port.port if _both_cages(ports) else 0, port.rail, together, settings)


def _both_cages(ports: Sequence[Port]) -> bool:
    return len({port.port for port in ports}) == _SLOT_COUNT


def _tcp_port(cage: int, rail: int, together: bool, settings: Settings) -> int:
    return settings.first_port + 4 * cage + 2 * rail + int(together)


def unit_name(tcp_port: int) -> str:
    return f"gb10-ring-bandwidth-{tcp_port}.service"


def parse(stdout: str, stderr: str, rc: int) -> Rate:
    """The average of the last row under the header, or what ib_write_bw complained about."""
    header = _HEADER.search(stdout)
    rows = _ROW.findall(stdout, header.end()) if header else []
    if rc == 0 and rows:
        return Rate(float(rows[-1]))
    lines = [line.strip() for line in (*stderr.splitlines(), *stdout.splitlines()) if not _NOISE.match(line)]
    complaint = next((line for line in lines if _complains(line)), lines[-1] if lines else "no output")
    return Rate(None, complaint)


def _complains(line: str) -> bool:
    return (
        re.search(r"fail|error|couldn't|unable|not found|did not detect|not supported", line, re.IGNORECASE) is not None
    )


def refused(rate: Rate) -> bool:
    """Whether the receiver was not there yet."""
    return rate.gbps is None and "connect" in rate.reason.lower()


def lifetime(nodes: int, settings: Settings) -> int:
    """Seconds that a receiver may have to wait: every node measures two cables, three times each, with time to connect."""
    return 60 + nodes * 2 * 3 * (settings.duration + 10)


def measurable(ports: Sequence[Port], down: Sequence[str], listening: Sequence[str] = ()) -> list[Port]:
    """The legs that are not known to be down. listening: the nodes that listen; none: all."""
    return [port for port in ports if port.netdev not in down and (not listening or port.peer in listening)]


def unmeasured_check(node: str, ports: Sequence[Port], listening: Sequence[str]) -> Check | None:
    """That nobody listens at the other end of some legs, where that is so. listening: as in measurable."""
    legs = [port for port in ports if listening and port.peer not in listening]
    if not legs:
        return None
    far = ", ".join(sorted({port.peer for port in legs}))
    return Check(
        id="fabric.bandwidth",
        node=node,
        ok=False,
        found=f"{', '.join(port.netdev for port in legs)} not measured: {far} outside of this run",
        expected="both ends of each leg in the run",
        cure="run it on all nodes, without --limit, to measure these legs",
        severity="info",
    )


def cables(ports: Sequence[Port]) -> list[list[Port]]:
    """The legs of each cage, rail 0 first."""
    return [
        sorted((port for port in ports if port.port == cage), key=lambda port: port.rail)
        for cage in sorted({port.port for port in ports})
    ]


def leg_check(node: str, port: Port, rate: Rate, settings: Settings) -> Check:
    """One rail alone, from this node to the peer."""
    degraded = rate.gbps is not None and DEGRADED[0] <= rate.gbps <= DEGRADED[1]
    ok = rate.gbps is not None and rate.gbps >= settings.minimum
    note = ", an adapter that started up degraded" if degraded and not ok else ""
    return Check(
        id="fabric.bandwidth",
        node=node,
        netdevs=(port.netdev,),
        ok=ok,
        found=f"{_text(rate)} from {port.label}{note}",
        expected=f"at least {settings.minimum:g} Gb/s",
        cure=_cure(node, port, rate, degraded),
    )


def _cure(node: str, port: Port, rate: Rate, degraded: bool) -> str:
    if rate.gbps is None:
        return (
            f"run ib_write_bw by hand between {node} and {port.peer}; perftest has to be installed on both (role rdma)"
        )
    if degraded:
        return (
            f"shut {node} and {port.peer} down, take their power cords out for a minute, and boot with the cables in; link, PCIe "
            "speed and counters look right in this state"
        )
    return (
        f"try another cable on port {port.port} of {node}; see that nothing else uses the fabric while it is measured"
    )


def sum_check(node: str, legs: Sequence[Port], rates: Mapping[str, Rate], settings: Settings) -> Check:
    """All rails of a cable at once, from this node to the peer."""
    given = [rates[port.netdev] for port in legs]
    known = [rate.gbps for rate in given if rate.gbps is not None]
    total = sum(known)
    parts = " + ".join(_text(rate) for rate in given)
    return Check(
        id="fabric.bandwidth_sum",
        node=node,
        ok=len(known) == len(given) and total >= settings.minimum_sum,
        found=f"{total:.2f} Gb/s ({parts}) from port {legs[0].port} to {legs[0].peer}",
        expected=f"at least {settings.minimum_sum:g} Gb/s over both rails at once",
        cure=f"see that both functions of the port have their own PCIe link (fabric.pcie) on {node} and {legs[0].peer}; "
        "reboot both with the cables in",
    )


def _text(rate: Rate) -> str:
    return f"no result ({rate.reason})" if rate.gbps is None else f"{rate.gbps:.2f} Gb/s"
