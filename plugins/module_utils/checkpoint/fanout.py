# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who fetches which file from whom, so that every byte leaves the object store once for all nodes. Values in, values out."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from .config_edit import CONFIG
from .manifest import File


class FanoutError(ValueError):
    """Nodes that cannot share; its text is the message for the user."""


@dataclass(frozen=True)
class End:
    """A fabric address of a node. subnet: in CIDR form; the nodes with an end in it reach each other directly."""

    address: str
    netdev: str
    subnet: str


@dataclass(frozen=True)
class Node:
    """lacks: paths that it has to fetch. slices: paths of which it fetches a part, so that it has them for nobody."""

    name: str
    rank: int
    ends: tuple[End, ...]
    lacks: frozenset[str]
    slices: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sharing:
    """homes: the node that fetches a file from the object store, by path; a file that some node has already has none.

    routes: addresses of neighbours to ask for a file, best first, by node and path.
    """

    homes: Mapping[str, str] = field(default_factory=dict)
    routes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    def asked(self) -> frozenset[str]:
        """Addresses that some node asks for something."""
        return frozenset(
            address for rows in self.routes.values() for addresses in rows.values() for address in addresses
        )


def shareable(file: File) -> bool:
    """Whether a node may give this file to another: not without a digest to verify it by, and not what nodes rewrite."""
    return file.size > 0 and file.algorithm != "etag" and file.path != CONFIG


def nodes_of(rows: Iterable[Mapping[str, Any]], files: Iterable[File]) -> tuple[Node, ...]:
    """The nodes in these rows, in order of rank. Raises FanoutError with everything that is wrong.

    Each row has name, ring_rank, fabric_ports and lacking, which is None where nobody has looked: then all files are lacking, and may
    have slices.
    """
    every = frozenset(file.path for file in files)
    problems, nodes = [], []
    for row in rows:
        name = str(row["name"])
        try:
            ends = tuple(End(port["address"], port["netdev"], port["subnet"]) for port in row["fabric_ports"])
            slices = frozenset(row.get("slices") or ())
            lacks = every - slices if row.get("lacking") is None else frozenset(row["lacking"])
            nodes.append(Node(name, int(row["ring_rank"]), ends, lacks, slices))
        except (KeyError, TypeError, ValueError):
            problems.append(name)
    if problems:
        raise FanoutError(
            f"{', '.join(problems)}: fabric_ports and ring_rank are not defined, or not what the inventory plugin "
            "gb10.ring.topology gives; use a topology file, or set checkpoint_fanout: false"
        )
    return tuple(sorted(nodes, key=lambda node: node.rank))


def share(files: Iterable[File], nodes: Iterable[Node]) -> Sharing:
    """Homes, balanced by bytes, and the ways from there to every node that lacks the file."""
    group = tuple(nodes)
    ways = _ways(group)
    wanted = sorted(
        (file for file in files if shareable(file) and any(file.path in node.lacks | node.slices for node in group)),
        key=lambda file: (-file.size, file.path),
    )
    homes: dict[str, str] = {}
    routes: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    fetched: dict[str, int] = dict.fromkeys((node.name for node in group), 0)
    sent: dict[str, int] = defaultdict(int)
    for file in wanted:
        roots = [node.name for node in group if file.path not in node.lacks | node.slices]
        able = [node.name for node in group if file.path in node.lacks]
        if not roots and not able:
            continue  # all of them fetch parts of it, which are not the same ones
        if not roots:
            # Largest first, each to the one that has least to fetch: that balances as well as it gets.
            home = min(able, key=lambda name: fetched[name])
            fetched[home] += file.size
            homes[file.path] = home
            roots = [home]
        ends = frozenset(node.name for node in group if file.path in node.slices)
        steps = _distances(ways, roots, ends)
        for node in group:
            if file.path in node.lacks | node.slices and node.name not in roots:
                givers = {name: count for name, count in steps.items() if name not in ends}
                addresses = _route(ways[node.name], steps.get(node.name), givers, sent, file.size)
                if addresses:
                    routes[node.name][file.path] = addresses
    return Sharing(homes, dict(routes))


def _ways(nodes: tuple[Node, ...]) -> dict[str, dict[str, list[str]]]:
    """Addresses of each neighbour of each node: two nodes are neighbours where they have ends in one subnet."""
    ways: dict[str, dict[str, list[str]]] = {node.name: {} for node in nodes}
    for node in nodes:
        mine = {end.subnet for end in node.ends}
        for other in nodes:
            reached = [end.address for end in other.ends if end.subnet in mine]
            if other.name != node.name and reached:
                ways[node.name][other.name] = reached
    return ways


def _distances(
    ways: Mapping[str, Mapping[str, list[str]]], roots: Iterable[str], ends: frozenset[str]
) -> dict[str, int]:
    """Hops from the nearest of the roots; a node that cannot be reached is absent. ends: nodes that pass nothing on."""
    steps = dict.fromkeys(roots, 0)
    queue = deque(steps)
    while queue:
        name = queue.popleft()
        if name in ends:
            continue
        for neighbour in ways[name]:
            if neighbour not in steps:
                steps[neighbour] = steps[name] + 1
                queue.append(neighbour)
    return steps


def _route(
    neighbours: Mapping[str, list[str]], mine: int | None, givers: Mapping[str, int], sent: dict[str, int], size: int
) -> tuple[str, ...]:
    """Addresses of the neighbours that are nearer to the file, the one that has least to send first.

    Only nearer ones: two nodes never wait for each other. mine, givers: hops from the file, of this node and of those that have it
    or will have it whole. sent: bytes by address, counted on.
    """
    nearer = [] if mine is None else [name for name in neighbours if givers.get(name, mine) < mine]
    if not nearer:
        return ()
    order = sorted(nearer, key=lambda neighbour: sum(sent[address] for address in neighbours[neighbour]))
    addresses = [
        address for neighbour in order for address in sorted(neighbours[neighbour], key=lambda each: sent[each])
    ]
    sent[addresses[0]] += size
    return tuple(addresses)


# --- what nodes are told ----------------------------------------------------------------------------------------------


def peers_of(sharing: Sharing, name: str, port: int, token: str, patience_s: int) -> dict[str, list[dict[str, Any]]]:
    """The option peers of M(gb10.ring.checkpoint_stage) for this node."""
    return {
        path: [
            {"url": f"http://{address}:{port}/{token}/{quote(path)}", "patience_s": patience_s} for address in addresses
        ]
        for path, addresses in sharing.routes.get(name, {}).items()
    }


def listen_of(sharing: Sharing, node: Node) -> list[dict[str, str]]:
    """The option listen of M(gb10.ring.checkpoint_peer) for this node: where others ask it."""
    asked = sharing.asked()
    return [{"address": end.address, "netdev": end.netdev} for end in node.ends if end.address in asked]


def forks_problem(nodes: int, forks: int) -> str:
    """Why these nodes would not run at the same time, or an empty text."""
    if forks >= nodes:
        return ""
    return (
        f"checkpoint_fanout needs all {nodes} nodes at work at the same time, and Ansible runs {forks} at a time; set "
        f"forks to {nodes} or more in ansible.cfg (or with --forks), or set checkpoint_fanout: false"
    )
