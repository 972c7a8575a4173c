# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine profile: how to run one kind of engine. Checked and completed here; every problem of a profile is told at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from . import engram_place, values
from .invariants import profile_problems
from .values import Rule

RING_SIZE = "ring_size"
ENGINES = ("vllm", "sglang")
RENDERERS = ("venv", "docker", "podman", "kubernetes")
SHAPES = ("ring", "pair", "switch")
COMMANDS = {"vllm": ("serve",), "sglang": ("-m", "sglang.launch_server")}


class ProfileError(ValueError):
    """What is wrong with a profile, one problem a line; each names the key, what was found and what is allowed."""


@dataclass(frozen=True)
class Profile:
    """A complete profile. Times in seconds, sizes in GiB where the name says so, else in bytes."""

    name: str
    executable: str
    served_model_name: str
    tensor_parallel: int
    engine: str = "vllm"
    renderer: str = "venv"
    shapes: tuple[str, ...] = SHAPES
    command: tuple[str, ...] = ()
    working_directory: str = ""
    served_model_aliases: tuple[str, ...] = ()
    host: str = "0.0.0.0"
    port: int = 8000
    rendezvous: str = "management"
    rendezvous_port: int = 29500
    options: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    gid_variables: tuple[str, ...] = ()
    engram: Mapping[str, Any] = field(default_factory=dict)
    nccl: bool = True
    image: str = ""
    image_id: str = ""
    model_mount: str = "/models"
    cache_mount: str = "/cache"
    cache_directory: str = "/var/cache/gb10-ring-engine"
    kernels_from: str = "cache"
    mounts: tuple[Mapping[str, Any], ...] = ()
    devices: tuple[str, ...] = ("/dev/infiniband",)
    gpus: str = "all"
    # Beside the one that locks memory for RDMA those with which the published images, whose engine is root, use files of other users.
    capabilities: tuple[str, ...] = ("IPC_LOCK", "CHOWN", "DAC_OVERRIDE", "FOWNER")
    cpus: int = 0
    memory_gib: int = 112
    shm_gib: int = 32
    limit_memlock: str = "infinity"
    limit_nofile: int = 1048576
    limit_stack: int = 0
    oom_score_adjust: int = 500
    node_memory_gib: float = 121.6
    weights_gib: float = 0.0
    activations_gib: float = 0.0
    graphs_gib: float = 0.0
    page_cache: str = "drop"
    pins: Mapping[str, str] = field(default_factory=dict)
    log_lines: tuple[Mapping[str, Any], ...] = ()
    sees: bool = False
    thinking: Mapping[str, Any] = field(default_factory=dict)
    ready_line: str = "Application startup complete"
    ready_timeout_s: int = 900
    stop_timeout_s: int = 30
    kubernetes: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that parse() reads back into an equal profile."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def parse(given: Any, size: int, where: str = "engine profile") -> Profile:
    """The profile that the mapping describes, for a group of so many nodes. Raises ProfileError.

    where: file name for the messages.
    """
    if not isinstance(given, Mapping):
        raise ProfileError(f"{where}: found {type(given).__name__}, expected a mapping of settings")
    complete, problems = _converted(given)
    if "tensor_parallel" in complete:
        wanted = size if complete["tensor_parallel"] == RING_SIZE else complete["tensor_parallel"]
        complete["tensor_parallel"] = wanted
        if wanted != size:
            problems.append(
                f"tensor_parallel is {wanted}, the group has {size} nodes with one GPU each: write {size} or {RING_SIZE}, "
                "or describe that many nodes in the topology file"
            )
    if not complete.get("command"):
        complete["command"] = COMMANDS[complete.get("engine", Profile.engine)]
    complete["engram"] = engram_place.completed(complete.get("engram", {}), complete.get("engine", Profile.engine))
    # What contradicts itself is told together with what is missing, so that one run shows everything.
    missing = {key: "" if key != "tensor_parallel" else size for key, rule in _RULES.items() if rule.required}
    problems += profile_problems(Profile(**{**missing, **complete}))
    if problems:
        raise ProfileError("\n".join(f"{where}: {problem}" for problem in problems))
    return Profile(**complete)


def _converted(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The keys that hold, and what is wrong with the others."""
    problems = [_unknown(str(key)) for key in given if key not in _RULES]
    complete: dict[str, Any] = {}
    for key, rule in _RULES.items():
        if key not in given:
            if rule.required:
                problems.append(f"{key} is missing: {rule.expected}")
            continue
        try:
            complete[key] = rule.convert(given[key])
        except ValueError as error:
            problems.append(
                f"{key} is {given[key]!r}, expected {rule.expected}" if not str(error) else f"{key}: {error}"
            )
    return complete, problems


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, list(_RULES), n=1)
    hint = f", did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(_RULES))}"
    return f"unknown key {key}{hint}"


def _parallel(value: Any) -> Any:
    return value if value == RING_SIZE else values.integer(2, 8)(value)


_PORT = "an integer from 1024 to 32767, below the range of outgoing connections"
_GIB = "GiB, a number from 0 to 1024"
_MOUNT = {
    "source": Rule(values.path, "an absolute path on the node", required=True),
    "target": Rule(values.path, "an absolute path in the container", required=True),
    "read_only": Rule(values.boolean, "true or false"),
}
_LOG_LINE = {
    "text": Rule(values.text, "text that a line of the log contains", required=True),
    "want": Rule(values.one_of("present", "absent"), "present or absent"),
    "ranks": Rule(values.one_of("all", "head"), "all or head"),
    "means": Rule(values.text, "what the line tells, one line", required=True),
    "required": Rule(values.boolean, "true or false"),
}
_THINKING = {
    "enable": Rule(values.flags, "a mapping of chat_template_kwargs"),
    "disable": Rule(values.flags, "a mapping of chat_template_kwargs"),
    "default": Rule(values.boolean, "true or false"),
}
_ENGRAM = {
    "placement": Rule(values.one_of(*engram_place.PLACEMENTS), f"one of {', '.join(engram_place.PLACEMENTS)}"),
    "rule": Rule(values.one_of(*engram_place.RULES), f"one of {', '.join(engram_place.RULES)}"),
    "directory": Rule(values.optional_path, "an absolute path on the nodes"),
}
_KUBERNETES = {
    "service": Rule(values.text, "name of the InferenceService", required=True),
    "model": Rule(values.text, "name of the Model", required=True),
    "claim_prefix": Rule(values.text, "what the names of volumes and claims start with", required=True),
    "quantization": Rule(values.text, "quantization as the Model names it"),
    "rdma_resource": Rule(values.text, "extended resource of the RDMA device plugin"),
    "tolerations": Rule(values.list_of(values.text_mapping), "a list of tolerations"),
    "pad_config": Rule(values.boolean, "true or false"),
}
_RULES: dict[str, Rule] = {
    "name": Rule(values.text, "a one-line text", required=True),
    "engine": Rule(values.one_of(*ENGINES), f"one of {', '.join(ENGINES)}"),
    "renderer": Rule(values.one_of(*RENDERERS), f"one of {', '.join(RENDERERS)}"),
    "shapes": Rule(values.some_of(*SHAPES), f"a list of {', '.join(SHAPES)}"),
    "executable": Rule(values.text, "a program: absolute path on the nodes, or a name in the image", required=True),
    "command": Rule(values.texts, "a list of texts between the program and its arguments"),
    "working_directory": Rule(values.optional_path, "an absolute path on the nodes"),
    "served_model_name": Rule(values.text, "a one-line text", required=True),
    "served_model_aliases": Rule(values.texts, "a list of texts"),
    "tensor_parallel": Rule(_parallel, f"{RING_SIZE} or an integer from 2 to 8", required=True),
    "host": Rule(values.listening, "the address that the API listens at on the head, or a name of it"),
    "port": Rule(values.integer(1024, 32767), _PORT),
    "rendezvous": Rule(values.one_of("management", "fabric"), "management or fabric"),
    "rendezvous_port": Rule(values.integer(1024, 32767), _PORT),
    "options": Rule(values.options, "a mapping of flags (without dashes) to values"),
    "args": Rule(values.args, "a list of texts"),
    "env": Rule(values.env, "a mapping of variable names to texts"),
    "gid_variables": Rule(values.env_names, "a list of variable names"),
    "engram": Rule(values.empty_or(values.mapping_of(_ENGRAM)), "a mapping of placement, rule and directory"),
    "nccl": Rule(values.boolean, "true or false"),
    "image": Rule(values.image, "an image as NAME@sha256:DIGEST, or NAME:TAG where only a tag is published"),
    "image_id": Rule(values.image_id, "the id of an image on the nodes, sha256: and 64 hexadecimal digits"),
    "model_mount": Rule(values.path, "an absolute path in the container"),
    "cache_mount": Rule(values.path, "an absolute path in the container"),
    "cache_directory": Rule(values.path, "an absolute path on the nodes"),
    "kernels_from": Rule(values.one_of("cache", "image"), "cache or image"),
    "mounts": Rule(values.list_of(values.mapping_of(_MOUNT)), "a list of {source, target, read_only}"),
    "devices": Rule(values.list_of(values.path), "a list of device paths"),
    "gpus": Rule(values.optional_text, "all, or an empty text for none"),
    "capabilities": Rule(values.texts, "a list of capabilities without CAP_"),
    "cpus": Rule(values.integer(0, 128), "processor cores, an integer from 0 (no limit) to 128"),
    "memory_gib": Rule(values.integer(1, 1024), "GiB, an integer from 1 to 1024"),
    "shm_gib": Rule(values.integer(1, 1024), "GiB, an integer from 1 to 1024"),
    "limit_memlock": Rule(values.memlock, "infinity or bytes, an integer of at least 65536"),
    "limit_nofile": Rule(values.integer(1024, 1 << 30), "an integer of at least 1024"),
    "limit_stack": Rule(values.integer(0, 1 << 40), "bytes, an integer; 0 leaves the default"),
    "oom_score_adjust": Rule(values.integer(-1000, 1000), "an integer from -1000 to 1000"),
    "node_memory_gib": Rule(values.number(1, 1024), _GIB),
    "weights_gib": Rule(values.number(0, 1024), _GIB),
    "activations_gib": Rule(values.number(0, 1024), _GIB),
    "graphs_gib": Rule(values.number(0, 1024), _GIB),
    "page_cache": Rule(values.one_of("drop", "keep"), "drop or keep"),
    "pins": Rule(values.text_mapping, "a mapping of Python distributions to versions"),
    "log_lines": Rule(values.list_of(values.mapping_of(_LOG_LINE)), "a list of {text, want, ranks, means, required}"),
    "sees": Rule(values.boolean, "true or false"),
    "thinking": Rule(values.mapping_of(_THINKING), "a mapping of enable, disable, default"),
    "ready_line": Rule(
        values.optional_text, "text that a line of the head's log contains once it serves, or an empty text"
    ),
    "ready_timeout_s": Rule(values.integer(1, 86400), "seconds, an integer from 1 to 86400"),
    "stop_timeout_s": Rule(values.integer(1, 3600), "seconds, an integer from 1 to 3600"),
    "kubernetes": Rule(values.empty_or(values.mapping_of(_KUBERNETES)), "a mapping of names in the cluster"),
}
