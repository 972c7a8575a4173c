# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name that Linux gives to the RDMA device of a ConnectX function."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .model import RAILS, PortPairs
from .values import Problems

# enp1s0f0np0 -> rocep1s0f0, enP2p1s0f1np1 -> roceP2p1s0f1: both names come from the PCI path.
_BY_PCI_PATH = re.compile(r"en((?:P\d+)?p\d+s\d+(?:f\d+)?)(?:np\d+)?")


def rdma_device_of(netdev: str) -> str | None:
    """The RDMA device behind a netdev named by PCI path, None for any other name."""
    match = _BY_PCI_PATH.fullmatch(netdev)
    return f"roce{match.group(1)}" if match else None


def rdma_pairs(
    problems: Problems, key: str, netdevs: PortPairs, given: PortPairs, used: Sequence[int]
) -> Mapping[int, tuple[str, str]]:
    """RDMA device names by port: given ones first, else derived; a used port without either is a problem."""
    pairs = dict(given)
    for port in used:
        if port in pairs:
            continue
        names = [rdma_device_of(netdevs[port][rail]) for rail in RAILS]
        if names[0] is not None and names[1] is not None:
            pairs[port] = (names[0], names[1])
            continue
        rail = names.index(None)
        found = f"no entry for netdev '{netdevs[port][rail]}', whose name is not of the form enp1s0f0np0"
        problems.add(key, found, f"{{{port}: [name of rail 0, name of rail 1]}} (see 'rdma link')")
    return pairs
