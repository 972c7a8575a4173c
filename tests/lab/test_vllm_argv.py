# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command lines of every vLLM profile, put to vLLM's own parser (`make test-real-engine` installs it). No lab is needed."""

from __future__ import annotations

import re

import pytest
import yaml

from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import CLUSTERS, ENGINE, GROUPS, cluster_manifests
from vllm_run import inside_vllm

PATCHED = yaml.safe_load((ENGINE / "patched-flags.yml").read_text(encoding="utf-8"))
REFUSED = {  # controls: what the parser, or what reads the values after it, has to complain about
    "flag": (["--nonsense-flag", "1"], "unknown: --nonsense-flag"),
    "number": (["--max-model-len", "many"], "max-model-len"),
    "cache": (["--kv-cache-dtype", "nonsense"], "invalid choice"),
    "graphs": (["--compilation-config", '{"cudagraph_mode":"NONSENSE"}'], "NONSENSE"),
    "engram": (["--engram-config", '{"nonsense":true}'], "nonsense"),
    "tools": (["--enable-auto-tool-choice"], "--tool-call-parser"),
    "tool parser": (["--tool-call-parser", "nonsense"], "nonsense"),
    "reasoning": (["--reasoning-parser", "nonsense"], "nonsense"),
    "method": (["--speculative-config", '{"method":"nonsense"}'], "Input should be"),
    "speculation": (["--speculative-config", '{"nonsense":1}'], "has no nonsense"),
    "drafts": (["--speculative-config", '{"num_speculative_tokens":0}'], "greater than 0"),
    "images": (["--limit-mm-per-prompt", '{"image":-1}'], "multimodal: "),
    "encoder": (["--mm-encoder-tp-mode", "nonsense"], "invalid choice"),
}


def command_lines() -> dict[str, list[str]]:
    """Words behind `serve` of every rank of every vLLM deployment, and what the manifests hand to the operator's."""
    found = {}
    for name, group in GROUPS.items():
        profile, specs = group.specs()
        if profile.engine == "vllm":
            found |= {f"{name}/rank{spec.rank}": spec.argv[spec.argv.index("serve") + 1 :] for spec in specs}
    for name in CLUSTERS:
        documents = [document for part in cluster_manifests(name).values() for document in part]
        (service,) = (document for document in documents if document["kind"] == "InferenceService")
        found[f"{name}/kubernetes"] = ["model", *service["spec"]["extraArgs"]]
    return {name: list(words) for name, words in found.items()}


@pytest.fixture(scope="module")
def said() -> dict[str, list[str]]:
    lines = command_lines() | {f"control/{name}": ["model", *words] for name, (words, _text) in REFUSED.items()}
    return inside_vllm("tests/lab/vllm_parser.py", lines)


def test_every_command_line_of_a_profile_is_one_of_vllm(said):
    lines = command_lines()
    assert {name.split("/")[0] for name in lines} == {name for name in GROUPS if not name.startswith("sglang")}
    listed = {f"unknown: {flag}" for flag in PATCHED}
    assert {name: [text for text in said[name] if text not in listed] for name in lines} == {name: [] for name in lines}
    assert {text for name in lines for text in said[name]} == listed


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused(said, name):
    assert re.search(re.escape(REFUSED[name][1]), " ".join(said[f"control/{name}"])), said[f"control/{name}"]
