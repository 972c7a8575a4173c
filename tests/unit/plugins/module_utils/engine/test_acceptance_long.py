# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Needles, pictures and parity."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import acceptance, acceptance_long
from ansible_collections.gb10.ring.plugins.module_utils.engine.asking import Answer, Asking

ASKING = Asking("m", "abcdefghij")


def said(text, prompt_tokens=2000):
    return Answer(
        200, json.dumps({"choices": [{"message": {"content": text}}], "usage": {"prompt_tokens": prompt_tokens}})
    )


def test_needles():
    probe = acceptance_long.needle(ASKING, 2000)
    assert probe.name == "needle_2000"
    prompts = [request.body["messages"][0]["content"] for request in probe.requests]
    codes = [re.search(r"code of abcdefghij is (\d+)", prompt)[1] for prompt in prompts]
    assert probe.expected == ", ".join(codes)
    places = [prompt.index("is " + code) / len(prompt) for prompt, code in zip(prompts, codes, strict=True)]
    assert [round(place, 1) for place in places] == [0.1, 0.5, 0.9]
    assert len({prompt.splitlines()[1] for prompt in prompts}) == 3
    assert all(1500 < len(re.findall(r"\w+|[^\w\s]", prompt)) < 2500 for prompt in prompts)
    right = [said(f"It is {code}.") for code in codes]
    assert probe.judge(right).ok
    assert "at 10% of 2000 tokens: right" in probe.judge(right).answered
    wrong = probe.judge([right[0], said("I do not know."), right[2]])
    assert not wrong.ok
    assert "at 50% of 2000 tokens: 'I do not know.'" in wrong.answered


def test_a_prompt_that_was_cut_is_no_success():
    probe = acceptance_long.needle(ASKING, 2000)
    codes = probe.expected.split(", ")
    judged = probe.judge([said(code, 900) for code in codes])
    assert not judged.ok
    assert "prompt cut" in judged.answered


def test_a_prompt_whose_tokens_nobody_counted_is_no_success():
    probe = acceptance_long.needle(ASKING, 2000)
    bare = [
        Answer(200, json.dumps({"choices": [{"message": {"content": code}}]})) for code in probe.expected.split(", ")
    ]
    judged = probe.judge(bare)
    assert not judged.ok
    assert judged.answered.startswith("at 10%: right, and the server counted no tokens")


def read_png(data):
    """Colours of the first row's thirds, by the format's own description."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, kinds, pixels = 8, [], b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        kinds.append(kind)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
        pixels += body if kind == b"IDAT" else b""
        at += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    assert (depth, colour) == (8, 2)
    rows = zlib.decompress(pixels)
    assert len(rows) == height * (1 + width * 3)
    first = rows[1 : 1 + width * 3]
    return [tuple(first[(width * part // 6) * 3 :][:3]) for part in (1, 3, 5)]


@pytest.mark.parametrize("order", [("red", "green", "blue"), ("blue", "red", "green")])
def test_stripes(order):
    assert read_png(acceptance_long.stripes(order)) == [acceptance_long.STRIPES[name] for name in order]


def test_image():
    probe = acceptance_long.image(ASKING)
    url = probe.requests[0].body["messages"][0]["content"][1]["image_url"]["url"]
    colours = read_png(base64.b64decode(url.removeprefix("data:image/png;base64,")))
    assert [acceptance_long.STRIPES[name] for name in probe.expected.split(", ")] == colours
    assert probe.judge([said(probe.expected)]).ok
    assert probe.judge([said(probe.expected.title().replace(", ", "\n"))]).ok
    assert not probe.judge([said(", ".join(reversed(probe.expected.split(", "))))]).ok
    orders = {
        acceptance_long.image(Asking("m", nonce)).expected for nonce in ("abcdefghij", "abcdefghik", "abcdefghil")
    }
    assert len(orders) > 1


def tokens(*steps):
    """(token, gap) as top_logprobs would have them; the runner-up of TOKEN is TOKEN2."""
    content = []
    for token, gap in steps:
        best = [{"token": token, "logprob": -0.1}]
        best += [] if gap is None else [{"token": f"{token}2", "logprob": -0.1 - gap}]
        content.append({"token": token, "logprob": -0.1, "top_logprobs": best})
    return Answer(200, json.dumps({"choices": [{"message": {"content": ""}, "logprobs": {"content": content}}]}))


def held(*answers):
    return tuple({"prompt": "p", "tokens": acceptance_long.transcript(answer)} for answer in answers)


HELD = held(tokens(("a", 3.0), ("b", 0.1), ("c", 3.0)))


@pytest.mark.parametrize(
    ("now", "ok", "answered"),
    [
        (tokens(("a", 3.0), ("b", 0.1), ("c", 3.0)), True, "1 of 1 identical, 3 of 3 tokens compared"),
        (
            tokens(("a", 3.0), ("b2", 0.1), ("y", 3.0)),
            True,
            "0 of 1 identical, 1 of 3 tokens compared; prompt 1 parts at token 2 (gap 0.100 between 'b' and 'b2', 'b2' came)",
        ),
        (
            tokens(("a", 3.0), ("x", 0.1), ("y", 3.0)),
            False,
            "parts at token 2 (gap 0.100 between 'b' and 'b2', 'x' came)",
        ),
        (
            tokens(("a2", 3.0), ("b", 0.1), ("c", 3.0)),
            False,
            "parts at token 1 (gap 3.000 between 'a' and 'a2', 'a2' came)",
        ),
        (tokens(("a", 3.0), ("b", 0.1), ("x", 3.0)), False, "parts at token 3 (gap 3.000"),
        (tokens(("a", 3.0), ("b", 0.1)), False, "parts at token 3 (gap 3.000 between 'c' and 'c2', the answer ends)"),
        (tokens(("a", 3.0)), False, "parts at token 2 (gap 0.100 between 'b' and 'b2', the answer ends)"),
        (tokens(("a", 3.0), ("b", 0.1), ("c", 3.0), ("d", 0.0)), False, "parts at token 4 (the reference ends there)"),
        (tokens(), False, "0 of 1 identical, 0 of 3 tokens compared; prompt 1: no tokens with log probabilities"),
        (Answer(200, json.dumps({"choices": [{"message": {"content": "a"}}]})), False, "prompt 1: no tokens with"),
        (Answer(500, "{}"), False, "prompt 1: status 500"),
    ],
)
def test_parity(now, ok, answered):
    judged = acceptance_long.parity(ASKING, HELD, 0.2).judge([now])
    assert judged.ok is ok
    assert answered in judged.answered


def test_without_alternatives_nothing_is_a_near_tie():
    assert not acceptance_long.parity(ASKING, held(tokens(("a", None))), 0.2).judge([tokens(("x", None))]).ok


@pytest.mark.parametrize(
    ("identical", "ok", "answered"),
    [(0, False, "0 of 5 identical, 0 of 50 tokens"), (1, True, "1 of 5 identical, 10 of 50 tokens")],
)
def test_answers_that_all_part_at_once_prove_nothing(identical, ok, answered):
    """Five near ties at the first token, each for the runner-up: no token was the same."""
    recorded = [("a", 0.1)] + [(str(number), 3.0) for number in range(9)]
    parts_at_once = tokens(("a2", 0.1), *recorded[1:])
    judged = acceptance_long.parity(ASKING, held(*[tokens(*recorded)] * 5), 0.2).judge(
        [tokens(*recorded)] * identical + [parts_at_once] * (5 - identical)
    )
    assert judged.ok is ok
    assert answered in judged.answered


def test_the_runner_up_is_the_best_other_token():
    """Whatever the order in which a server lists them, and also when the chosen token is not the first."""
    best = [{"token": "x", "logprob": -0.9}, {"token": "b", "logprob": -0.5}, {"token": "a", "logprob": -0.6}]
    content = [
        {"token": "a", "logprob": -0.6, "top_logprobs": best},
        {"token": "c", "top_logprobs": [None, {"logprob": "?"}]},
    ]
    answer = Answer(200, json.dumps({"choices": [{"logprobs": {"content": content}}]}))
    assert [(step["token"], step["runner_up"]) for step in acceptance_long.transcript(answer)] == [
        ("a", "b"),
        ("c", None),
    ]
    assert acceptance_long.transcript(answer)[0]["gap"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"prompts": [{"prompt": "p", "tokens": [{"token": "a", "runner_up": None, "gap": None}]}]}, ""),
        ({"prompts": [{"prompt": "p", "tokens": [{"token": "a", "gap": 0.1}]}]}, "tokens without token, runner_up"),
        ({"prompts": [{"prompt": "p", "tokens": []}]}, "a prompt without tokens"),
        ([], "no object"),
        ({"prompts": []}, "no object"),
        ({"prompts": [1]}, "a prompt without tokens"),
        ({"prompts": [{"prompt": "p", "tokens": [{"token": "a"}]}]}, "tokens without"),
    ],
)
def test_reference_files(content, problem):
    found = acceptance_long.reference_problem(content)
    assert found.startswith(problem)
    assert bool(found) is bool(problem)


def test_which_are_asked():
    everything = acceptance.Settings(acceptance.NAMES, needle_lengths=(10, 20), sees=True, reference=HELD)
    names = [probe.name for probe in acceptance.probes(ASKING, everything)]
    assert names == [*acceptance.NAMES[:9], "needle_10", "needle_20", "image", "parity"]
    assert [probe.name for probe in acceptance.probes(ASKING, acceptance.Settings(("parity", "image", "needle")))] == []
    recording = acceptance.probes(ASKING, acceptance.Settings(("parity",), record=True))
    assert len(recording[0].requests) == len(acceptance_long.PROMPTS)
