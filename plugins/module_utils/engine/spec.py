# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one rank runs: argument list, environment, unit and the file that records them, from profile, node and model."""

from __future__ import annotations

import ipaddress
import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..fabric import nccl
from .profile import Profile
from .unit import CACHE, NAME, UnitSettings, hash_of, render

_CACHE_PATH = f"/var/cache/{CACHE}"


class SpecError(ValueError):
    """The node's part of the group is described wrongly; the text is the message for the user."""


@dataclass(frozen=True)
class Node:
    """One member of the group, from the inventory."""

    rank: int
    size: int
    shape: str
    fabric_ports: Sequence[Mapping[str, Any]]
    management_interface: str
    management_address: str
    head_address: str


@dataclass(frozen=True)
class ModelPlace:
    """Where the checkpoint lies. root: the directory that holds revisions/. config_digest: of the revision's config.json."""

    root: str
    revision: str
    config_digest: str = ""

    @property
    def path(self) -> str:
        """The revision itself: the engine never goes through the `current` link, which may move under it."""
        return posixpath.join(self.root, "revisions", self.revision)


@dataclass(frozen=True)
class Spec:
    """All that decides what the rank runs."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    unit: str
    record: str
    hash: str


def api_url(profile: Profile, node: Node) -> str:
    """Base URL of the group's API as every node reaches it."""
    try:
        wildcard = ipaddress.ip_address(profile.host).is_unspecified
    except ValueError:
        wildcard = False
    return f"http://{node.head_address if wildcard else profile.host}:{profile.port}"


def build(profile: Profile, node: Node, model: ModelPlace) -> Spec:
    """The rank's specification. Raises SpecError."""
    if not 0 <= node.rank < node.size:
        raise SpecError(f"ring_rank is {node.rank}, expected 0 to {node.size - 1} in a group of {node.size}")
    argv = _vllm_argv(profile, node, model)
    env = _environment(profile, node, model)
    settings = UnitSettings(
        description=f"Inference engine {profile.name}, rank {node.rank} of {node.size} (gb10.ring)",
        argv=argv,
        env=env,
        model_root=model.root,
        stop_timeout_s=profile.stop_timeout_s,
        limit_memlock=profile.limit_memlock,
        limit_nofile=profile.limit_nofile,
        oom_score_adjust=profile.oom_score_adjust,
    )
    unit = render(settings, model.config_digest)
    record = {
        "hash": hash_of(unit),
        "unit": NAME,
        "url": api_url(profile, node),
        "rank": node.rank,
        "size": node.size,
        "shape": node.shape,
        "model": {
            "root": model.root,
            "revision": model.revision,
            "path": model.path,
            "config_sha256": model.config_digest,
        },
        "profile": profile.to_dict(),
        "argv": list(argv),
        "env": dict(sorted(env.items())),
    }
    return Spec(argv, env, unit, json.dumps(record, indent=2) + "\n", hash_of(unit))


def _vllm_argv(profile: Profile, node: Node, model: ModelPlace) -> tuple[str, ...]:
    argv = [
        profile.executable,
        "serve",
        model.path,
        *("--served-model-name", profile.served_model_name),
        *("--tensor-parallel-size", str(profile.tensor_parallel)),
        *("--nnodes", str(node.size)),
        *("--node-rank", str(node.rank)),
        *("--master-addr", node.head_address),
        *("--master-port", str(profile.rendezvous_port)),
        *("--distributed-executor-backend", "mp"),
        *("--host", profile.host),
        *("--port", str(profile.port)),
        *(["--headless"] if node.rank else []),
        *(_filled(word, model) for word in profile.args),
    ]
    return tuple(argv)


def _environment(profile: Profile, node: Node, model: ModelPlace) -> dict[str, str]:
    """Fabric, offline and cache settings, under the profile's own; an empty value of the profile unsets a variable."""
    try:
        fabric = nccl.environment(node.shape, node.size, node.fabric_ports, node.management_interface)
    except nccl.NcclError as error:
        raise SpecError(str(error)) from error
    result = {
        **fabric,
        # The checkpoint is local and complete: nothing may be looked up or reported outside.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # Home directories are hidden from the unit; compiled kernels have to survive a restart.
        "HOME": _CACHE_PATH,
        "XDG_CACHE_HOME": _CACHE_PATH,
        "VLLM_CACHE_ROOT": f"{_CACHE_PATH}/vllm",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(profile.ready_timeout_s),
        **{name: _filled(value, model) for name, value in profile.env.items()},
        "VLLM_HOST_IP": node.management_address,
    }
    return {name: value for name, value in result.items() if value}


def _filled(text: str, model: ModelPlace) -> str:
    """`{model}` replaced by the model's directory; other braces stay, JSON values are full of them."""
    return text.replace("{model}", model.path)
