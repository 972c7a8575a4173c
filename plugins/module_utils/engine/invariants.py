# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to hold between the keys of a profile, and between a profile and the checkpoint; each broken rule is one text with its cure.

Every rule here has cost somebody a boot or a power cycle; docs/engine.md names the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import engram_place

if TYPE_CHECKING:
    from .profile import Profile

_PINNED_GID = ("NCCL_IB_GID_INDEX", "B12X_ROCE_GID_INDEX")
_NOT_ON_A_RING = ("NCCL_CROSS_NIC", "NCCL_IB_ADDR_RANGE")
_DRAFTER_EXPERTS = 128  # of DSpark's draft layers (config.json: dspark_n_routed_experts)


def profile_problems(profile: Profile) -> list[str]:
    """Everything that contradicts itself in a profile."""
    return [problem for rule in _PROFILE_RULES for problem in rule(profile)]


def _ports(profile: Profile) -> Iterator[str]:
    if profile.port == profile.rendezvous_port:
        yield f"port and rendezvous_port are both {profile.port}, they must differ"


def _program(profile: Profile) -> Iterator[str]:
    if profile.renderer == "venv" and profile.executable and not profile.executable.startswith("/"):
        yield f"executable is {profile.executable!r}, expected an absolute path on the nodes with renderer venv"


def _image(profile: Profile) -> Iterator[str]:
    known = "@sha256:" in profile.image or (profile.image_id and profile.renderer != "kubernetes")
    if profile.renderer == "venv" or known:
        return
    found = f"image is {profile.image}, a tag that can move" if profile.image else "image is missing"
    yield (
        f"{found}; renderer {profile.renderer} runs images by digest only. Cure: engine_overrides with image: "
        f"{profile.image.partition(':')[0] or 'NAME'}@sha256:... (`docker image inspect` shows RepoDigests); docker and podman also take "
        "image_id, for an image that was built here"
    )


def _rendezvous(profile: Profile) -> Iterator[str]:
    if profile.rendezvous == "fabric" and "ring" in profile.shapes:
        yield (
            "rendezvous is fabric and shapes has ring: no fabric address of a ring is reachable from every node, write management, "
            "or take ring out of shapes"
        )


def _gid(profile: Profile) -> Iterator[str]:
    pinned = [name for name in (*_PINNED_GID, *profile.gid_variables) if profile.env.get(name)]
    for name in dict.fromkeys(pinned):
        yield (
            f"env has {name}={profile.env[name]}: the index differs between nodes and moves, so it is looked up at each start. "
            + (
                "Cure: leave it out, NCCL finds it by version and address family"
                if name.startswith("NCCL")
                else f"Cure: list {name} under gid_variables"
            )
        )


def _ring_environment(profile: Profile) -> Iterator[str]:
    if "ring" in profile.shapes:
        for name in _NOT_ON_A_RING:
            if profile.env.get(name):
                yield f"env has {name}={profile.env[name]}: it has no right value on a ring (LLMKube multi-node guide), leave it out"


def _capture_sizes(profile: Profile) -> Iterator[str]:
    """A decode batch under speculation is k or k + 1 tokens a sequence; a size that is not captured runs without a graph."""
    sizes = _mapping(profile, "compilation-config").get("cudagraph_capture_sizes")
    k = _mapping(profile, "speculative-config").get("num_speculative_tokens")
    sequences = profile.options.get("max-num-seqs")
    if not isinstance(sizes, (list, tuple)) or not isinstance(k, int) or not isinstance(sequences, int) or k < 1:
        return
    wanted = {step * count for step in (k, k + 1) for count in range(1, sequences + 1)}
    allowed = {size for size in range(1, (k + 1) * sequences + 1) if size % k == 0 or size % (k + 1) == 0}
    if wanted - set(sizes) or set(sizes) - allowed:
        yield (
            f"options.compilation-config.cudagraph_capture_sizes is {list(sizes)}, expected the multiples of {k} and {k + 1} for up to "
            f"{sequences} sequences (num_speculative_tokens {k}, max-num-seqs {sequences}): {sorted(wanted)}"
        )


def _expert_parallel(profile: Profile) -> Iterator[str]:
    speculative = _mapping(profile, "speculative-config").get("method")
    uneven = _DRAFTER_EXPERTS % profile.tensor_parallel
    if (
        profile.engine == "vllm"
        and profile.options.get("enable-expert-parallel")
        and speculative == "dspark"
        and uneven
    ):
        yield (
            f"options.enable-expert-parallel with DSpark on {profile.tensor_parallel} ranks: the drafter's {_DRAFTER_EXPERTS} experts do "
            "not divide, and the patch that allows it needs every expert on its rank. Cure: null"
        )


def _adaptive(profile: Profile) -> Iterator[str]:
    if _mapping(profile, "speculative-config").get("enable_adaptive_verification"):
        yield (
            "options.speculative-config.enable_adaptive_verification is true: the sparse indexer of the GB10 does not support it and the "
            "worker ends while it determines its memory. Cure: false"
        )


def _tools(profile: Profile) -> Iterator[str]:
    if profile.options.get("enable-auto-tool-choice") and not profile.options.get("tool-call-parser"):
        yield "options.enable-auto-tool-choice needs tool-call-parser"


def _sight(profile: Profile) -> Iterator[str]:
    if profile.sees and profile.options.get("language-model-only"):
        yield "sees is true, but language-model-only leaves the vision tower out: set one of them to false"
    if profile.sees and _mapping(profile, "limit-mm-per-prompt").get("image") == 0:
        yield "sees is true, but limit-mm-per-prompt allows no image: allow one, or set sees to false"


def _aliases(profile: Profile) -> Iterator[str]:
    if profile.engine == "sglang" and profile.served_model_aliases:
        yield (
            f"served_model_aliases is {', '.join(profile.served_model_aliases)} and engine sglang, which serves a model by one name. Cure: leave "
            "it out, and set served_model_name to the name that clients ask for"
        )


def _mxfp8(profile: Profile) -> Iterator[str]:
    wanted = "flashinfer_cutlass"
    if profile.env.get("SPARK_MXFP8_BACKEND") and profile.options.get("fp8-gemm-backend") != wanted:
        yield f"env has SPARK_MXFP8_BACKEND, which wraps one route only. Cure: options.fp8-gemm-backend: {wanted}"


def _floor(profile: Profile) -> Iterator[str]:
    """Under it the engine loads for minutes and then reports a negative KV cache."""
    pinned = profile.options.get("kv-cache-memory-bytes")
    given = _number(profile.options.get("gpu-memory-utilization"))
    needed = profile.weights_gib + profile.activations_gib + profile.graphs_gib
    if not pinned and given is not None and profile.weights_gib and given * profile.node_memory_gib <= needed:
        yield (
            f"options.gpu-memory-utilization is {given:g} of {profile.node_memory_gib:g} GiB = {given * profile.node_memory_gib:.1f} GiB, "
            f"but weights {profile.weights_gib:g}, activations {profile.activations_gib:g} and graphs {profile.graphs_gib:g} need "
            f"{needed:g} GiB: expected more than {needed / profile.node_memory_gib:.3f}"
        )


def _static_floor(profile: Profile) -> Iterator[str]:
    """SGLang's part of the memory is for weights and KV cache alone; activations and graphs have to fit beside it."""
    given = _number(profile.options.get("mem-fraction-static"))
    if given is None or not profile.weights_gib:
        return
    memory, beside = profile.node_memory_gib, profile.activations_gib + profile.graphs_gib
    low, high = profile.weights_gib / memory, 1 - beside / memory
    if not low < given <= high:
        yield (
            f"options.mem-fraction-static is {given:g} of {memory:g} GiB = {given * memory:.1f} GiB, but weights need {profile.weights_gib:g} "
            f"GiB of it, and activations and graphs {beside:g} GiB beside it: expected more than {low:.3f}, at most {high:.3f}"
        )


def _ceiling(profile: Profile) -> Iterator[str]:
    if profile.renderer != "venv" and profile.memory_gib >= profile.node_memory_gib:
        yield (
            f"memory_gib is {profile.memory_gib}, expected less than the node's {profile.node_memory_gib:g} GiB: without room for the host "
            "an overrun takes sshd and kubelet with it"
        )


def _kubernetes(profile: Profile) -> Iterator[str]:
    if profile.renderer != "kubernetes":
        return
    if not profile.kubernetes:
        yield "renderer is kubernetes, expected the key kubernetes with the names to use in the cluster"
    if profile.engine != "vllm":
        yield f"renderer is kubernetes and engine {profile.engine}: LLMKube runs groups of several nodes with vllm only"


_PROFILE_RULES: tuple[Callable[[Profile], Iterator[str]], ...] = (
    _ports,
    _program,
    _image,
    _rendezvous,
    _gid,
    _ring_environment,
    _capture_sizes,
    _expert_parallel,
    _adaptive,
    _tools,
    _sight,
    _aliases,
    _mxfp8,
    _floor,
    _static_floor,
    _ceiling,
    _kubernetes,
    engram_place.problems,
)


def shape_problems(profile: Profile, shape: str) -> list[str]:
    """Whether the group is cabled as the profile needs it."""
    if shape in profile.shapes:
        return []
    return [
        f"profile {profile.name} is for nodes cabled as {' or '.join(profile.shapes)}, ring_shape is {shape}. Cure: another profile, or "
        "engine_overrides with shapes after reading what the profile sets for NCCL"
    ]


def model_problems(profile: Profile, config: Mapping[str, Any] | None) -> list[str]:
    """What contradicts between the profile and the checkpoint's config.json; None: not staged yet, nothing to compare."""
    if config is None:
        return []
    text = config.get("text_config")
    text = text if isinstance(text, Mapping) else config
    tp = profile.tensor_parallel
    pads = f"set checkpoint_tensor_parallel to {tp}, which pads heads and groups where that is known to work"
    cure = pads if profile.engine == "vllm" else "another number of nodes; the edit that pads is known for vLLM alone"
    problems = [
        f"{key} is {text[key]} in config.json and does not divide by {tp} ranks. Cure: {cure}"
        for key in ("num_attention_heads", "o_groups")
        if isinstance(text.get(key), int) and text[key] % tp
    ]
    experts = text.get("n_routed_experts")
    ep = tp if profile.options.get("enable-expert-parallel") else profile.options.get("ep-size")
    if isinstance(experts, int) and isinstance(ep, int) and ep and experts % ep:
        problems.append(
            f"n_routed_experts is {experts} in config.json and does not divide by {ep} expert-parallel ranks"
        )
    return problems


def _mapping(profile: Profile, name: str) -> Mapping[str, Any]:
    value = profile.options.get(name)
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
