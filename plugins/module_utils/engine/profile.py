# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine profile: how to run one kind of engine. Checked and completed here; every problem of a profile is told at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

RING_SIZE = "ring_size"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DIGITS = re.compile(r"-?\d+\Z")
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY", re.IGNORECASE)
# Set from the inventory for each node; a profile is the same text for all nodes.
PER_NODE_ENV = ("VLLM_HOST_IP",)
PER_NODE_ARGS = (
    "--distributed-executor-backend",
    "--headless",
    "--host",
    "--master-addr",
    "--master-port",
    "--nnodes",
    "--node-rank",
    "--port",
    "--served-model-name",
    "--tensor-parallel-size",
)


class ProfileError(ValueError):
    """What is wrong with a profile, one problem a line; each names the key, what was found and what is allowed."""


@dataclass(frozen=True)
class Profile:
    """A complete profile. Times in seconds, sizes in bytes."""

    name: str
    executable: str
    served_model_name: str
    tensor_parallel: int
    host: str = "0.0.0.0"
    port: int = 8000
    rendezvous_port: int = 29500
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: int = 900
    stop_timeout_s: int = 30
    limit_memlock: str = "infinity"
    limit_nofile: int = 1048576
    oom_score_adjust: int = 500

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "args": list(self.args), "env": dict(self.env)}


def parse(values: Any, size: int, where: str = "engine profile") -> Profile:
    """The profile that the mapping describes, for a group of so many nodes. Raises ProfileError.

    where: file name for the messages.
    """
    if not isinstance(values, Mapping):
        raise ProfileError(f"{where}: found {type(values).__name__}, expected a mapping of settings")
    problems = [_unknown(str(key)) for key in values if key not in _RULES]
    complete: dict[str, Any] = {}
    for key, rule in _RULES.items():
        if key not in values:
            if rule.required:
                problems.append(f"{key} is missing: {rule.expected}")
            continue
        try:
            complete[key] = rule.convert(values[key])
        except ValueError as error:
            problems.append(
                f"{key} is {values[key]!r}, expected {rule.expected}" if not str(error) else f"{key}: {error}"
            )
    if "tensor_parallel" in complete:
        wanted = complete["tensor_parallel"] = (
            size if complete["tensor_parallel"] == RING_SIZE else complete["tensor_parallel"]
        )
        if wanted != size:
            problems.append(
                f"tensor_parallel is {wanted}, the group has {size} nodes with one GPU each: write {size} or {RING_SIZE}, "
                "or describe that many nodes in the topology file"
            )
    if complete.get("port") is not None and complete.get("port") == complete.get(
        "rendezvous_port", Profile.rendezvous_port
    ):
        problems.append(f"port and rendezvous_port are both {complete['port']}, they must differ")
    if problems:
        raise ProfileError("\n".join(f"{where}: {problem}" for problem in problems))
    return Profile(**complete)


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, list(_RULES), n=1)
    hint = f", did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(_RULES))}"
    return f"unknown key {key}{hint}"


@dataclass(frozen=True)
class _Rule:
    """How one key is checked. convert raises ValueError: without a text the common message is used."""

    convert: Callable[[Any], Any]
    expected: str
    required: bool = False


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\n" in value:
        raise ValueError
    return value


def _path(value: Any) -> str:
    if not _text(value).startswith("/"):
        raise ValueError
    return str(value)


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = int(value) if isinstance(value, str) and _DIGITS.match(value) else value  # -e port=8001 gives a text
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError
        return number

    return convert


def _parallel(value: Any) -> Any:
    return value if value == RING_SIZE else _integer(2, 8)(value)


def _memlock(value: Any) -> str:
    return "infinity" if value == "infinity" else str(_integer(65536, 1 << 62)(value))


def _args(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or any(
        isinstance(item, (Mapping, list, tuple)) or item is None for item in value
    ):
        raise ValueError("expected a list of texts and numbers; write a JSON value as one quoted text")
    items = tuple(str(item).lower() if isinstance(item, bool) else str(item) for item in value)
    taken = [item for item in items if item.partition("=")[0] in PER_NODE_ARGS]
    if taken:
        raise ValueError(f"{', '.join(taken)} is set for each node from the inventory and the other keys, leave it out")
    return items


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    wrong = [f"{name} is no name of a variable" for name in value if not _ENV_NAME.match(str(name))]
    wrong += [f"{name} is set for each node from the inventory, leave it out" for name in value if name in PER_NODE_ENV]
    wrong += [
        f"{name} looks like a secret, and everybody on the node can read a unit's settings: leave it out"
        for name in value
        if _SECRET.search(str(name))
    ]
    wrong += [
        f"{name} is {item!r}, expected a text, a number, or null to unset it"
        for name, item in value.items()
        if not _scalar(item)
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    return {str(name): _plain(item) for name, item in value.items()}


def _scalar(value: Any) -> bool:
    return value is None or (isinstance(value, (str, int, float)) and "\n" not in str(value))


def _plain(value: Any) -> str:
    """The text of an environment value; null becomes the empty text, which unsets the variable."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


_PORT = "an integer from 1024 to 32767, below the range of outgoing connections"
_RULES: dict[str, _Rule] = {
    "name": _Rule(_text, "a one-line text", required=True),
    "executable": _Rule(_path, "an absolute path on the nodes", required=True),
    "served_model_name": _Rule(_text, "a one-line text", required=True),
    "tensor_parallel": _Rule(_parallel, f"{RING_SIZE} or an integer from 2 to 8", required=True),
    "host": _Rule(_text, "the address that the API listens at on the head"),
    "port": _Rule(_integer(1024, 32767), _PORT),
    "rendezvous_port": _Rule(_integer(1024, 32767), _PORT),
    "args": _Rule(_args, "a list of texts"),
    "env": _Rule(_env, "a mapping of variable names to texts"),
    "ready_timeout_s": _Rule(_integer(1, 86400), "seconds, an integer from 1 to 86400"),
    "stop_timeout_s": _Rule(_integer(1, 3600), "seconds, an integer from 1 to 3600"),
    "limit_memlock": _Rule(_memlock, "infinity or bytes, an integer of at least 65536"),
    "limit_nofile": _Rule(_integer(1024, 1 << 30), "an integer of at least 1024"),
    "oom_score_adjust": _Rule(_integer(-1000, 1000), "an integer from -1000 to 1000"),
}
