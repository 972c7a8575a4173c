# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading netplan's YAML, and taking definitions out of it. PyYAML is on every machine that has netplan (netplan.io depends on it)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

try:
    import yaml
except ImportError:
    HAS_YAML = False
else:
    HAS_YAML = True

MISSING = "python3-yaml is not installed on this machine, expected because netplan.io needs it. Cure: apt-get install python3-yaml"
_SECRETS = ("password", "psk", "key", "secret", "auth")
_SETTINGS = ("version", "renderer")  # keys of a network that define nothing


def parse(text: str) -> dict[str, Any] | None:
    """The file with all scalars as text (no surprises with MAC addresses and "yes"); None when it is no YAML mapping."""
    try:
        found = yaml.load(text, Loader=yaml.BaseLoader)  # builds nothing but dicts, lists and text
    except yaml.YAMLError:
        return None
    return found if isinstance(found, dict) else {} if found in (None, "") else None


def remove(text: str, removals: Iterable[tuple[Sequence[str], str]], header: str) -> str | None:
    """The text without these definitions, (path below network, list entry or empty); None when nothing is left to say.

    It works on YAML's own nodes, without types, so that every scalar keeps its spelling. Comments go.
    """
    root = yaml.compose(text, Loader=yaml.BaseLoader)
    network = _child(root, "network")
    for path, item in removals:
        node = network
        for key in path[:-1]:
            node = _child(node, key)
        if item:
            members = _child(node, path[-1])
            members.value = [each for each in members.value if each.value != item]
        else:
            node.value = [pair for pair in node.value if pair[0].value != path[-1]]
    network.value = [pair for pair in network.value if pair[1].value or pair[0].value in _SETTINGS]
    if all(pair[0].value == "version" for pair in network.value):
        return None
    return header + str(yaml.serialize(root, Dumper=yaml.BaseDumper))


def _child(node: Any, key: str) -> Any:
    return next(pair[1] for pair in node.value if pair[0].value == key)


def excerpt(network: Mapping[str, Any], paths: Iterable[Sequence[str]]) -> str:
    """These definitions of a parsed file, for a person; secrets are hidden."""
    shown: dict[str, Any] = {}
    for path in paths:
        source, target = network["network"], shown
        for key in path[:-1]:
            source, target = source[key], target.setdefault(key, {})
        target[path[-1]] = _hidden(source[path[-1]])
    return str(yaml.safe_dump(shown, sort_keys=False))


def _hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: "(hidden)" if any(word in key.lower() for word in _SECRETS) else _hidden(each)
            for key, each in value.items()
        }
    return [_hidden(each) for each in value] if isinstance(value, list) else value
