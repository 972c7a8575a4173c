# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a topology file says once it is known to be right, and what is reported when it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

Shape = Literal["ring", "pair", "switch"]
PortPairs = Mapping[int, tuple[str, str]]  # port -> the names of its rail 0 and rail 1

PORTS = (0, 1)
RAILS = (0, 1)
LEG_PREFIX = 24  # NCCL's subnet-aware routing compares /24 by default (NCCL_IB_SUBNET_PREFIX_LEN, NCCL 2.30.7)

# Shape -> fewest and most nodes. A rank's address ends in rank + 1 on every leg.
NODE_COUNTS: Mapping[Shape, tuple[int, int]] = {"ring": (2, 8), "pair": (2, 2), "switch": (2, 8)}

# Names of DGX OS (NVIDIA connect-three-sparks README): port 0 is the cage beside the RJ45 socket.
DEFAULT_NETDEVS: PortPairs = {0: ("enp1s0f0np0", "enP2p1s0f0np0"), 1: ("enp1s0f1np1", "enP2p1s0f1np1")}

# Shape -> port that the cable is in when a node does not say; a ring uses both ports.
# Switch: NVIDIA multi-sparks-through-switch README. Pair: the same port on both nodes, as in NVIDIA connect-two-sparks.
DEFAULT_PORT: Mapping[Shape, int] = {"pair": 0, "switch": 1}


@dataclass(frozen=True)
class Problem:
    """One thing wrong in the file.

    key: path of the setting (``nodes[2].management_address``), empty for the whole file.
    found: what stands there. allowed: what may stand there, and the cure where it is not obvious.
    """

    key: str
    found: str
    allowed: str

    def __str__(self) -> str:
        where = f"{self.key}: " if self.key else ""
        return f"{where}found {self.found}; allowed: {self.allowed}"


class TopologyError(Exception):
    """Everything that is wrong in one topology file."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems

    def message(self, path: str) -> str:
        """The text for the user: the file, then a line for each problem."""
        if len(self.problems) == 1:
            return f"{path}: {self.problems[0]}"
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        return f"{path}: {len(self.problems)} problems:{lines}"


@dataclass(frozen=True)
class Node:
    """One machine. netdevs, rdma_devices: by port, after all overrides. port: the cabled one, None in a ring (both are)."""

    name: str
    management_address: IPv4Address
    port: int | None
    netdevs: PortPairs
    rdma_devices: PortPairs
    extra: Mapping[str, object]


@dataclass(frozen=True)
class LegOverride:
    """What the file says of one leg. key: its place in the file (``legs[0]``).

    subnet: None keeps the supernet's. addresses: by rank; a rank that is left out keeps its own.
    """

    key: str
    subnet: IPv4Network | None
    addresses: Mapping[int, IPv4Address]


@dataclass(frozen=True)
class Topology:
    """A checked topology file; the position of a node in ``nodes`` is its rank. mtu in bytes. overrides: by leg index."""

    shape: Shape
    nodes: tuple[Node, ...]
    supernet: IPv4Network
    mtu: int
    management_interface: str
    overrides: Mapping[int, LegOverride] = field(default_factory=dict)
