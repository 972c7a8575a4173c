# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import fanout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File

CRC = "crc64nvme:" + "0" * 16


def files(*sizes, digest=CRC):
    return [File(f"f{index}", size, '"e"', digest) for index, size in enumerate(sizes)]


def ring(count, cables=None):
    """Rows of a ring (or of the first cables of one) with the addresses that the topology plugin gives."""
    rows = {rank: [] for rank in range(count)}
    for cable in range(count if cables is None else cables):
        for rail in (0, 1):
            subnet = f"10.100.{2 * cable + rail}"
            for port, rank in ((0, cable), (1, (cable + 1) % count)):
                row = {"address": f"{subnet}.{rank + 1}", "netdev": f"rail{rail}p{port}", "subnet": f"{subnet}.0/24"}
                rows[rank].append(row)
    return named(rows)


def switch(count):
    rails = [(rail, f"10.100.{rail}") for rail in (0, 1)]
    return named(
        {
            rank: [
                {"address": f"{net}.{rank + 1}", "netdev": f"rail{rail}p1", "subnet": f"{net}.0/24"}
                for rail, net in rails
            ]
            for rank in range(count)
        }
    )


def named(rows):
    return [{"name": f"n{rank}", "ring_rank": rank, "fabric_ports": ports} for rank, ports in rows.items()]


SHAPES = {
    "pair": ring(2, 1),
    "ring of 2": ring(2),
    "ring of 3": ring(3),
    "ring of 4": ring(4),
    "ring of 5": ring(5),
    "ring of 8": ring(8),
    "switch of 3": switch(3),
    "switch of 8": switch(8),
}


def shared(rows, wanted, lacking=None):
    rows = [{**row, "lacking": (lacking or {}).get(row["name"])} for row in rows]
    nodes = fanout.nodes_of(rows, wanted)
    return nodes, fanout.share(wanted, nodes)


def owner(nodes, address):
    return next(node.name for node in nodes for end in node.ends if end.address == address)


def arrives(nodes, sharing, wanted):
    """Play it through: a node has a file when one of those it asks has it. Bytes that left the store, by node."""
    has = {node.name: {file.path for file in wanted} - node.lacks for node in nodes}
    stored = dict.fromkeys(has, 0)
    for file in wanted:
        for name, paths in has.items():
            if file.path not in paths and file.path not in sharing.routes.get(name, {}):
                paths.add(file.path)
                stored[name] += file.size
    for _round in nodes:
        for node in nodes:
            for path, addresses in sharing.routes.get(node.name, {}).items():
                if any(path in has[owner(nodes, address)] for address in addresses):
                    has[node.name].add(path)
    assert all(len(paths) == len(wanted) for paths in has.values())
    return stored


@pytest.mark.parametrize("rows", SHAPES.values(), ids=SHAPES)
def test_every_byte_leaves_the_store_once_and_homes_are_balanced(rows):
    wanted = files(*range(100, 160), 1, 2, 3)
    nodes, sharing = shared(rows, wanted)
    stored = arrives(nodes, sharing, wanted)
    assert sum(stored.values()) == sum(file.size for file in wanted)
    assert max(stored.values()) - min(stored.values()) <= 160
    assert set(sharing.homes) == {file.path for file in wanted}


@pytest.mark.parametrize("rows", SHAPES.values(), ids=SHAPES)
def test_nodes_ask_neighbours_only_and_never_in_a_circle(rows):
    wanted = files(*range(1, 40))
    nodes, sharing = shared(rows, wanted)
    reach = {node.name: {end.subnet for end in node.ends} for node in nodes}
    for file in wanted:
        asks = {
            name: {owner(nodes, address) for address in routes[file.path]}
            for name, routes in sharing.routes.items()
            if file.path in routes
        }
        for name, others in asks.items():
            assert all(reach[name] & reach[other] for other in others)
            seen, left = set(), set(others)
            while left:
                one = left.pop()
                assert one != name
                seen.add(one)
                left |= asks.get(one, set()) - seen


def test_the_far_node_of_four_has_two_ways_and_both_are_used():
    wanted = files(*[100] * 16)
    nodes, sharing = shared(ring(4), wanted)
    far = {"n0": "n2", "n1": "n3", "n2": "n0", "n3": "n1"}
    first = {name: set() for name in far}
    for path, home in sharing.homes.items():
        addresses = sharing.routes[far[home]][path]
        owners = [owner(nodes, address) for address in addresses]
        assert set(owners) == set(far) - {home, far[home]} and len(addresses) == 4
        first[far[home]].add(owners[0])
    assert all(len(owners) == 2 for owners in first.values())


def test_both_rails_are_used():
    _nodes, sharing = shared(ring(3), files(*[100] * 12))
    first = {addresses[0] for routes in sharing.routes.values() for addresses in routes.values()}
    assert len(first) == 12


def test_a_file_that_a_node_has_already_leaves_the_store_not_at_all():
    wanted = files(10, 20, 30)
    nodes, sharing = shared(ring(3), wanted, {"n1": ["f2"], "n0": ["f0", "f1", "f2"], "n2": ["f0", "f2"]})
    assert sharing.homes == {"f2": "n0"}
    assert {owner(nodes, address) for address in sharing.routes["n0"]["f0"]} == {"n1"}
    assert {owner(nodes, address) for address in sharing.routes["n0"]["f1"]} == {"n1", "n2"}
    assert "f1" not in sharing.routes["n2"]


def test_nothing_is_shared_when_nothing_is_lacking():
    _nodes, sharing = shared(ring(3), files(1, 2), {"n0": [], "n1": [], "n2": []})
    assert sharing == fanout.Sharing({}, {})


def test_a_node_without_a_way_fetches_for_itself():
    lone = {"name": "n3", "ring_rank": 3, "fabric_ports": []}
    wanted = files(*[10] * 6)
    nodes, sharing = shared([*ring(3), lone], wanted)
    assert "n3" not in sharing.routes
    assert arrives(nodes, sharing, wanted)["n3"] >= 10


@pytest.mark.parametrize(
    "file",
    [
        File("config.json", 10, '"e"', CRC),
        File("empty", 0, '"e"', CRC),
        File("unverifiable", 10, '"e"', "etag:e"),
    ],
    ids=lambda file: file.path,
)
def test_some_files_are_left_to_the_store(file):
    assert not fanout.shareable(file)
    assert shared(ring(3), [file])[1] == fanout.Sharing({}, {})


def test_what_nodes_are_told():
    wanted = [File("sub dir/ü", 10, '"e"', CRC)]
    nodes, sharing = shared(ring(2, 1), wanted)
    assert fanout.peers_of(sharing, "n0", 7871, "token", 60) == {}
    assert fanout.peers_of(sharing, "n1", 7871, "token", 60) == {
        "sub dir/ü": [
            {"url": f"http://10.100.{rail}.1:7871/token/sub%20dir/%C3%BC", "patience_s": 60} for rail in (0, 1)
        ]
    }
    assert fanout.listen_of(sharing, nodes[1]) == []
    assert fanout.listen_of(sharing, nodes[0]) == [
        {"address": "10.100.0.1", "netdev": "rail0p0"},
        {"address": "10.100.1.1", "netdev": "rail1p0"},
    ]


def test_nodes_without_a_topology_are_named_together():
    rows = [*ring(2), {"name": "a", "ring_rank": 2}, {"name": "b", "fabric_ports": []}]
    with pytest.raises(fanout.FanoutError, match=r"^a, b: .*checkpoint_fanout: false"):
        fanout.nodes_of(rows, files(1))


@pytest.mark.parametrize(("nodes", "forks", "wrong"), [(3, 10, False), (3, 3, False), (8, 5, True)])
def test_all_nodes_have_to_run_at_once(nodes, forks, wrong):
    assert bool(fanout.forks_problem(nodes, forks)) is wrong


# --- nodes that fetch a part of a file --------------------------------------------------------------------------------


def with_slices(rows, wanted, slices, lacking=None):
    rows = [{**row, "lacking": (lacking or {}).get(row["name"], []), "slices": slices.get(row["name"])} for row in rows]
    nodes = fanout.nodes_of(rows, wanted)
    return nodes, fanout.share(wanted, nodes)


def test_where_all_nodes_fetch_slices_nobody_asks_anybody():
    _nodes, sharing = with_slices(ring(3), files(100), {f"n{rank}": ["f0"] for rank in range(3)})
    assert sharing.homes == {} and sharing.routes == {}


def test_slices_come_from_a_node_with_the_whole_file():
    nodes, sharing = with_slices(ring(3), files(100), {"n1": ["f0"], "n2": ["f0"]})
    assert sharing.homes == {}
    for name in ("n1", "n2"):
        assert {owner(nodes, address) for address in sharing.routes[name]["f0"]} == {"n0"}


def test_a_node_that_will_have_the_whole_file_is_its_home():
    nodes, sharing = with_slices(ring(3), files(100), {"n1": ["f0"], "n2": ["f0"]}, {"n0": ["f0"]})
    assert sharing.homes == {"f0": "n0"}
    assert {owner(nodes, address) for address in sharing.routes["n1"]["f0"]} == {"n0"}


def test_a_slice_is_asked_of_nobody_and_passed_on_by_nobody():
    """Of a ring of four, the far node has no neighbour with the whole file."""
    _nodes, sharing = with_slices(ring(4), files(100), {f"n{rank}": ["f0"] for rank in (1, 2, 3)})
    assert set(sharing.routes) == {"n1", "n3"}
