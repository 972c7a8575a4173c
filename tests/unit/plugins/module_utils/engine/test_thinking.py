# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a model is told to think or not, and where answer and reasoning are read."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import thinking
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import GROUPS

DEEPSEEK = {"enable": {"thinking": True}, "disable": {"thinking": False}, "default": True}


@pytest.mark.parametrize(
    ("message", "content", "reasoning"),
    [
        ({"content": "4"}, "4", ""),
        ({"content": None, "reasoning": "hm"}, "", "hm"),
        ({"content": "4", "reasoning_content": "hm"}, "4", "hm"),
        ({"content": "4", "reasoning": None, "reasoning_content": "hm"}, "4", "hm"),
        ({"content": ["4"], "reasoning": 1}, "", ""),
        ({}, "", ""),
        (None, "", ""),
        ("text", "", ""),
    ],
)
def test_what_a_message_holds(message, content, reasoning):
    assert (thinking.content(message), thinking.reasoning(message)) == (content, reasoning)


@pytest.mark.parametrize(
    ("layers", "kwargs"),
    [
        ((), None),
        (({"chat_template_kwargs": {}},), None),
        (({"chat_template_kwargs": {"thinking": False}}, {"top_k": 1}), {"thinking": False}),
        (
            ({"chat_template_kwargs": {"thinking": False}}, {"chat_template_kwargs": {"a": 1}}),
            {"thinking": False, "a": 1},
        ),
        (
            ({"chat_template_kwargs": {"thinking": False}}, {"chat_template_kwargs": {"thinking": True}}),
            {"thinking": True},
        ),
    ],
)
def test_a_body_joins_what_the_template_is_told(layers, kwargs):
    given = {"model": "m", "max_tokens": 3}
    made = thinking.body(given, *layers)
    assert made.get("chat_template_kwargs") == kwargs
    assert ("chat_template_kwargs" in made) is (kwargs is not None)
    assert made["model"] == "m"
    assert given == {"model": "m", "max_tokens": 3}


@pytest.mark.parametrize(
    ("thinks", "tokens"),
    [
        ({}, 64),
        (DEEPSEEK, 64),
        ({"default": True}, thinking.ROOM),
        ({"default": False}, 64),
        ({"enable": {"a": 1}}, 64),
    ],
)
def test_only_a_model_that_cannot_be_kept_from_thinking_gets_room_for_it(thinks, tokens):
    assert thinking.tokens(thinks, 64) == tokens
    assert thinking.tokens(thinks, 9000) == 9000


def test_a_record_that_says_something_else_tells_nothing():
    assert (thinking.quiet({"disable": "no"}), thinking.aloud({})) == ({}, {})
    assert (thinking.quiet(DEEPSEEK), thinking.aloud(DEEPSEEK)) == ({"thinking": False}, {"thinking": True})


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_every_profile_with_a_reasoning_parser_can_be_kept_from_thinking_and_made_to(name):
    profile, specs = GROUPS[name].specs()
    parses = "reasoning-parser" in profile.options
    assert bool(thinking.aloud(profile.thinking)) is parses
    if parses:
        assert thinking.quiet(profile.thinking)
        flags = profile.options.get("default-chat-template-kwargs", {"thinking": True})
        assert profile.thinking.get("default", False) is flags["thinking"]
    assert [spec.to_dict()["thinking"] for spec in specs] == [profile.thinking] * len(specs)


@pytest.mark.parametrize(
    ("thinks", "sent", "word"),
    [
        (DEEPSEEK, {"thinking": False}, "off"),
        (DEEPSEEK, {"thinking": False, "more": 1}, "off"),
        (DEEPSEEK, {"thinking": True}, "on"),
        (DEEPSEEK, {"thinking": "high"}, "unknown"),
        (DEEPSEEK, {}, "on"),
        (DEEPSEEK, {"more": 1}, "on"),
        ({"enable": {"thinking": True}, "disable": {}, "default": False}, {}, "off"),
        ({"enable": {}, "disable": {}, "default": True}, {}, "on"),
        ({"disable": {"effort": {"level": 0}}, "default": True}, {"effort": {"level": 0}}, "off"),
        ({}, {}, "off"),
    ],
)
def test_whether_a_model_thinks_is_stated(thinks, sent, word):
    assert thinking.stated(thinks, sent) == word
