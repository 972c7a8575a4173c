# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams put together."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.asking import Answer
from ansible_collections.gb10.ring.plugins.module_utils.engine.events import Assembly


def event(delta, **more):
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}], **more})}\n"


def test_a_stream_becomes_an_answer():
    assembly = Assembly()
    lines = [
        event({"role": "assistant", "content": ""}),
        "\n",
        ": keep alive\n",
        event({"reasoning_content": "h"}),
        event({"reasoning": "m", "content": None}),
        event({"content": "a b"}),
        event({"content": " c"}),
        'data: {"choices": [], "usage": {"completion_tokens": 3}}\n',
        "data: [DONE]\n",
    ]
    assert [assembly.take(line) for line in lines] == [False, False, False, True, True, True, True, False, False]
    answer = Answer(200, assembly.body(), ended=assembly.ended)
    assert (answer.text(), answer.reasoning(), answer.usage("completion_tokens")) == (
        "a b c",
        "hm",
        3,
    )
    assert answer.trouble() == ""


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('data: {"error": {"message": "engine dead"}}', "engine dead"),
        ('data: {"error": "x"}', "x"),
        ("data: {broken", "an event that is not JSON: {broken"),
    ],
)
def test_complaints_in_a_stream(line, error):
    assembly = Assembly()
    assembly.take(line)
    assert assembly.error == error
    assert not assembly.ended


@pytest.mark.parametrize("line", ["data: []", 'data: {"choices": [3]}', 'data: {"choices": null}', "event: x"])
def test_lines_of_other_shapes_bring_nothing(line):
    assembly = Assembly()
    assert not assembly.take(line)
    assert Answer(200, assembly.body()).text() == ""
