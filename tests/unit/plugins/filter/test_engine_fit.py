# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.filter.engine_fit import engine_fit
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import parse
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import GROUPS


def profile(name):
    group = GROUPS[name]
    return parse(group.read(), len(group.topology["nodes"])).to_dict()


VLLM, SGLANG, LAB = (profile(name) for name in ("vllm-tp3-ring-exl3", "sglang-tp4-engram", "lab"))


@pytest.mark.parametrize(
    ("engine", "placement", "rule", "ranks", "says"),
    [
        (VLLM, "shard", "vllm", 3, []),
        (VLLM, "full", "", 0, []),
        (VLLM, "shard", "sglang", 3, ["checkpoint_engram_rule is sglang, expected vllm"]),
        (VLLM, "full", "sglang", 3, ["checkpoint_engram_rule is sglang"]),
        (VLLM, "directory", "", 3, ["checkpoint_engram_rule is empty"]),
        (LAB, "shard", "vllm", "3", []),  # says nothing of rows: its engine decides
        (LAB, "shard", "sglang", 3, ["checkpoint_engram_rule is sglang, expected vllm"]),
        (SGLANG, "directory", "sglang", 0, []),
        (SGLANG, "directory", "vllm", 0, ["expected sglang"]),
        (
            SGLANG,
            "full",
            "sglang",
            3,
            ["checkpoint_tensor_parallel is 3, which edits config.json for vLLM, expected 0"],
        ),
        (SGLANG, "shard", "vllm", 4, ["expected sglang", "checkpoint_tensor_parallel is 4"]),
        ({**SGLANG, "engram": {**SGLANG["engram"], "rule": "vllm"}}, "shard", "vllm", 0, []),
        ({}, "shard", "sglang", 3, []),
    ],
)
def test_what_the_engine_would_not_read(engine, placement, rule, ranks, says):
    found = engine_fit(engine, placement, rule, ranks, "spark1")
    assert len(found) == len(says)
    for check, text in zip(found, says, strict=True):
        assert text in f"{check['found']}, expected {check['expected']}"
        assert (check["ok"], check["node"], bool(check["cure"])) == (False, "spark1", True)


PODS = {**VLLM, "renderer": "kubernetes"}


@pytest.mark.parametrize(
    ("engine", "switches", "refused"),
    [
        (PODS, True, True),
        (PODS, False, False),
        (VLLM, True, False),
        (LAB, True, False),
        ({**VLLM, "renderer": "docker"}, True, False),
        ({}, True, False),
    ],
)
def test_pods_are_not_stopped_and_started(engine, switches, refused):
    found = engine_fit(engine, "shard", "vllm", 3, "spark1", switches=switches)
    assert [check["id"] for check in found] == ["checkpoint.renderer"] * refused
    for check in found:
        assert (check["ok"], check["node"]) == (False, "spark1")
        assert all(
            text in check["cure"] for text in ("site.yml", "delete the InferenceService", "checkpoint_serves: false")
        )


@pytest.mark.parametrize(
    ("engine", "ranks", "says"),
    [
        ([1], 3, r"checkpoint_engine is \[1\], expected a complete profile"),
        ("text", 3, "checkpoint_engine is 'text', expected a complete profile"),
        ({**VLLM, "engram": "x"}, 3, "checkpoint_engine.engram is 'x', expected a mapping"),
        ({**VLLM, "engram": {"rule": "even"}}, 3, "checkpoint_engine.engram.rule is 'even', allowed: vllm, sglang"),
        ({"name": "p", "renderer": "venv"}, 3, "checkpoint_engine.engine is not there, allowed: vllm, sglang"),
        ({**VLLM, "engine": ["vllm"]}, 3, "checkpoint_engine.engine is .'vllm'., allowed: vllm, sglang"),
        ({"name": "p", "engine": "vllm"}, 3, "checkpoint_engine.renderer is not there, allowed: venv, docker"),
        ({"engine": "vllm", "renderer": "venv"}, 3, "checkpoint_engine.name is not there"),
        (VLLM, "three", "checkpoint_tensor_parallel is 'three', expected 0 to 64"),
        (VLLM, None, "checkpoint_tensor_parallel is None, expected 0 to 64"),
        (VLLM, float("inf"), "checkpoint_tensor_parallel is inf"),
        (VLLM, True, "checkpoint_tensor_parallel is True"),
        (VLLM, -1, "checkpoint_tensor_parallel is -1"),
        ({}, 65, "checkpoint_tensor_parallel is 65"),
        pytest.param(VLLM, 10**5000, "checkpoint_tensor_parallel is something too large to show", id="huge"),
        (list(range(100_000)), 3, "expected a complete profile"),
    ],
)
@pytest.mark.parametrize("switches", [True, False])
def test_what_is_no_profile_is_one_clear_error(engine, ranks, says, switches):
    with pytest.raises(AnsibleFilterError, match=rf"gb10\.ring\.engine_fit: .*{says}") as error:
        engine_fit(engine, "shard", "vllm", ranks, "spark1", switches=switches)
    assert len(str(error.value)) < 400
