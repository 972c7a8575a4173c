# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which port is cabled to which, and what a cut, a swap or a node without power changes. Pure.

A cable carries both rails of a port. A leg is two veth pairs whose far ends meet in a bridge of the namespace `cables`: a port
keeps its netdev and its settings while its cable is cut, and loses its carrier only, as on the machine. A cable of which one plug lies
on the floor gives no carrier either. On a crossed cable rail 0 of one end meets rail 1 of the other. A deaf port sends, and hears nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from .instance import MAX_NODES, LabError, node_name

SHAPES = ("ring", "pair", "switch")
# netdev of (port, rail): NVIDIA connect-three-sparks README
NETDEVS = {
    (0, 0): "enp1s0f0np0",
    (0, 1): "enP2p1s0f0np0",
    (1, 0): "enp1s0f1np1",
    (1, 1): "enP2p1s0f1np1",
}
RAILS = (0, 1)
SWITCH_PORT = 1  # the port that NVIDIA's multi-sparks-through-switch README cables


@dataclass(frozen=True, order=True)
class Port:
    """A QSFP cage of a node."""

    node: int
    number: int

    def __str__(self) -> str:
        return f"{node_name(self.node)}:{self.number}"

    def link(self, rail: int) -> str:
        """Name of the far end of the port's veth pair, in the namespace `cables`."""
        return f"n{self.node}p{self.number}r{rail}"

    @classmethod
    def parse(cls, text: str) -> Port:
        found = re.fullmatch(r"spark([1-8]):([01])", text)
        if not found:
            raise LabError(f"port {text!r}: NODE:PORT is expected, for example spark1:0")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True)
class State:
    """What the instance is and how it is cabled now; kept as JSON in the instance's folder."""

    shape: str
    nodes: int
    data_mib: int
    plugs: tuple[tuple[Port, str], ...]  # which cable is in which port
    cut: frozenset[str] = frozenset()
    off: frozenset[int] = frozenset()  # nodes without power
    crossed: frozenset[str] = frozenset()  # cables that join rail 0 to rail 1
    deaf: frozenset[Port] = frozenset()
    layer: str = ""  # what the nodes have on top of the base

    def ports(self) -> list[Port]:
        return [Port(node, number) for node in self.numbers() for number in (0, 1)]

    def numbers(self) -> range:
        return range(1, self.nodes + 1)

    def names(self) -> list[str]:
        return [node_name(number) for number in self.numbers()]

    def cables(self) -> dict[str, tuple[Port, ...]]:
        ends: dict[str, tuple[Port, ...]] = {}
        for port, cable in self.plugs:
            ends[cable] = (*ends.get(cable, ()), port)
        return ends

    def cable_names(self) -> list[str]:
        """The cables that the lab was made with, plugged in or not."""
        return [f"cable{number}" for number in (self.numbers() if self.shape != "pair" else (1,))]

    def bridge(self, cable: str, rail: int) -> str:
        return f"{'switch' if self.shape == 'switch' else cable}r{rail}"

    def bridges(self) -> list[str]:
        return sorted({self.bridge(cable, rail) for cable in self.cables() for rail in RAILS})

    def carries(self, cable: str) -> bool:
        """Whether the cable gives its ends a carrier: not cut, plugged in at both ends, and power on there."""
        ends = self.cables()[cable]
        whole = len(ends) == 2 or self.shape == "switch"
        return whole and cable not in self.cut and not any(port.node in self.off for port in ends)

    def bridge_of(self, port: Port, rail: int) -> str | None:
        """Where the far end of a port's rail belongs; None without a cable."""
        cable = dict(self.plugs).get(port)
        if cable is None:
            return None
        turned = cable in self.crossed and port == max(self.cables()[cable])
        return self.bridge(cable, 1 - rail if turned else rail)

    def to_json(self) -> str:
        content = {
            "shape": self.shape,
            "nodes": self.nodes,
            "data_mib": self.data_mib,
            "plugs": {str(port): cable for port, cable in self.plugs},
            "cut": sorted(self.cut),
            "off": sorted(self.off),
            "crossed": sorted(self.crossed),
            "deaf": sorted(map(str, self.deaf)),
            "layer": self.layer,
        }
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> State:
        content = json.loads(text)
        plugs = tuple((Port.parse(port), cable) for port, cable in content["plugs"].items())
        cut, off, crossed = (frozenset(content[name]) for name in ("cut", "off", "crossed"))
        deaf = frozenset(map(Port.parse, content["deaf"]))
        sizes = (content["shape"], content["nodes"], content["data_mib"])
        return cls(*sizes, plugs, cut, off, crossed, deaf, content.get("layer", ""))


def plan(shape: str, nodes: int, data_mib: int, layer: str = "") -> State:
    """The factory cabling of a shape. Raises LabError for a size that the shape cannot have."""
    if shape not in SHAPES:
        raise LabError(f"shape {shape!r}: one of {', '.join(SHAPES)} is expected")
    if shape == "pair" and nodes != 2:
        raise LabError(f"a pair has 2 nodes, not {nodes}")
    if not 2 <= nodes <= MAX_NODES:
        raise LabError(f"{nodes} nodes: 2 to {MAX_NODES} are expected")
    plugs: dict[Port, str] = {}
    if shape == "pair":  # NVIDIA connect-two-sparks README: the same port on both
        plugs = {Port(1, 0): "cable1", Port(2, 0): "cable1"}
    elif shape == "switch":
        plugs = {Port(node, SWITCH_PORT): f"cable{node}" for node in range(1, nodes + 1)}
    else:
        for node in range(1, nodes + 1):
            plugs[Port(node, 0)] = plugs[Port(node % nodes + 1, 1)] = f"cable{node}"
    return State(shape, nodes, data_mib, tuple(sorted(plugs.items())), layer=layer)


def resolve(state: State, text: str) -> str:
    """The cable that text names: by its own name, or by a port that it is plugged into."""
    if text in state.cables():
        return text
    if ":" not in text:
        raise LabError(f"cable {text!r}: one of {', '.join(sorted(state.cables()))}, or NODE:PORT, is expected")
    cable = dict(state.plugs).get(Port.parse(text))
    if cable is None:
        raise LabError(f"no cable is plugged into {text}")
    return cable


def set_cut(state: State, cable: str, cut: bool) -> State:
    return replace(state, cut=state.cut | {cable} if cut else state.cut - {cable})


def _known(state: State, *texts: str) -> list[Port]:
    ports = [Port.parse(text) for text in texts]
    for port in ports:
        if port not in state.ports():
            raise LabError(f"{port}: this lab has the nodes {', '.join(state.names())}")
    return ports


def swap(state: State, first: str, second: str) -> State:
    """Exchange the plugs in two ports; one of the ports may be empty."""
    left, right = _known(state, first, second)
    plugs = dict(state.plugs)
    if left == right or not {left, right} & set(plugs):
        raise LabError(f"{left} and {right}: two ports, at least one of them with a cable, are expected")
    cables = {left: plugs.pop(right, None), right: plugs.pop(left, None)}
    plugs.update({port: cable for port, cable in cables.items() if cable is not None})
    return replace(state, plugs=tuple(sorted(plugs.items())))


def connect(state: State, first: str, second: str, crossed: bool) -> State:
    """One cable from port to port: the one in the first, else in the second, else one that lies about.

    Plugs that stood in the way, and the other end of the cable, hang loose.
    """
    left, right = _known(state, first, second)
    if left == right or state.shape == "switch":
        raise LabError(f"{left} and {right}: two ports of a lab without a switch are expected")
    plugs = dict(state.plugs)
    spare = [name for name in state.cable_names() if name not in plugs.values()]
    cable = plugs.get(left) or plugs.get(right) or next(iter(spare), None)
    if cable is None:
        raise LabError(f"no cable is left: {', '.join(state.cable_names())} are plugged in elsewhere")
    plugs = {port: name for port, name in plugs.items() if name != cable and port not in (left, right)}
    plugs |= {left: cable, right: cable}
    marked = state.crossed | {cable} if crossed else state.crossed - {cable}
    return replace(state, plugs=tuple(sorted(plugs.items())), crossed=marked)


def set_deaf(state: State, text: str, deaf: bool) -> State:
    """Whether what others send reaches a port; what it sends itself arrives all the time."""
    port = set(_known(state, text))
    return replace(state, deaf=state.deaf | port if deaf else state.deaf - port)


def pulled(state: State, *ports: str) -> State:
    """The state while the cables in these ports are in somebody's hand."""
    cables = {cable for port, cable in state.plugs if str(port) in ports}
    return replace(state, cut=state.cut | cables)


def set_power(state: State, node: int, on: bool) -> State:
    return replace(state, off=state.off - {node} if on else state.off | {node})


def number_of(state: State, name: str) -> int:
    """The node's number. Raises LabError when the lab has no node of that name."""
    if name not in state.names():
        raise LabError(f"node {name!r}: one of {', '.join(state.names())} is expected")
    return state.names().index(name) + 1


def mac(node: int, port: int, rail: int) -> str:
    """A fixed address per port and rail, under an NVIDIA prefix as on the machine; ff for the management port."""
    return f"4c:bb:47:{node:02x}:{rail:02x}:{port:02x}"


def link_commands(state: State) -> list[str]:
    """`ip -batch` lines for the namespace `cables` that bring the far ends of all ports into the state's cabling."""
    lines = []
    plugs = dict(state.plugs)
    for port in state.ports():
        if port.node in state.off:
            continue  # its netdevs are gone with its power, or about to be made again
        cable = plugs.get(port)
        for rail in RAILS:
            name = port.link(rail)
            if cable is None:
                lines.append(f"link set dev {name} nomaster down")
                continue
            up = "up" if state.carries(cable) else "down"
            hears = "off" if port in state.deaf else "on"
            lines.append(f"link set dev {name} master {state.bridge_of(port, rail)} {up}")
            # A bridge that knows no address floods everything, and to this port nothing is flooded.
            floods = " ".join(f"{kind} {hears}" for kind in ("flood", "mcast_flood", "bcast_flood"))
            lines.append(f"link set dev {name} type bridge_slave learning off {floods}")
    return lines
