# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The group as resources of LLMKube: Model and InferenceService, and the files that hold them with what they need.

Fields as in LLMKube's api/v1alpha1 (inferenceservice_types.go, model_types.go) and its multi-node guide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .engram_place import MOUNT as ROWS
from .kubernetes_support import config_jobs, config_program, page_cache_job, storage
from .options import words
from .profile import Profile
from .spec import EngineSpec

API = "inference.llmkube.dev/v1alpha1"
POD_MODEL_ROOT = "/model-source"  # where the operator mounts the claim of a pvc:// source
_POD_CACHE_ROOT = "/models"  # and where it keeps what it fetches from other sources
_DEFAULT_RENDEZVOUS = 29500
# Set by the operator for each member from its fabric block.
_OPERATORS = ("GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "VLLM_HOST_IP")
_TYPED = {
    "max-model-len": "maxModelLen",
    "gpu-memory-utilization": "gpuMemoryUtilization",
    "enable-expert-parallel": "enableExpertParallel",
    "kv-cache-dtype": "kvCacheDtype",
}
_KV_DTYPES = ("auto", "fp8_e4m3", "fp8_e5m2")  # others go by kvCacheCustomDtype


class ManifestError(ValueError):
    """The group cannot be said in these resources; the text is the message for the user."""


@dataclass(frozen=True)
class Cluster:
    """Where the group goes. nodes, claims: by rank. source: s3://BUCKET/PREFIX that the operator stages, empty: staged on the nodes.

    secret: name of the Secret with the store's credentials. files: of the prefix, empty: left to the operator. capacity: of a volume, as a Kubernetes quantity.
    """

    namespace: str
    nodes: tuple[str, ...]
    claims: tuple[str, ...]
    source: str = ""
    secret: str = ""
    files: tuple[str, ...] = ()
    capacity: str = "600Gi"


def engine_path(source: str, revision: str) -> str:
    """The checkpoint's directory in a pod: below the operator's key of an s3 source, or the revision's own."""
    if not source:
        return f"{POD_MODEL_ROOT}/revisions/{revision}"
    return f"{_POD_CACHE_ROOT}/{hashlib.sha256(source.encode()).hexdigest()[:16]}"


def engine_root(source: str) -> str:
    """Where a pod sees what is the checkpoint's directory on the node, which is the claim's volume."""
    return _POD_CACHE_ROOT if source else POD_MODEL_ROOT


def manifests(
    profile: Profile, specs: Sequence[EngineSpec], cluster: Cluster, pad_program: str
) -> dict[str, list[dict[str, Any]]]:
    """Resources by file name, in the order in which they are applied. Raises ManifestError.

    specs: of all ranks, in order. pad_program: text of the module that pads config.json.
    """
    if len({len(specs), len(cluster.nodes), len(cluster.claims)}) != 1:
        raise ManifestError(
            f"{len(specs)} ranks, {len(cluster.nodes)} node names and {len(cluster.claims)} claims: expected one of each for every rank"
        )
    root = specs[0].model["root"]
    members = list(zip(cluster.nodes, cluster.claims, strict=True))
    base = storage(profile, cluster.namespace, members, root, cluster.capacity)
    drops = profile.page_cache == "drop"
    jobs = [page_cache_job(profile, cluster.namespace, node) for node, _claim in members if drops]
    if cluster.source and profile.kubernetes.get("pad_config"):
        base.append(config_program(profile, cluster.namespace, pad_program))
        jobs += config_jobs(profile, cluster.namespace, members, specs[0].model["engine_path"])
    return {
        "10-storage.yaml": base,
        "20-model.yaml": [model(profile, cluster, specs[0].model["revision"])],
        "30-jobs.yaml": jobs,
        "40-inferenceservice.yaml": [inference_service(profile, specs, cluster)],
    }


def model(profile: Profile, cluster: Cluster, revision: str) -> dict[str, Any]:
    """Where the operator finds the checkpoint."""
    names = profile.kubernetes
    spec: dict[str, Any] = {
        "source": cluster.source or f"pvc://{cluster.claims[0]}/revisions/{revision}",
        "format": "safetensors",
        "refreshPolicy": "IfNotPresent",
        "hardware": {"accelerator": "cuda", "gpu": {"enabled": True, "count": 1, "vendor": "nvidia"}},
    }
    if names.get("quantization"):
        spec["quantization"] = names["quantization"]
    if cluster.source:
        if cluster.files:
            spec["files"] = list(cluster.files)
        if cluster.secret:
            spec["sourceSecretRef"] = {"name": cluster.secret}
    return _resource("Model", names["model"], cluster.namespace, spec)


def inference_service(profile: Profile, specs: Sequence[EngineSpec], cluster: Cluster) -> dict[str, Any]:
    """The group. Rank order is the order of members; the operator adds what vLLM needs to know of several nodes."""
    names = profile.kubernetes
    typed, further = _split(profile, specs)
    spec: dict[str, Any] = {
        "modelRef": names["model"],
        "runtime": "vllm",
        "image": profile.image,
        "replicas": 1,
        "containerPort": profile.port,
        "resources": _resources(profile),
        "vllmConfig": {"tensorParallelSize": profile.tensor_parallel, "pipelineParallelSize": 1, **typed},
        "extraArgs": ["--served-model-name", profile.served_model_name, *profile.served_model_aliases, *further],
        "env": [{"name": name, "value": value} for name, value in _shared_environment(specs).items()],
        **_volumes(profile, specs[0]),
        "multiNode": _multi_node(profile, specs, cluster),
    }
    if cluster.source:
        spec["modelCache"] = {"claimName": cluster.claims[0]}
    if names.get("tolerations"):
        spec["tolerations"] = [dict(item) for item in names["tolerations"]]
    return _resource("InferenceService", names["service"], cluster.namespace, spec)


def _resource(kind: str, name: str, namespace: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": dict(spec)}


def _resources(profile: Profile) -> dict[str, Any]:
    """Of each member. Requests equal limits: a pod without a memory limit takes the node down with it."""
    found: dict[str, Any] = {"gpu": 1, "memory": f"{profile.memory_gib}Gi"}
    if profile.cpus:
        found["cpu"] = str(profile.cpus)
    return found


def _split(profile: Profile, specs: Sequence[EngineSpec]) -> tuple[dict[str, Any], list[str]]:
    """Options that are fields of vllmConfig, and all others as arguments in the profile's order."""
    differing = sorted(
        name for name, value in specs[0].options.items() if any(spec.options[name] != value for spec in specs)
    )
    if differing:
        raise ManifestError(
            f"the ranks differ in the options {', '.join(differing)}; an InferenceService has one list for all"
        )
    typed: dict[str, Any] = {}
    further = {}
    for name, value in specs[0].options.items():
        if name == "kv-cache-dtype" and value not in _KV_DTYPES:
            typed["kvCacheCustomDtype"] = value
        elif name in _TYPED:
            typed[_TYPED[name]] = value
        else:
            further[name] = value
    return typed, [*words(further), *profile.args]


def _shared_environment(specs: Sequence[EngineSpec]) -> dict[str, str]:
    """The service has one environment: what differs between ranks must be the operator's to set."""
    first = specs[0].env
    differing = sorted(
        name
        for name in set().union(*(spec.env for spec in specs))
        if name not in _OPERATORS and len({spec.env.get(name) for spec in specs}) > 1
    )
    if differing:
        shown = "; ".join(f"{name}: {', '.join(str(spec.env.get(name)) for spec in specs)}" for name in differing)
        raise ManifestError(
            f"the ranks differ in {shown}; an InferenceService has one environment for all. Cure: another renderer, or unset them in "
            "engine_overrides.env"
        )
    return {name: value for name, value in first.items() if name not in _OPERATORS}


def _volumes(profile: Profile, spec: EngineSpec) -> dict[str, Any]:
    cache = {"path": profile.cache_directory, "type": "DirectoryOrCreate"}
    shared = {"medium": "Memory", "sizeLimit": f"{profile.shm_gib}Gi"}
    volumes: list[dict[str, Any]] = [{"name": "cache", "hostPath": cache}, {"name": "shm", "emptyDir": shared}]
    mounts: list[dict[str, Any]] = [
        {"name": "cache", "mountPath": profile.cache_mount},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    for rows in [mount for mount in spec.container.mounts if mount.target == ROWS] if spec.container else ():
        volumes.append({"name": "engram", "hostPath": {"path": rows.source, "type": "Directory"}})
        mounts.append({"name": "engram", "mountPath": rows.target, "readOnly": True})
    for number, mount in enumerate(profile.mounts):
        name = f"mount-{number}"
        volumes.append({"name": name, "hostPath": {"path": mount["source"]}})
        mounts.append({"name": name, "mountPath": mount["target"], "readOnly": bool(mount.get("read_only", True))})
    return {"extraVolumes": volumes, "extraVolumeMounts": mounts}


def _multi_node(profile: Profile, specs: Sequence[EngineSpec], cluster: Cluster) -> dict[str, Any]:
    """No ibGIDIndex: it would pin one index for all members, and NCCL finds each by version and address family."""
    members = [
        {
            "node": node,
            "fabric": {
                "address": spec.rendezvous["address"],
                "socketInterface": spec.rendezvous["interface"],
                "ibHCA": ",".join(spec.gid_devices),
            },
            "modelCache": {"claimName": claim},
        }
        for node, claim, spec in zip(cluster.nodes, cluster.claims, specs, strict=True)
    ]
    found: dict[str, Any] = {"members": members}
    if profile.kubernetes.get("rdma_resource"):
        found["rdmaResource"] = profile.kubernetes["rdma_resource"]
    if profile.rendezvous_port != _DEFAULT_RENDEZVOUS:
        found["rendezvousPort"] = profile.rendezvous_port
    return found
