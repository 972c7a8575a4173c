# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions of the acceptance test whose answers are exact, and how they are judged; pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import thinking
from .asking import CHAT, Answer, Asking, Judged, Probe, Request, numbers, probabilities, said, shown

_MARKERS = ("<think>", "</think>", "<|im_start|>", "<｜")  # noqa: RUF001 - DeepSeek's own mark has this character
_WRONG = (
    "the engine runs but computes wrongly: compare files and Engram rows of all nodes (checkpoint), then the engine's build and its "
    "kernels' settings, against those that last passed"
)
_CITY = "Paris"
_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def health() -> Probe:
    def judge(answers: Sequence[Answer]) -> Judged:
        answer = answers[0]
        return Judged(answer.status == 200, answer.trouble() or "status 200")

    cure = "see that every rank's unit runs (engine.unit); the head answers once all ranks have joined"
    return Probe("health", "GET /health", "status 200", (Request("/health"),), judge, cure)


def models(asking: Asking) -> Probe:
    def judge(answers: Sequence[Answer]) -> Judged:
        if answers[0].trouble():
            return Judged(False, answers[0].trouble())
        entries = answers[0].data().get("data")
        names = (
            [str(entry.get("id")) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        )
        return Judged(asking.model in names, ", ".join(names) or "no model")

    cure = f"set served_model_name of the profile, or ask for a name that is served: this run asked for {asking.model}"
    return Probe("models", "GET /v1/models", asking.model, (Request("/v1/models"),), judge, cure)


def arithmetic(asking: Asking) -> Probe:
    """A product that write-ups use, and two of this run, which no cache and no list of known answers holds."""
    first, second = 11 + asking.seed(0) % 88, 11 + asking.seed(1) % 88
    third, fourth = 1000 + asking.seed(2) % 9000, 1000 + asking.seed(3) % 9000
    tasks = {"17*19": 323, f"{first}*{second}": first * second, f"{third}+{fourth}": third + fourth}
    requests = tuple(asking.ask(f"What is {task}? Answer with the number only.") for task in tasks)

    def judge(answers: Sequence[Answer]) -> Judged:
        right = [
            not answer.trouble() and numbers(answer.text())[-1:] == [result]
            for answer, result in zip(answers, tasks.values(), strict=True)
        ]
        return Judged(
            all(right), "; ".join(f"{task} = {said(answer)}" for task, answer in zip(tasks, answers, strict=True))
        )

    expected = ", ".join(str(result) for result in tasks.values())
    return Probe("arithmetic", f"{', '.join(tasks)}, the number only", expected, requests, judge, _WRONG)


def count(asking: Asking) -> Probe:
    question = "Count from 1 to 20. Write only the numbers, separated by commas."

    def judge(answers: Sequence[Answer]) -> Judged:
        ok = not answers[0].trouble() and numbers(answers[0].text()) == list(range(1, 21))
        return Judged(ok, said(answers[0]))

    return Probe("count", question, "1 to 20, each once", (asking.ask(question),), judge, _WRONG)


def logprobs(asking: Asking) -> Probe:
    question = f"Write one sentence about a harbour. Word of the day: {asking.nonce}."

    def judge(answers: Sequence[Answer]) -> Judged:
        answer = answers[0]
        if "Out of range float" in answer.body:
            return Judged(False, f"not a number: {answer.trouble()}")
        if answer.trouble():
            return Judged(False, answer.trouble())
        values = probabilities(answer)
        wrong = [value for value in values if not math.isfinite(value) or value > 1e-6]
        if wrong or not values:
            return Judged(
                False,
                f"{len(wrong)} of {len(values)} are no log probabilities, the first {wrong[0]}" if wrong else "none",
            )
        return Judged(True, f"{len(values)} finite, {min(values):.3f} to {max(values):.3f}")

    request = asking.ask(question, logprobs=True, top_logprobs=1, max_tokens=32)
    cure = (
        "a model whose values are not numbers still answers, with nonsense: look for a wrong quantization or kernel setting, and for a "
        "damaged shard (checkpoint)"
    )
    return Probe("logprobs", "log probabilities of 32 tokens", "finite and not above 0", (request,), judge, cure)


def reasoning(asking: Asking, aloud: Mapping[str, Any]) -> Probe:
    """aloud: what makes the model think, as chat_template_kwargs; empty asks only that no marker leaks into the answer."""
    question = "Is 91 a prime number? Give a reason in one sentence."
    more = {thinking.KWARGS: dict(aloud), "max_tokens": max(asking.max_tokens, thinking.ROOM)} if aloud else {}

    def judge(answers: Sequence[Answer]) -> Judged:
        answer = answers[0]
        if answer.trouble():
            return Judged(False, answer.trouble())
        thought = answer.reasoning()
        leaked = [marker for marker in _MARKERS if marker in answer.text()]
        text = f"answer {shown(answer.text(), 80)!r}, reasoning {shown(thought, 80)!r}"
        if leaked:
            return Judged(False, f"{', '.join(leaked)} in the {text}")
        return Judged(bool(answer.text().strip()) and (bool(thought.strip()) or not aloud), text)

    expected = "an answer without markers" + (" and a field with the reasoning" if aloud else "")
    cure = (
        "set the reasoning parser of the model's family (--reasoning-parser), and `thinking` of the profile as its chat template has it; with the "
        "wrong ones the field stays empty"
    )
    return Probe("reasoning", question, expected, (asking.ask(question, **more),), judge, cure)


def tools(asking: Asking) -> Probe:
    question = f"What is the weather in {_CITY} now? Use the tool."

    def judge(answers: Sequence[Answer]) -> Judged:
        if answers[0].trouble():
            return Judged(False, answers[0].trouble())
        calls = answers[0].message().get("tool_calls")
        made = [_call(call) for call in calls] if isinstance(calls, list) else []
        if not made or ("", "") in made:
            return Judged(False, f"no tool call, text {said(answers[0])}")
        told = ", ".join(f"{name}({shown(given)})" for name, given in made)
        if len(made) != 1:
            return Judged(False, f"{len(made)} calls: {shown(told)}")
        name, given = made[0]
        return Judged(name == "get_weather" and _CITY in str(_arguments(given).get("city")), told)

    request = asking.ask(question, tools=[_WEATHER], tool_choice="auto")
    cure = "set the tool call parser of the model's family (--tool-call-parser with --enable-auto-tool-choice)"
    return Probe("tools", question, f'one call of get_weather with city "{_CITY}"', (request,), judge, cure)


def _call(call: Any) -> tuple[str, str]:
    """Name and arguments of a call, both empty when it is none."""
    function = call.get("function") if isinstance(call, dict) else None
    return (str(function.get("name")), str(function.get("arguments"))) if isinstance(function, dict) else ("", "")


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        held = json.loads(text)
    except ValueError:
        return {}
    return held if isinstance(held, dict) else {}


def nonce(asking: Asking) -> Probe:
    question = f"Repeat this word exactly, without anything else: {asking.nonce}"

    def judge(answers: Sequence[Answer]) -> Judged:
        ok = not answers[0].trouble() and answers[0].text().strip(" \n\t.\"'`") == asking.nonce
        return Judged(ok, said(answers[0]))

    return Probe("nonce", question, asking.nonce, (asking.ask(question),), judge, _WRONG)


def streams(asking: Asking, many: int) -> Probe:
    """Streams at the same time, each with a word of its own: none may show another's."""
    words = [f"{asking.nonce}{chr(ord('a') + index % 26)}{chr(ord('a') + index // 26)}" for index in range(many)]
    requests = tuple(
        Request(
            CHAT,
            asking.body(
                f"Write the word {word} ten times, separated by spaces, and nothing else.",
                stream=True,
                stream_options={"include_usage": True},
            ),
            stream=True,
        )
        for word in words
    )

    def judge(answers: Sequence[Answer]) -> Judged:
        wrong = []
        for word, answer in zip(words, answers, strict=True):
            seen = re.findall(rf"\b{asking.nonce}\w*", answer.text())
            if answer.trouble():
                wrong.append(answer.trouble())
            elif any(other != word for other in seen):
                wrong.append(f"the stream of {word} shows {', '.join(sorted(set(seen) - {word}))}")
            elif len(seen) < 5:
                wrong.append(f"the stream of {word} shows it {len(seen)} times: {said(answer)}")
            elif not answer.usage("completion_tokens"):
                wrong.append(f"the stream of {word} ended without usage")
        return Judged(not wrong, "; ".join(dict.fromkeys(wrong)) or f"{many} streams, each with its own word only")

    asked = f"{many} streams at once, each to write a word of its own ten times"
    cure = (
        "requests that share a batch must not see each other: a wrong cache layout does that. Compare the engine's build and its cache "
        "settings with those that last passed"
    )
    return Probe(
        "streams", asked, "in each stream its own word only, an end, and usage", requests, judge, cure, together=True
    )
