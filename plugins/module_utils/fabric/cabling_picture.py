# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all nodes heard in one run of the cabling probe, put together: who hears whom, and so which cable is where. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

RAILS = (0, 1)


@dataclass(frozen=True, order=True)
class End:
    """A cage of a node: one end of a cable."""

    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node} P{self.port}"


Cable = frozenset[End]


@dataclass(frozen=True, order=True)
class Place:
    """One rail of a cage."""

    end: End
    rail: int


@dataclass(frozen=True)
class Netdev:
    """What a node says of one of its netdevs. others: addresses of senders that are not of the probe."""

    place: Place
    name: str
    present: bool
    probed: bool
    carrier: bool
    mac: str
    heard: tuple[Mapping[str, Any], ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Observation:
    """One node's result of the probe."""

    node: str
    nonce: str
    machine: str
    machine_source: str
    hostname: str
    netdevs: tuple[Netdev, ...]


def parse_observation(result: Mapping[str, Any]) -> Observation:
    """From the result of the module fabric_cabling. Raises KeyError for anything else."""
    node = str(result["node"])
    netdevs = tuple(
        Netdev(
            place=Place(End(node, int(row["port"])), int(row["rail"])),
            name=str(row["netdev"]),
            present=bool(row["present"]),
            probed=bool(row["probed"]),
            carrier=bool(row["carrier"]),
            mac=str(row["mac"]),
            heard=tuple(row["heard"]),
            others=tuple(row["others"]),
        )
        for row in result["ports"]
    )
    return Observation(
        node=node,
        nonce=str(result["nonce"]),
        machine=str(result["machine"]),
        machine_source=str(result["machine_source"]),
        hostname=str(result["hostname"]),
        netdevs=netdevs,
    )


@dataclass(frozen=True)
class Picture:
    """nodes: that reported. hears: (receiver, sender). strangers: what an end hears that is no node's."""

    nodes: tuple[str, ...]
    netdevs: Mapping[Place, Netdev]
    hears: frozenset[tuple[Place, Place]]
    strangers: Mapping[End, tuple[str, ...]]

    def links(self) -> frozenset[tuple[End, End]]:
        """(receiver, sender), whatever the rails."""
        return frozenset((receiver.end, sender.end) for receiver, sender in self.hears)

    def cables(self) -> frozenset[Cable]:
        """Ends of which at least one hears the other."""
        return frozenset(frozenset(pair) for pair in self.links())

    def neighbours(self, end: End) -> tuple[End, ...]:
        return tuple(sorted({other for cable in self.cables() if end in cable for other in cable - {end}}))

    def ends(self) -> tuple[End, ...]:
        return tuple(sorted({place.end for place in self.netdevs}))

    def of(self, end: End) -> tuple[Netdev, ...]:
        return tuple(self.netdevs[Place(end, rail)] for rail in RAILS if Place(end, rail) in self.netdevs)

    def set_down(self, end: End) -> bool:
        """Whether the port was left alone because it was set down."""
        present = [netdev for netdev in self.of(end) if netdev.present]
        return bool(present) and not any(netdev.probed for netdev in present)

    def carrier(self, end: End) -> bool:
        return any(netdev.carrier for netdev in self.of(end))

    def state(self, end: End) -> str:
        """The end, for a person."""
        if end.node not in self.nodes:
            return f"{end.node} did not report"
        if not any(netdev.present for netdev in self.of(end)):
            return f"{end} is absent (the machine powers an unused port off)"
        if self.set_down(end):
            return f"{end} is set down and was not probed"
        if not self.carrier(end):
            return f"{end} has no carrier"
        others = self.neighbours(end)
        return (
            f"{end} is cabled to {' and '.join(map(str, others))}" if others else f"{end} has carrier and hears nothing"
        )

    def name(self, place: Place) -> str:
        """A rail of an end with its netdev, for a person."""
        netdev = self.netdevs.get(place)
        return f"{place.end} rail {place.rail} ({netdev.name if netdev else 'no netdev'})"


def picture(
    observations: Sequence[Observation],
    nodes: Sequence[str],
    left_out: Collection[str] = (),
    facing: Collection[End] = (),
) -> Picture:
    """nodes: that were asked; one that gave no result may be heard all the same, and tells nothing.

    Frames of another run, or of a machine that is not the node it names, are a stranger's. left_out: nodes of the inventory that were
    not asked; they are no strangers, nor is what sends at the ends that face them.
    """
    by_node = {observation.node: observation for observation in observations}
    netdevs = {netdev.place: netdev for observation in observations for netdev in observation.netdevs}
    runs = {observation.nonce for observation in observations}
    hears = set()
    strangers: dict[End, dict[str, None]] = {}
    for place, netdev in netdevs.items():
        for hello in netdev.heard:
            sender = by_node.get(hello["node"])
            if sender is None and hello["node"] in nodes and hello["nonce"] in runs:
                continue
            if hello["node"] in left_out:
                continue
            if sender is None or (sender.nonce, sender.machine) != (hello["nonce"], hello["machine"]):
                text = f"P{hello['port']} of a machine that calls itself {hello['node']} (machine {hello['machine']})"
                strangers.setdefault(place.end, {})[text] = None
            elif (far := End(hello["node"], hello["port"])) != place.end:  # its other rail is heard inside the adapter
                hears.add((place, Place(far, hello["rail"])))
    answered = {place.end for way in hears for place in way}
    for end, mac in _unknown_senders(netdevs):
        if end not in answered and end not in strangers and end not in facing:
            strangers[end] = {f"an unknown machine with the address {mac}": None}
    return Picture(tuple(by_node), netdevs, frozenset(hears), {end: tuple(texts) for end, texts in strangers.items()})


def _unknown_senders(netdevs: Mapping[Place, Netdev]) -> list[tuple[End, str]]:
    """Addresses that are of no fabric netdev of ours. Beside a node's own frames they may be of its containers."""
    own = {netdev.mac for netdev in netdevs.values()}
    return [(place.end, mac) for place, netdev in netdevs.items() for mac in netdev.others if mac not in own]


def same_machines(observations: Iterable[Observation]) -> list[tuple[Observation, Observation]]:
    """Nodes that are one and the same machine."""
    return [(one, two) for one, two in combinations(observations, 2) if one.machine == two.machine]
