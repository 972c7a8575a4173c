# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the content of a topology file to a Topology, or to a list of everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import values
from .addresses import DERIVED_VARIABLES
from .crosscheck import cross_check
from .draft import Draft, Settings
from .model import DEFAULT_NETDEVS, DEFAULT_PORT, NODE_COUNTS, PORTS, Node, Shape, Topology, TopologyError
from .overrides import leg_drafts
from .rdma_names import rdma_pairs
from .values import Problems, show

PLUGIN = "gb10.ring.topology"
_SHAPES: Mapping[str, Shape] = {"ring": "ring", "pair": "pair", "switch": "switch"}
_TOP_KEYS = (
    "plugin",
    "shape",
    "nodes",
    "supernet",
    "mtu",
    "management_interface",
    "management_prefix",
    "netdevs",
    "rdma_devices",
    "legs",
)
_NODE_KEYS = ("name", "management_address", "port", "netdevs", "rdma_devices", "vars")
_DEFAULTS: Mapping[str, object] = {
    "supernet": "10.100.0.0/16",
    "mtu": 9000,
    "management_interface": "enP7s7",
    "management_prefix": 24,
}


def parse_topology(data: object) -> Topology:
    """Check the parsed YAML of a topology file. Raises TopologyError with all problems."""
    problems = Problems()
    if data is None:
        problems.add("", "an empty file", f"a topology that starts with 'plugin: {PLUGIN}'")
        raise TopologyError(problems.all())
    if not isinstance(data, Mapping):
        problems.add("", show(data), f"a mapping that starts with 'plugin: {PLUGIN}'")
        raise TopologyError(problems.all())
    settings = _settings(problems, data)
    drafts = _nodes(problems, data, settings)
    overrides = cross_check(problems, settings, drafts, leg_drafts(problems, data))
    found = problems.all()
    if found or not (settings.shape and settings.supernet and settings.mtu and settings.management_interface):
        raise TopologyError(found)
    nodes = tuple(
        Node(draft.name, draft.address, draft.port, draft.netdevs, draft.rdma_devices, draft.extra)
        for draft in drafts
        if draft.name is not None and draft.address is not None
    )
    return Topology(settings.shape, nodes, settings.supernet, settings.mtu, settings.management_interface, overrides)


def _settings(problems: Problems, data: Mapping[object, object]) -> Settings:
    values.known_keys(problems, "", data, _TOP_KEYS)
    if data.get("plugin") != PLUGIN:
        problems.add("plugin", show(data.get("plugin")), PLUGIN)

    def setting(key: str) -> object:
        return data.get(key, _DEFAULTS[key])

    return Settings(
        shape=_shape(problems, data),
        supernet=values.ipv4_network(problems, "supernet", setting("supernet")),
        mtu=values.whole_number(problems, "mtu", setting("mtu"), 1280, 9216, unit=" (bytes)"),
        management_interface=values.netdev_name(problems, "management_interface", setting("management_interface")),
        management_prefix=values.whole_number(problems, "management_prefix", setting("management_prefix"), 8, 32),
        netdevs={**DEFAULT_NETDEVS, **_port_pairs(problems, "", data, "netdevs", values.netdev_name)},
        rdma_devices=_port_pairs(problems, "", data, "rdma_devices", values.rdma_name),
    )


def _shape(problems: Problems, data: Mapping[object, object]) -> Shape | None:
    value = data.get("shape")
    shape = _SHAPES.get(value) if isinstance(value, str) else None
    if shape is None:
        problems.add("shape", show(value), "ring, pair or switch")
    return shape


def _nodes(problems: Problems, data: Mapping[object, object], settings: Settings) -> tuple[Draft, ...]:
    nodes = data.get("nodes")
    if not isinstance(nodes, list):
        problems.add("nodes", show(nodes), "a list of nodes in cable order, each with name and management_address")
        return ()
    if settings.shape:
        low, high = NODE_COUNTS[settings.shape]
        if not low <= len(nodes) <= high:
            count = f"exactly {low}" if low == high else f"{low} to {high}"
            found = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
            problems.add("nodes", found, f"{count} nodes for shape {settings.shape}")
    return tuple(_node(problems, f"nodes[{index}]", node, settings) for index, node in enumerate(nodes))


def _node(problems: Problems, key: str, node: object, settings: Settings) -> Draft:
    if not isinstance(node, Mapping):
        problems.add(key, show(node), "a mapping with name and management_address")
        return Draft(key, None, None, _port(problems, key, {}, settings.shape), settings.netdevs, {}, {})
    values.known_keys(problems, key, node, _NODE_KEYS)
    port = _port(problems, key, node, settings.shape)
    netdevs = {**settings.netdevs, **_port_pairs(problems, key, node, "netdevs", values.netdev_name)}
    devices = {**settings.rdma_devices, **_port_pairs(problems, key, node, "rdma_devices", values.rdma_name)}
    used = PORTS if port is None else (port,)
    own = node.get("vars", {})
    return Draft(
        key=key,
        name=values.host_name(problems, f"{key}.name", node.get("name")),
        address=values.ipv4_address(problems, f"{key}.management_address", node.get("management_address")),
        port=port,
        netdevs=netdevs,
        rdma_devices=rdma_pairs(problems, f"{key}.rdma_devices", netdevs, devices, used),
        extra=values.variables(problems, f"{key}.vars", own, DERIVED_VARIABLES),
    )


def _port(problems: Problems, key: str, node: Mapping[object, object], shape: Shape | None) -> int | None:
    """The cabled port of a node, or None where it uses both."""
    if shape is not None and shape in DEFAULT_PORT:
        default = DEFAULT_PORT[shape]
        port = values.port_number(problems, f"{key}.port", node.get("port", default))
        return default if port is None else port
    if "port" in node and shape == "ring":
        problems.add(f"{key}.port", show(node["port"]), "no port in shape ring, where both are cabled; remove the line")
    return None


def _port_pairs(
    problems: Problems,
    where: str,
    data: Mapping[object, object],
    name: str,
    check: Callable[[Problems, str, object], str | None],
) -> dict[int, tuple[str, str]]:
    """An override such as ``{0: [rail 0, rail 1]}``; ports that it leaves out are not in the result."""
    key = f"{where}.{name}" if where else name
    given = data.get(name, {})
    if not isinstance(given, Mapping):
        problems.add(key, show(given), "a mapping of port (0, 1) to the list [name of rail 0, name of rail 1]")
        return {}
    pairs = {}
    for port, names in given.items():
        number = values.port_number(problems, f"{key} (port)", port)
        if not isinstance(names, list) or len(names) != 2:
            found = f"a list of {len(names)}" if isinstance(names, list) else show(names)
            problems.add(f"{key}[{port}]", found, "a list of two names: [rail 0, rail 1]")
            continue
        rails = [check(problems, f"{key}[{port}][{rail}]", value) for rail, value in enumerate(names)]
        if number is not None and rails[0] is not None and rails[1] is not None:
            pairs[number] = (rails[0], rails[1])
    return pairs
