# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How answers to exact questions are judged."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import acceptance, acceptance_exact
from ansible_collections.gb10.ring.plugins.module_utils.engine.asking import Answer, Asking, numbers, shown

ASKING = Asking("m", "abcdefghij")


def said(text, **message):
    body = {
        "choices": [{"message": {"role": "assistant", "content": text, **message}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 9},
    }
    return Answer(200, json.dumps(body))


def with_logprobs(*values):
    content = [{"token": "x", "logprob": value} for value in values]
    return Answer(200, json.dumps({"choices": [{"message": {"content": "x"}, "logprobs": {"content": content}}]}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("323", [323]),
        ("17*19 = 323.", [17, 19, 323]),
        ("the sum is 12,345", [12345]),
        ("1,2,3", [1, 2, 3]),
        ("1, 2, 3", [1, 2, 3]),
        ("-5 and 1,000,000", [-5, 1000000]),
        ("none", []),
    ],
)
def test_numbers(text, found):
    assert numbers(text) == found


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (Answer(200, "{}"), ""),
        (Answer(error="no answer within 10 s"), "no answer within 10 s"),
        (Answer(), "no answer"),
        (Answer(400, '{"error": {"message": "bad\\nthing"}}'), "status 400: bad thing"),
        (Answer(400, '{"detail": "x"}'), 'status 400: {"detail": "x"}'),
        (Answer(500, "[]"), "status 500: []"),
        (Answer(502, "<html>"), "status 502: <html>"),
        (Answer(200, "{}", ended=False), "the stream broke off"),
        (Answer(200, "{}", "engine dead", ended=False), "engine dead"),
    ],
)
def test_trouble(answer, trouble):
    assert answer.trouble() == trouble


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"choices": []}', '{"choices": [1]}', '{"choices": [{"message": 3}]}', '{"usage": 3}']
)
def test_bodies_of_other_shapes_are_empty_answers(body):
    answer = Answer(200, body)
    assert (answer.text(), answer.usage("prompt_tokens")) == ("", 0)
    for probe in acceptance.probes(ASKING, acceptance.Settings(acceptance.NAMES, needle_lengths=(1000,))):
        if probe.name != "health":
            assert not probe.judge([answer] * len(probe.requests)).ok, probe.name


def sums():
    return [eval_sum(task) for task in acceptance_exact.arithmetic(ASKING).asked.split(", ")[:3]]


def eval_sum(task):
    sign = "*" if "*" in task else "+"
    left, right = (int(part) for part in task.split(sign))
    return left * right if sign == "*" else left + right


def test_arithmetic():
    probe = acceptance_exact.arithmetic(ASKING)
    right = [said(f"The result is {result}.") for result in sums()]
    assert probe.judge(right).ok
    assert probe.judge(right).answered.startswith("17*19 = 'The result is 323.'; ")
    assert not probe.judge([*right[:2], said(str(sums()[2] + 1))]).ok
    assert not probe.judge([said("323 or 324"), *right[1:]]).ok
    assert not probe.judge([Answer(error="no answer"), *right[1:]]).ok


def test_every_run_asks_for_other_sums():
    asked = {
        acceptance_exact.arithmetic(Asking("m", nonce)).asked for nonce in ("abcdefghij", "abcdefghik", "zzzzzzzzzz")
    }
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        (", ".join(map(str, range(1, 21))), True),
        (",".join(map(str, range(1, 21))), True),
        ("\n".join(map(str, range(1, 21))), True),
        (", ".join(map(str, range(1, 20))), False),
        ("1, 2, 3, 3, " + ", ".join(map(str, range(4, 21))), False),
    ],
)
def test_count(text, ok):
    assert acceptance_exact.count(ASKING).judge([said(text)]).ok is ok


@pytest.mark.parametrize(
    ("answer", "ok", "answered"),
    [
        (with_logprobs(-0.5, -2.0), True, "2 finite, -2.000 to -0.500"),
        (with_logprobs(0.0), True, "1 finite"),
        (with_logprobs(-0.5, float("nan")), False, "1 of 2 are no log probabilities, the first nan"),
        (with_logprobs(float("-inf")), False, "1 of 1"),
        (with_logprobs(0.7), False, "1 of 1"),
        (with_logprobs(None), False, "1 of 1"),
        (said("x"), False, "none"),
        (
            Answer(400, '{"error": {"message": "Out of range float values are not JSON compliant: nan"}}'),
            False,
            "not a number",
        ),
        (Answer(200, '{"choices": [{"text": "x", "logprobs": {"token_logprobs": [-1.5]}}]}'), True, "1 finite"),
    ],
)
def test_logprobs(answer, ok, answered):
    judged = acceptance_exact.logprobs(ASKING).judge([answer])
    assert (judged.ok, answered in judged.answered) == (ok, True), judged.answered


@pytest.mark.parametrize(
    ("thinking", "answer", "ok"),
    [
        ({}, said("No, 7 times 13."), True),
        ({}, said(""), False),
        ({}, said("I think.</think>No."), False),
        ({}, said("<think>hm"), False),
        ({"thinking": True}, said("No.", reasoning_content="7 times 13"), True),
        ({"thinking": True}, said("No.", reasoning="7 times 13"), True),
        ({"thinking": True}, said("No."), False),
        ({"thinking": True}, said("", reasoning_content="7 times 13"), False),
        ({"thinking": True}, said("</think>No.", reasoning_content="7 times 13"), False),
    ],
)
def test_reasoning(thinking, answer, ok):
    probe = acceptance_exact.reasoning(ASKING, thinking)
    assert probe.judge([answer]).ok is ok
    assert probe.requests[0].body.get("chat_template_kwargs") == (thinking or None)


def call(name="get_weather", arguments='{"city": "Paris, France"}', times=1):
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return said(None, tool_calls=[made] * times)


@pytest.mark.parametrize(
    ("answer", "ok"),
    [
        (call(), True),
        (call(name="weather"), False),
        (call(arguments='{"city": "Rome"}'), False),
        (call(arguments="Paris"), False),
        (call(arguments='["Paris"]'), False),
        (said('get_weather(city="Paris")'), False),
        (said(None, tool_calls=[]), False),
        (said(None, tool_calls=["x"]), False),
        (said(None, tool_calls={"x": 1}), False),
        (call(times=2), False),
    ],
)
def test_tools(answer, ok):
    assert acceptance_exact.tools(ASKING).judge([answer]).ok is ok


def test_more_calls_than_one_are_told():
    told = acceptance_exact.tools(ASKING).judge([call(times=2)]).answered
    assert told.startswith('2 calls: get_weather({"city": "Paris, France"}), get_weather(')


@pytest.mark.parametrize(
    ("text", "ok"),
    [("abcdefghij", True), (' "abcdefghij".\n', True), ("abcdefghik", False), ("it is abcdefghij", False)],
)
def test_nonce(text, ok):
    assert acceptance_exact.nonce(ASKING).judge([said(text)]).ok is ok


def test_streams():
    probe = acceptance_exact.streams(ASKING, 2)
    words = ["abcdefghijaa", "abcdefghijba"]
    assert probe.together
    assert all(request.stream for request in probe.requests)
    assert len({json.dumps(request.body) for request in probe.requests}) == 2
    good = [said(" ".join([word] * 10)) for word in words]
    assert probe.judge(good).ok
    mixed = [good[0], said(f"{words[1]} " * 9 + words[0])]
    assert probe.judge(mixed).answered == f"the stream of {words[1]} shows {words[0]}"
    assert "shows it 1 times" in probe.judge([good[0], said(words[1])]).answered
    silent = Answer(200, json.dumps({"choices": [{"message": {"content": " ".join([words[1]] * 10)}}]}))
    assert "without usage" in probe.judge([good[0], silent]).answered
    assert "broke off" in probe.judge([good[0], Answer(200, good[1].body, ended=False)]).answered


def test_without_the_server_or_the_model_nothing_else_is_asked():
    asked = []

    def send(requests, together):
        asked.extend(request.path for request in requests)
        return [Answer(200, '{"data": [{"id": "other"}]}') for _request in requests]

    chosen = acceptance.probes(ASKING, acceptance.Settings(("health", "models", "count", "nonce")))
    results = acceptance.run(chosen, send)
    assert asked == ["/health", "/v1/models"]
    assert [result.judged.ok for result in results] == [True, False]
    assert results[1].judged.answered == "other"
    assert acceptance.left_out(chosen, results) == ["count", "nonce"]
    results = acceptance.run(chosen, lambda requests, together: [Answer(error="Connection refused")])
    assert [result.probe.name for result in results] == ["health"]
    check = results[0].to_check("spark1")
    assert (check["id"], check["ok"], check["found"]) == ("engine.acceptance_health", False, "Connection refused")
    assert check["asked"] == "GET /health"


def test_long_texts_are_cut_to_a_line():
    assert shown("a\nb  c") == "a b c"
    assert shown("x" * 200, 10) == "xxxxxxx..."
