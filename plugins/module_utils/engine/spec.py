# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that decides what one rank runs, from profile, node and checkpoint: the one description that every renderer starts from."""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..checkpoint import engram
from . import engram_place
from .environment import Meeting, Node, SpecError, environment, fields, filled, filled_value, meeting, rdma_devices
from .gate_nccl import can_come
from .host_needs import memory
from .invariants import model_problems, shape_problems
from .options import words
from .profile import Profile

NAME = "gb10-ring-engine"
__all__ = ["EngineSpec", "ModelPlace", "Node", "SpecError", "api_url", "build", "url_at"]


@dataclass(frozen=True)
class ModelPlace:
    """Where the checkpoint lies. root: the directory that holds revisions/. config: the revision's config.json, None: not staged.

    config_digest: SHA-256 of that file. engine_path: where the engine finds the revision when that is not below its mount.
    engine_root: where it finds the root when that is not its mount.
    """

    root: str
    revision: str
    config_digest: str = ""
    config: Mapping[str, Any] | None = None
    engine_path: str = ""
    engine_root: str = ""

    @property
    def path(self) -> str:
        """The revision itself: the engine never goes through the `current` link, which may move under it."""
        return self.below(self.root)

    def below(self, root: str) -> str:
        return posixpath.join(root, "revisions", self.revision)


@dataclass(frozen=True)
class Mount:
    """A directory or file of the node inside the container."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Limits:
    """What a rank may use. 0: not limited here. memlock: bytes or infinity; stop_timeout: seconds."""

    memory_gib: int
    shm_gib: int
    cpus: int
    memlock: str
    nofile: int
    stack: int
    oom_score_adjust: int
    stop_timeout_s: int


@dataclass(frozen=True)
class Container:
    """How the rank is run in a container. image: what a runtime is given, an id where one is known, else NAME@DIGEST."""

    image: str
    reference: str
    mounts: tuple[Mount, ...]
    devices: tuple[str, ...]
    gpus: str
    capabilities: tuple[str, ...]


@dataclass(frozen=True)
class Readiness:
    """How to see that the group serves. start_position: 0 starts first; the highest rank does, the head last."""

    health: str
    models: str
    line: str
    timeout_s: int
    start_position: int


@dataclass(frozen=True)
class Expected:
    """What a healthy rank shows. log_lines: {text, want, means}, some with required, of this rank.

    memory: what it takes, as host_needs.memory() says.
    """

    log_lines: tuple[Mapping[str, Any], ...]
    memory: Mapping[str, Any]


@dataclass(frozen=True)
class EngineSpec:
    """One rank. options: the profile's with this rank's values, also in argv. kernels_from: whether FlashInfer's compiled kernels are in
    cache_directory or come with the image.

    hash: of everything that is rendered from it and of the checkpoint's configuration; render.with_hash fills it in.
    """

    profile: str
    engine: str
    renderer: str
    rank: int
    size: int
    shape: str
    url: str
    argv: tuple[str, ...]
    options: Mapping[str, Any]
    env: Mapping[str, str]
    gid_devices: Mapping[str, str]
    gid_variables: tuple[str, ...]
    ports: Mapping[str, int]
    rendezvous: Mapping[str, str]
    model: Mapping[str, str]
    working_directory: str
    cache_directory: str
    limits: Limits
    readiness: Readiness
    expected: Expected
    served_model_name: str
    thinking: Mapping[str, Any] = field(default_factory=dict)
    kernels_from: str = "cache"
    container: Container | None = None
    pins: Mapping[str, str] = field(default_factory=dict)
    hash: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def api_url(profile: Profile, node: Node) -> str:
    """Base URL of the group's API as every node reaches it."""
    return url_at(profile.host, profile.port, node.head_address)


def url_at(host: str, port: int, head_address: str) -> str:
    """The same. host: where the API listens. head_address: of the head on the management plane, which stands for all of its addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    reached = head_address if address.is_unspecified else f"[{host}]" if address.version == 6 else host
    return f"http://{reached}:{port}"


def build(profile: Profile, node: Node, model: ModelPlace) -> EngineSpec:
    """The rank's specification, without its hash. Raises SpecError with everything that does not fit."""
    problems = [*shape_problems(profile, node.shape), *model_problems(profile, model.config)]
    if not 0 <= node.rank < node.size:
        problems.insert(0, f"ring_rank is {node.rank}, expected 0 to {node.size - 1} in a group of {node.size}")
    if problems:
        raise SpecError("\n".join(problems))
    inside = profile.renderer != "venv"
    where = meeting(profile, node)
    root, cache = (profile.model_mount, profile.cache_mount) if inside else (model.root, profile.cache_directory)
    root = model.engine_root or root
    devices = rdma_devices(node)
    known = fields(node, where, _model_fields(profile, node, model, root, cache), list(devices))
    argv = _vllm(profile, node, where, known) if profile.engine == "vllm" else _sglang(profile, node, where, known)
    env = environment(profile, node, cache, known)
    return EngineSpec(
        profile=profile.name,
        engine=profile.engine,
        renderer=profile.renderer,
        rank=node.rank,
        size=node.size,
        shape=node.shape,
        url=api_url(profile, node),
        argv=(profile.executable, *profile.command, *argv, *(filled(word, known) for word in profile.args)),
        options=filled_value(profile.options, known),
        env=env,
        gid_devices=devices,
        gid_variables=profile.gid_variables,
        ports={"api": profile.port, "rendezvous": profile.rendezvous_port},
        rendezvous={"interface": where.interface, "address": where.address, "head": where.head},
        model={
            "root": model.root,
            "revision": model.revision,
            "path": model.path,
            "engine_path": known["model"],
            "config_sha256": model.config_digest,
            **_rows(profile, model),
        },
        working_directory=profile.working_directory or model.root,
        cache_directory=profile.cache_directory,
        limits=_limits(profile),
        readiness=_readiness(profile, node),
        expected=_expected(profile, node, env),
        served_model_name=profile.served_model_name,
        thinking=profile.thinking,
        kernels_from=profile.kernels_from if inside else "cache",
        container=_container(profile, model) if inside else None,
        pins=profile.pins,
    )


def _rows(profile: Profile, model: ModelPlace) -> dict[str, str]:
    """The directory of Engram rows, where the revision does not hold them."""
    directory = engram_place.directory_of(profile, model.root)
    return {"engram": directory} if directory else {}


def _model_fields(profile: Profile, node: Node, model: ModelPlace, root: str, cache: str) -> dict[str, str]:
    revision = model.engine_path or model.below(root)
    return {
        "model": revision,
        "model_root": root,
        "cache": cache,
        "engram": engram_place.seen_at(
            engram_place.directory_of(profile, model.root), model.root, root, profile.renderer != "venv"
        )
        or revision,
        "engram_rows": _engram_rows(profile, node, model) if _asks(profile, "{engram_rows}") else "",
    }


def _asks(profile: Profile, what: str) -> bool:
    return any(what in value for value in (*profile.env.values(), *engram_place.variables(profile).values()))


def _engram_rows(profile: Profile, node: Node, model: ModelPlace) -> str:
    """LAYER:FIRST:AFTER of each Engram table that this rank reads, as SPARK_ENGRAM_ROWS wants it."""
    if model.config is None:
        return "NOT-STAGED"
    try:
        tables = engram.ranges(model.config, node.size, engram_place.rule_of(profile))[node.rank]
    except engram.EngramError as error:
        raise SpecError(f"{model.path}/config.json: {error}") from error
    return ",".join(f"{layer}:{rows[0]}:{rows[1]}" for layer, rows in tables.items())


def _vllm(profile: Profile, node: Node, where: Meeting, known: Mapping[str, str]) -> list[str]:
    return [
        known["model"],
        *("--served-model-name", profile.served_model_name, *profile.served_model_aliases),
        *("--tensor-parallel-size", str(profile.tensor_parallel)),
        *("--nnodes", str(node.size)),
        *("--node-rank", str(node.rank)),
        *("--master-addr", where.head),
        *("--master-port", str(profile.rendezvous_port)),
        *("--distributed-executor-backend", "mp"),
        *("--host", profile.host),
        *("--port", str(profile.port)),
        *(["--headless"] if node.rank else []),
        *words(filled_value(profile.options, known)),
    ]


def _sglang(profile: Profile, node: Node, where: Meeting, known: Mapping[str, str]) -> list[str]:
    return [
        *("--model-path", known["model"]),
        *("--served-model-name", profile.served_model_name),
        *("--tp", str(profile.tensor_parallel)),
        *("--nnodes", str(node.size)),
        *("--node-rank", str(node.rank)),
        *("--dist-init-addr", f"{where.head}:{profile.rendezvous_port}"),
        *("--host", profile.host),
        *("--port", str(profile.port)),
        *words(filled_value(profile.options, known)),
    ]


def _limits(profile: Profile) -> Limits:
    return Limits(
        memory_gib=profile.memory_gib,
        shm_gib=profile.shm_gib,
        cpus=profile.cpus,
        memlock=profile.limit_memlock,
        nofile=profile.limit_nofile,
        stack=profile.limit_stack,
        oom_score_adjust=profile.oom_score_adjust,
        stop_timeout_s=profile.stop_timeout_s,
    )


def _readiness(profile: Profile, node: Node) -> Readiness:
    return Readiness("/health", "/v1/models", profile.ready_line, profile.ready_timeout_s, node.size - 1 - node.rank)


def _expected(profile: Profile, node: Node, env: Mapping[str, str]) -> Expected:
    """Lines that this environment switches off are not waited for."""
    lines: tuple[Mapping[str, Any], ...] = tuple(
        {"text": line["text"], "want": line.get("want", "present"), "means": line["means"], **_required(line)}
        for line in profile.log_lines
        if (line.get("ranks", "all") == "all" or node.rank == 0)
        and (line.get("want") == "absent" or can_come(line["text"], env))
    )
    if node.rank == 0 and profile.ready_line:
        lines = (*lines, {"text": profile.ready_line, "want": "present", "means": "the API has started"})
    return Expected(lines, memory(profile.to_dict()))


def _required(line: Mapping[str, Any]) -> dict[str, bool]:
    return {"required": True} if line.get("required") else {}


def _container(profile: Profile, model: ModelPlace) -> Container:
    own = (Mount(model.root, profile.model_mount), Mount(profile.cache_directory, profile.cache_mount, read_only=False))
    more = tuple(
        Mount(mount["source"], mount["target"], bool(mount.get("read_only", True))) for mount in profile.mounts
    )
    rows = engram_place.directory_of(profile, model.root)
    beside = engram_place.seen_at(rows, model.root, profile.model_mount) == engram_place.MOUNT
    return Container(
        image=profile.image_id or profile.image,
        reference=profile.image,
        mounts=(*own, *([Mount(rows, engram_place.MOUNT)] if beside else []), *more),
        devices=profile.devices,
        gpus=profile.gpus,
        capabilities=profile.capabilities,
    )
