# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.invariants import model_problems, shape_problems
from ansible_collections.gb10.ring.plugins.module_utils.engine.options import merged
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import ProfileError, parse
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import CONFIG, GROUPS, PADDED

RING3 = "vllm-tp3-ring-exl3"


def changed(change, name=RING3):
    group = GROUPS[name]
    return parse(merged(group.read(), change), len(group.topology["nodes"]))


def options(**given):
    return {"options": {name.replace("_", "-"): value for name, value in given.items()}}


DSPARK = {"method": "dspark", "num_speculative_tokens": 3}
K3 = {"cudagraph_capture_sizes": [3, 4, 6, 8]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"port": 29500}, "port and rendezvous_port are both 29500, they must differ"),
        ({"renderer": "venv"}, "executable is 'vllm', expected an absolute path on the nodes with renderer venv"),
        ({"image": ""}, "image is missing; renderer docker runs images by digest only"),
        ({"image": "vllm/vllm-openai:v1"}, "image is vllm/vllm-openai:v1, a tag that can move"),
        (
            {"renderer": "kubernetes", "image": "x:1", "image_id": f"sha256:{'0' * 64}"},
            "image is x:1, a tag that can move; renderer kubernetes",
        ),
        ({"rendezvous": "fabric"}, "no fabric address of a ring is reachable from every node"),
        ({"env": {"NCCL_IB_GID_INDEX": 3}}, "env has NCCL_IB_GID_INDEX=3: the index differs between nodes and moves"),
        ({"env": {"B12X_ROCE_GID_INDEX": 3}}, "Cure: list B12X_ROCE_GID_INDEX under gid_variables"),
        ({"env": {"MY_GID": 3}, "gid_variables": ["MY_GID"]}, "env has MY_GID=3"),
        ({"env": {"NCCL_CROSS_NIC": 1}}, "env has NCCL_CROSS_NIC=1: it has no right value on a ring"),
        (
            {"env": {"NCCL_IB_ADDR_RANGE": "10.0.0.0/24"}},
            "NCCL_IB_ADDR_RANGE=10.0.0.0/24: it has no right value on a ring",
        ),
        (
            options(max_num_seqs=4),
            "cudagraph_capture_sizes is [5, 6, 10, 12], expected the multiples of 5 and 6 for up to 4",
        ),
        (
            options(compilation_config={"cudagraph_capture_sizes": [5, 6, 10, 12, 13]}),
            "expected the multiples of 5 and 6",
        ),
        (options(compilation_config={"cudagraph_capture_sizes": [5, 10, 12]}), "[5, 6, 10, 12]"),
        (options(speculative_config=DSPARK), "expected the multiples of 3 and 4"),
        (options(enable_expert_parallel=True), "the drafter's 128 experts do not divide"),
        ({"sees": True}, "sees is true, but language-model-only leaves the vision tower out"),
        (
            {"sees": True, **options(language_model_only=None, limit_mm_per_prompt={"image": 0})},
            "sees is true, but limit-mm-per-prompt allows no image",
        ),
        (
            {"engine": "sglang", "served_model_aliases": ["a", "b"]},
            "served_model_aliases is a, b and engine sglang, which serves a model by one name",
        ),
        (options(speculative_config={"enable_adaptive_verification": True}), "the sparse indexer of the GB10"),
        (options(tool_call_parser=None), "options.enable-auto-tool-choice needs tool-call-parser"),
        (
            options(gpu_memory_utilization=0.72),
            "weights 82.5, activations 7 and graphs 2 need 91.5 GiB: expected more than 0.752",
        ),
        ({"memory_gib": 122}, "memory_gib is 122, expected less than the node's 121.6 GiB"),
        ({"renderer": "kubernetes", "kubernetes": None}, "kubernetes is None, expected a mapping"),
    ],
)
def test_what_contradicts_itself_is_refused(change, says):
    with pytest.raises(ProfileError) as error:
        changed(change)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("sglang-tp4-engram", options(fp8_gemm_backend=None), "Cure: options.fp8-gemm-backend: flashinfer_cutlass"),
        ("sglang-tp4-engram", {"renderer": "kubernetes"}, "runs groups of several nodes with vllm only"),
        (
            "vllm-tp3-ring-docker",
            {"renderer": "kubernetes", "image_id": ""},
            "expected the key kubernetes with the names",
        ),
    ],
)
def test_of_other_profiles(name, change, says):
    with pytest.raises(ProfileError) as error:
        changed(change, name)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"image": "x@sha256:" + "0" * 64},
        {"image": "x:1", "image_id": "sha256:" + "0" * 64},
        {"env": {"NCCL_IB_GID_INDEX": None}},
        options(max_num_seqs=4, compilation_config={"cudagraph_capture_sizes": [5, 6, 10, 12, 15, 18, 20, 24]}),
        options(speculative_config=DSPARK, compilation_config=K3),
        options(speculative_config=None, compilation_config={"cudagraph_capture_sizes": [1, 2]}),
        options(gpu_memory_utilization=0.78),
        options(gpu_memory_utilization=0.5, kv_cache_memory_bytes=4509715660),
        options(gpu_memory_utilization=None),
        options(enable_expert_parallel=True, speculative_config={"method": "mtp"}),
        {"rendezvous": "fabric", "shapes": ["pair", "switch"]},
        {"renderer": "kubernetes"},
        {"renderer": "podman"},
        {"memory_gib": 121},
    ],
)
def test_what_does_not_is_taken(change):
    assert changed(change).name == RING3


FLOORS = {
    "vllm-tp3-ring-exl3": ("gpu_memory_utilization", 91.5),
    "vllm-tp3-ring-docker": ("gpu_memory_utilization", 93.2),
    "vllm-tp2-pair-vision": ("gpu_memory_utilization", 87.5),
    "vllm-tp2-baremetal": ("gpu_memory_utilization", 81.6),
    "sglang-tp4-engram": ("mem_fraction_static", 71.5),
}


@pytest.mark.parametrize("name", sorted(set(GROUPS) - {"lab", "lab-vllm-cpu"}))
def test_every_published_profile_has_a_floor(name):
    flag, needed = FLOORS[name]
    floor = needed / 121.6
    assert changed(options(**{flag: round(floor + 0.001, 4)}), name)
    with pytest.raises(ProfileError, match=f"expected more than {floor:.3f}"):
        changed(options(**{flag: round(floor - 0.001, 4)}), name)


def test_activations_and_graphs_of_sglang_have_to_fit_beside_its_part():
    sizes = {"activations_gib": 20, "graphs_gib": 4}
    assert changed(sizes, "sglang-tp4-engram")
    with pytest.raises(ProfileError, match=r"activations and graphs 25 GiB beside it: .* at most 0\.794"):
        changed({**sizes, "graphs_gib": 5}, "sglang-tp4-engram")


def test_several_are_told_at_once():
    with pytest.raises(ProfileError) as error:
        changed({"image": "", "env": {"NCCL_CROSS_NIC": 1}, **options(gpu_memory_utilization=0.5)})
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("shapes", "shape", "fits"),
    [(["ring"], "ring", True), (["ring"], "pair", False), (["pair", "switch"], "switch", True)],
)
def test_shape(shapes, shape, fits):
    problems = shape_problems(changed({"shapes": shapes}), shape)
    assert (problems == []) is fits
    assert all(f"cabled as {' or '.join(shapes)}, ring_shape is {shape}" in problem for problem in problems)


@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        (RING3, None, []),
        (RING3, PADDED, []),
        (RING3, CONFIG, ["num_attention_heads is 64", "o_groups is 8"]),
        (RING3, {"num_attention_heads": 64}, ["num_attention_heads is 64"]),
        (RING3, {}, []),
        ("sglang-tp4-engram", CONFIG, []),
        ("sglang-tp4-engram", merged(CONFIG, {"text_config": {"n_routed_experts": 255}}), ["n_routed_experts is 255"]),
        ("vllm-tp2-pair-vision", {"n_routed_experts": 255}, ["n_routed_experts is 255"]),
    ],
)
def test_a_checkpoint_that_does_not_divide_is_refused(name, config, says):
    problems = model_problems(changed({}, name), config)
    assert [problem.partition(" in config.json")[0] for problem in problems] == says
