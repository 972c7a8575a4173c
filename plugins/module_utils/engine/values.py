# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How single values of an engine profile are checked. A converter raises ValueError; without a text the rule's own is used."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import secret_names

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OPTION_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
_DIGITS = re.compile(r"-?\d+\Z")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\.?\Z")
_LOOPBACK_NAMES = ("localhost", "ip6-localhost", "ip6-loopback")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]*(@sha256:[0-9a-f]{64})?\Z")
_IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}\Z")
# Set from the inventory for each node; a profile is the same text for all nodes.
PER_NODE_ENV = ("HOST_IP", "VLLM_HOST_IP")
PER_NODE_OPTIONS = (
    "dist-init-addr",
    "distributed-executor-backend",
    "headless",
    "host",
    "master-addr",
    "master-port",
    "model-path",
    "nnodes",
    "node-rank",
    "port",
    "served-model-name",
    "tensor-parallel-size",
    "tp",
    "tp-size",
)


@dataclass(frozen=True)
class Rule:
    """How one key is checked and what is said when it does not hold."""

    convert: Callable[[Any], Any]
    expected: str
    required: bool = False


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\n" in value:
        raise ValueError
    return value


def listening(value: Any) -> str:
    """An address of the head, or a name that resolves to one. Its own loopback is none: the other nodes ask there too."""
    held = text(value)
    try:
        loopback = ipaddress.ip_address(held).is_loopback
    except ValueError:
        labels = held.lower().rstrip(".").split(".")
        if not _HOST_NAME.match(held) or labels[-1].isdigit():
            raise ValueError from None
        loopback = labels[0] in _LOOPBACK_NAMES or labels[-1] == "localhost"
    if loopback:
        raise ValueError(
            f"{held} is the head's loopback, where no other node reaches the API, and each asks it (memory guard, watchdog, benchmark). "
            "Cure: leave it out (0.0.0.0), or the head's management address, which a firewall can guard"
        )
    return held


def optional_text(value: Any) -> str:
    return "" if value == "" else text(value)


def path(value: Any) -> str:
    if not text(value).startswith("/"):
        raise ValueError
    return str(value)


def optional_path(value: Any) -> str:
    return "" if value == "" else path(value)


def integer(low: int, high: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = int(value) if isinstance(value, str) and _DIGITS.match(value) else value  # -e port=8001 gives a text
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError
        return number

    return convert


def number(low: float, high: float) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise ValueError
        return float(value)

    return convert


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def one_of(*choices: str) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return convert


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError
    return tuple(text(item) for item in value)


def some_of(*choices: str) -> Callable[[Any], tuple[str, ...]]:
    def convert(value: Any) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or not value or any(item not in choices for item in value):
            raise ValueError
        return tuple(str(item) for item in value)

    return convert


def memlock(value: Any) -> str:
    return "infinity" if value == "infinity" else str(integer(65536, 1 << 62)(value))


def image(value: Any) -> str:
    if value == "":
        return ""
    if not isinstance(value, str) or not _IMAGE.match(value):
        raise ValueError
    return value


def image_id(value: Any) -> str:
    if value == "":
        return ""
    if not isinstance(value, str) or not _IMAGE_ID.match(value):
        raise ValueError
    return value


def args(value: Any) -> tuple[str, ...]:
    """Words of a command line that are passed on as they are."""
    if not isinstance(value, (list, tuple)) or any(
        isinstance(item, (Mapping, list, tuple)) or item is None for item in value
    ):
        raise ValueError("expected a list of texts and numbers; write a JSON value as one quoted text")
    items = tuple(str(item).lower() if isinstance(item, bool) else str(item) for item in value)
    _refuse_taken([item for item in items if item.startswith("--")])
    _refuse_secrets(secret_names.in_words(items))
    return items


def options(value: Any) -> dict[str, Any]:
    """Flags without their dashes. true is a flag without value, null leaves it out, a mapping is one JSON argument."""
    if not isinstance(value, Mapping):
        raise ValueError
    wrong = [f"{name!r} is no name of a flag (without dashes)" for name in value if not _OPTION_NAME.match(str(name))]
    secret = secret_names.in_options(value)
    wrong += [
        f"{name} is {item!r}, expected {_OPTION_VALUES}"
        for name, item in value.items()
        if not _plain(item) and str(name) not in secret
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    _refuse_taken([str(name) for name in value])
    _refuse_secrets(secret)
    return {str(name): item for name, item in value.items() if item is not None and item is not False}


_OPTION_VALUES = "true, a text, a number, a list of those, a mapping (becomes JSON), or null to leave the flag out"


def _refuse_taken(flags: Sequence[str]) -> None:
    """Engines read a flag with `_` as the same one with `-`."""
    taken = [flag for flag in flags if flag.lstrip("-").partition("=")[0].replace("_", "-") in PER_NODE_OPTIONS]
    if taken:
        raise ValueError(f"{', '.join(taken)} is set for each node from the inventory and the other keys, leave it out")


def _refuse_secrets(names: Sequence[str]) -> None:
    if names:
        raise ValueError(
            f"{', '.join(names)} looks like a secret, and everybody on the node can read a command line: leave it out. Cure: let a proxy "
            "before the API ask clients for a key; the engine needs no token to download, since the checkpoint is staged"
        )


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, (str, int, float)) for item in value)
    return value is None or isinstance(value, (str, int, float, Mapping))


def env(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    wrong = [f"{name} is no name of a variable" for name in value if not _ENV_NAME.match(str(name))]
    wrong += [f"{name} is set for each node from the inventory, leave it out" for name in value if name in PER_NODE_ENV]
    wrong += [
        f"{name} looks like a secret, and everybody on the node can read a unit's settings: leave it out"
        for name in value
        if secret_names.of_variable(str(name))
    ]
    wrong += [
        f"{name} is {item!r}, expected a text, a number, or null to unset it"
        for name, item in value.items()
        if not _scalar(item) and not secret_names.of_variable(str(name))
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    return {str(name): _as_text(item) for name, item in value.items()}


def env_names(value: Any) -> tuple[str, ...]:
    names = texts(value)
    if any(not _ENV_NAME.match(name) for name in names):
        raise ValueError
    return names


def _scalar(value: Any) -> bool:
    return value is None or (isinstance(value, (str, int, float)) and "\n" not in str(value))


def _as_text(value: Any) -> str:
    """The text of an environment value; null becomes the empty text, which unsets the variable."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def mapping_of(rules: Mapping[str, Rule]) -> Callable[[Any], dict[str, Any]]:
    """A mapping with these keys, each checked by its rule."""

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError
        problems = [f"unknown key {key}; known: {', '.join(sorted(rules))}" for key in value if key not in rules]
        found = {}
        for key, rule in rules.items():
            if key not in value:
                if rule.required:
                    problems.append(f"{key} is missing: {rule.expected}")
                continue
            try:
                found[key] = rule.convert(value[key])
            except ValueError as error:
                problems.append(str(error) or f"{key} is {value[key]!r}, expected {rule.expected}")
        if problems:
            raise ValueError("; ".join(problems))
        return found

    return convert


def empty_or(convert: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """The same converter, and a mapping without keys."""
    return lambda value: {} if value == {} else convert(value)


def list_of(convert: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def converted(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise ValueError
        return tuple(convert(item) for item in value)

    return converted


def flags(value: Any) -> dict[str, Any]:
    """A mapping of names to plain values. null takes one away, and all of them."""
    held = {} if value is None else value
    if not isinstance(held, Mapping) or not all(
        item is None or isinstance(item, (str, int, float)) for item in held.values()
    ):
        raise ValueError
    return {text(key): item for key, item in held.items() if item is not None}


def text_mapping(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    return {text(key): text(str(item)) for key, item in value.items()}
