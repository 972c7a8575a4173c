# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No group is asked what its profile leaves without a right answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.engine import acceptance, acceptance_fit, thinking
from ansible_collections.gb10.ring.plugins.module_utils.engine.asking import Asking
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import GROUPS, ROLE

DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
PARSERS = {"enable-auto-tool-choice": True, "tool-call-parser": "x", "reasoning-parser": "y"}
REFERENCE = ({"prompt": "Why?", "tokens": [{"token": "a", "runner_up": "b", "gap": 1.0}]},)
ALOUD = {"enable": {"thinking": True}, "disable": {"thinking": False}, "default": True}


def split(profile, needles=(2000,), thinks=None, extra=None, max_tokens=512, **settings):
    """Names of what is asked, and why others are not."""
    thinks = profile.get("thinking", {}) if thinks is None else thinks
    asking = Asking(
        "m", "abcdefghij", extra or {}, thinking.tokens(thinks, max_tokens), template=thinking.quiet(thinks)
    )
    chosen = acceptance.Settings(
        acceptance.NAMES, needle_lengths=needles, thinking=thinks, profile=profile, reference=REFERENCE, **settings
    )
    asked, others = acceptance.split(asking, chosen)
    return [probe.name for probe in asked], {probe.name: why for probe, why in others}


def vllm(**options):
    return {
        "engine": "vllm",
        "args": [],
        "options": {**PARSERS, **{name.replace("_", "-"): value for name, value in options.items()}},
    }


EVERYTHING = [name for name in acceptance.NAMES if name not in ("image", "needle")]
EVERYTHING.insert(-1, "needle_2000")


def test_of_a_profile_that_is_not_known_everything_is_asked():
    assert split({}) == (EVERYTHING, {})
    assert split({}, thinks={"default": True})[1] == {}


@pytest.mark.parametrize(
    ("profile", "left_out"),
    [
        (vllm(), {}),
        (vllm(tool_call_parser=None), {"tools": "the profile has no tool-call parser (tool-call-parser)"}),
        (
            vllm(enable_auto_tool_choice=None),
            {"tools": "the profile has no tool-call parser (enable-auto-tool-choice)"},
        ),
        ({**vllm(), "engine": "sglang", "options": {"tool-call-parser": "x"}}, {}),
        (
            {"engine": "sglang"},
            {"tools": "the profile has no tool-call parser (tool-call-parser)"},
        ),
        (
            {"options": {}, "args": ["--enable-auto-tool-choice", "--tool_call_parser=x"]},
            {},
        ),
        (vllm(max_logprobs=20), {}),
        (vllm(max_logprobs=-1), {}),
        (vllm(max_logprobs=1), {"parity": "max-logprobs is 1, 2 are asked for"}),
        (
            vllm(max_logprobs="0"),
            {"logprobs": "max-logprobs is 0, 1 are asked for", "parity": "max-logprobs is 0, 2 are asked for"},
        ),
        (vllm(logprobs_mode="processed_logprobs"), {}),
        (vllm(logprobs_mode="raw_logits"), {"logprobs": "logprobs-mode is raw_logits: these are no probabilities"}),
        (vllm(max_model_len=131072), {}),
        (vllm(max_model_len="auto"), {}),
        (vllm(max_model_len=-1), {}),
        (vllm(max_num_seqs=1), {}),  # what is too much at once waits
    ],
)
def test_what_flags_leave_without_an_answer(profile, left_out):
    asked, others = split(profile)
    assert others == left_out
    assert asked == [name for name in EVERYTHING if name not in left_out]


@pytest.mark.parametrize(
    ("profile", "needles", "left_out"),
    [
        (vllm(max_model_len=131072), (32000, 100000), []),
        (vllm(max_model_len=131072), (32000, 128000), ["needle_128000"]),
        (vllm(max_model_len=2048), (500, 2000), ["needle_2000"]),
        ({"engine": "sglang", "options": {**PARSERS, "context-length": 2048}}, (500, 2000), ["needle_2000"]),
        ({"options": PARSERS, "args": ["--max-model-len", "2048"]}, (500, 2000), ["needle_2000"]),
    ],
)
def test_texts_that_do_not_fit(profile, needles, left_out):
    _asked, others = split(profile, needles)
    assert list(others) == left_out
    assert all(why.startswith("question and answer take about ") for why in others.values())


def test_room_to_think_has_to_fit_too():
    assert list(split(vllm(max_model_len=4096), (), ALOUD)[1]) == ["reasoning"]
    assert split(vllm(max_model_len=4096), (), {**ALOUD, "enable": {}})[1] == {}


@pytest.mark.parametrize(
    ("thinks", "extra", "left_out"),
    [
        ({}, {}, set()),
        (ALOUD, {}, set()),
        ({"default": True}, {"chat_template_kwargs": {"thinking": False}}, set()),
        ({"default": True}, {}, {"count", "reasoning", "nonce", "image"}),
    ],
)
def test_a_model_whose_thinking_nobody_takes_out_of_its_answer(thinks, extra, left_out):
    profile = vllm(reasoning_parser=None)
    assert set(split(profile, thinks=thinks, extra=extra, sees=True)[1]) == left_out
    assert split(vllm(), thinks=thinks, extra=extra, sees=True)[1] == {}


def test_reasoning_is_asked_for_where_a_parser_takes_it_out():
    assert acceptance_fit.aloud({}, ALOUD) == {"thinking": True}
    assert acceptance_fit.aloud(vllm(), ALOUD) == {"thinking": True}
    assert acceptance_fit.aloud(vllm(reasoning_parser=None), ALOUD) == {}
    settings = acceptance.Settings(("reasoning",), thinking=ALOUD, profile=vllm(reasoning_parser=None))
    (probe,) = acceptance.probes(Asking("m", "abcdefghij", template=thinking.quiet(ALOUD)), settings)
    assert probe.requests[0].body["chat_template_kwargs"] == {"thinking": False}
    assert probe.expected == "an answer without markers"


# Of the questions that the role asks by default, what each profile leaves out.
LEFT_OUT = {
    "lab": set(),
    "lab-vllm-cpu": {"arithmetic", "count", "reasoning", "tools", "nonce", "streams", "needle_2000"},
    "sglang-tp4-engram": set(),
    "vllm-tp2-baremetal": {"tools"},
    "vllm-tp2-pair-vision": set(),
    "vllm-tp3-ring-docker": set(),
    "vllm-tp3-ring-exl3": set(),
}


@pytest.mark.parametrize("path", sorted((ROLE / "profiles").glob("*.yml")), ids=lambda path: Path(path).stem)
def test_every_profile_of_the_role_can_meet_what_it_is_asked(path):
    profile, _specs = GROUPS[path.stem].specs()
    asked, others = split(
        profile.to_dict(),
        tuple(DEFAULTS["engine_acceptance_needles"]),
        max_tokens=DEFAULTS["engine_acceptance_max_tokens"],
        sees=profile.sees,
        streams=DEFAULTS["engine_acceptance_streams"],
    )
    assert set(others) == LEFT_OUT[path.stem]
    assert {"health", "models", "logprobs"} <= set(asked)
    options = profile.options
    assert ("tools" in asked) is bool(options.get("tool-call-parser"))
    assert ("image" in asked) is (profile.sees and not options.get("language-model-only"))
    # Who is asked to think has somebody who takes it out of the answer, and room for it.
    if thinking.aloud(profile.thinking):
        assert options["reasoning-parser"]
        assert int(options.get("max-model-len") or options["context-length"]) > thinking.ROOM + 512
