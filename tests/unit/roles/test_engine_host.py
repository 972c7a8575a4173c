# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles that ready hosts take from the engine's profile, by their defaults, as Ansible makes them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "sha256:" + 64 * "a"
LAB = yaml.safe_load((ROOT / "inventories/lab/group_vars/all/main.yml").read_text())


def of_role(role: str, names: tuple[str, ...], cases: dict[str, dict[str, Any]], folder: Path) -> dict[str, list[Any]]:
    """The values of these defaults by case, when its variables are set as a user does: each case is a host of its own."""
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").symlink_to(ROOT / "roles" / role / "defaults/main.yml")
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": cases}}))
    ask = f"msg={{{{ [{', '.join(names)}] }}}}"
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible"), "-i", folder / "hosts.yml", "all", "-m", "debug", "-a", ask],
        cwd=folder,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = dict(re.findall(r"^(\S+) \| SUCCESS => (\{.*?^\})$", done.stdout, flags=re.MULTILINE | re.DOTALL))
    assert set(said) == set(cases), done.stdout + done.stderr
    return {case: json.loads(text)["msg"] for case, text in said.items()}


MEMORY = (
    "memory_engine_weights_gib",
    "memory_engine_activations_gib",
    "memory_engine_graphs_gib",
    "memory_engine_utilization",
    "memory_page_cache",
    "memory_guard_profile",
)
RING = {"engine_profile": "vllm-tp3-ring-exl3", "ring_size": 3}
BARE = {"engine_profile": "vllm-tp2-baremetal", "ring_size": 2}
SGLANG = {"engine_profile": "sglang-tp4-engram", "ring_size": 4, "engine_overrides": {"image": f"x@{DIGEST}"}}
PINNED = {"engine_overrides": {"options": {"kv-cache-memory-bytes": 1 << 30}}}


def profile(case: dict[str, Any]) -> dict[str, Any]:
    path = ROOT / f"roles/engine/profiles/{case['engine_profile']}.yml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def sizes(case: dict[str, Any]) -> list[float]:
    """GiB of a rank as the profile's file has them."""
    return [float(profile(case).get(name, 0)) for name in ("weights_gib", "activations_gib", "graphs_gib")]


MEMORY_CASES = {
    "without-an-engine": ({}, [0, 0, 0, 0, "drop", "ring"]),
    "published-ring": (RING, [82.5, 7, 2, 0.8, "drop", "ring"]),
    "published-pair": (BARE, [*sizes(BARE), 0.87, "drop", "ring"]),
    "sglang-has-a-flag-of-its-own": (SGLANG, [*sizes(SGLANG), 0.8, "drop", "ring"]),
    "a-pinned-cache-is-not-compared": ({**RING, **PINNED}, [82.5, 7, 2, 0, "drop", "ring"]),
    "weights-in-the-page-cache": (
        {**BARE, "engine_overrides": {"page_cache": "keep"}},
        [*sizes(BARE), 0.87, "keep", "mapped"],
    ),
    "the-user-has-the-last-word": ({**BARE, "memory_engine_utilization": 0.5}, [*sizes(BARE), 0.5, "drop", "ring"]),
    "the-lab-takes-nothing-of-what-its-nodes-share": ({**LAB, "ring_size": 3}, [0, 0, 0, 0, "drop", "ring"]),
}


def test_the_room_before_a_start_is_the_profiles(tmp_path: Path) -> None:
    found = of_role("memory", MEMORY, {case: given for case, (given, _wanted) in MEMORY_CASES.items()}, tmp_path)
    assert found == {case: wanted for case, (_given, wanted) in MEMORY_CASES.items()}


RENDERER_CASES = {
    "without-an-engine": ({}, [""]),
    "published-ring": (RING, ["docker"]),
    "published-pair": (BARE, ["venv"]),
    "in-a-cluster": ({**RING, "engine_renderer": "kubernetes"}, ["kubernetes"]),
    "in-a-cluster-by-an-override": ({**RING, "engine_overrides": {"renderer": "kubernetes"}}, ["kubernetes"]),
    "the-variable-goes-before-overrides": (
        {**RING, "engine_overrides": {"renderer": "kubernetes"}, "engine_renderer": "podman"},
        ["podman"],
    ),
    "empty-is-as-the-profile-says": ({**RING, "engine_renderer": ""}, ["docker"]),
    "the-user-has-the-last-word": ({**RING, "preflight_renderer": "kubernetes"}, ["kubernetes"]),
}


def test_whose_engine_is_whose_follows_the_renderer(tmp_path: Path) -> None:
    given = {case: variables for case, (variables, _wanted) in RENDERER_CASES.items()}
    found = of_role("preflight", ("preflight_renderer",), given, tmp_path)
    assert found == {case: wanted for case, (_given, wanted) in RENDERER_CASES.items()}


NCCL = ("rdma_nccl_path", "rdma_nccl_image", "rdma_nccl_runtime", "rdma_nccl_required")
RING_IMAGE = profile(RING)["image"]
NCCL_CASES = {
    "without-an-engine": ({}, ["", "", "auto", True]),
    "image": (RING, ["", RING_IMAGE, "docker", False]),
    "podman": ({**RING, "engine_renderer": "podman"}, ["", RING_IMAGE, "podman", False]),
    "an-id-goes-before-a-name": (
        {"engine_profile": "vllm-tp3-ring-docker", "ring_size": 3, "engine_overrides": {"image_id": DIGEST}},
        ["", DIGEST, "docker", False],
    ),
    "virtual-environment": (BARE, ["/opt/vllm/venv", "", "auto", False]),
    "a-program-elsewhere": (
        {**BARE, "engine_overrides": {"executable": "/opt/vllm/vllm"}},
        ["/opt/vllm", "", "auto", False],
    ),
    "the-cluster-has-the-image": ({**RING, "engine_renderer": "kubernetes"}, ["", "", "auto", False]),
    "the-lab-has-none": ({**LAB, "ring_size": 3}, ["", "", "auto", False]),
    "vllm-on-cpu-has-none": ({"engine_profile": "lab-vllm-cpu", "ring_size": 3}, ["", "", "auto", False]),
    "the-user-has-the-last-word": ({**BARE, "rdma_nccl_path": "/usr/lib"}, ["/usr/lib", "", "auto", False]),
}


def test_the_nccl_that_is_looked_at_is_the_profiles(tmp_path: Path) -> None:
    found = of_role("rdma", NCCL, {case: given for case, (given, _wanted) in NCCL_CASES.items()}, tmp_path)
    assert found == {case: wanted for case, (_given, wanted) in NCCL_CASES.items()}
