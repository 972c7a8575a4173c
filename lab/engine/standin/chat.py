# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a chat completion holds besides its envelope: text, reasoning, tool calls, log probabilities, events of a stream."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .answers import answer, logprob, tokens
from .faults import planted

BLOCK = 16  # tokens; vLLM's prefix cache keeps whole blocks
_IN_PLACE = re.compile(r"\bin ([A-Z]\w+)")
_REASONING = "I look at what is asked and at what is known."
_THOUGHTS = 60  # times that; 600 tokens, more than a short answer may have
_TEXT = re.compile(r"[a-z]{8,}")


@dataclass(frozen=True)
class Told:
    """One answer. thoughts, pieces: its reasoning and its text, a token each."""

    thoughts: list[str]
    pieces: list[str]
    finish: str
    calls: list[dict[str, Any]]


def thinks(body: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    """Whether the chat template has the model think. template: what the engine's flags put in place of what a request does not say."""
    default = True if planted("thinks") else template.get("thinking")
    return (body.get("chat_template_kwargs") or {}).get("thinking", default) is True


def tell(prompt: str, body: Mapping[str, Any], limit: int, earlier: str, thinking: bool = False) -> Told:
    """earlier: the prompt of another request, which must not matter."""
    thoughts = tokens(" ".join([_REASONING] * _THOUGHTS)) if thinking else []
    if len(thoughts) >= limit:
        return Told(thoughts[:limit], [], "length", [])
    limit -= len(thoughts)
    call = _call(prompt, body)
    if call:
        return Told(thoughts, [], "tool_calls", [call])
    text = answer(prompt)
    if planted("mixed-streams") and body.get("stream") and _TEXT.search(earlier):
        text = f"{text} {_TEXT.findall(earlier)[0]}"
    if planted("leaks-markers"):
        text = f"{_REASONING}</think>{text}"
    pieces = tokens(text)
    if body.get("ignore_eos"):
        pieces = (pieces + tokens(f" {text}") * (1 + limit // max(len(pieces), 1)))[:limit]
    finish = "length" if len(pieces) > limit or body.get("ignore_eos") else "stop"
    return Told(thoughts, pieces[:limit], finish, [])


def _call(prompt: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """A call of the first tool, when the prompt asks for one; its first argument is the place that the prompt names."""
    offered = body.get("tools") or []
    place = _IN_PLACE.search(prompt)
    if not offered or "tool" not in prompt.lower() or not place:
        return None
    function = offered[0]["function"]
    argument = next(iter(function["parameters"]["properties"]))
    given = json.dumps({argument: place[1]})
    return {"id": "call-0", "type": "function", "function": {"name": function["name"], "arguments": given}}


def message(told: Told) -> dict[str, Any]:
    """With vLLM's names: the reasoning is in `reasoning`, and a content that did not come any more is null."""
    return {
        "role": "assistant",
        "content": "".join(told.pieces) or (None if told.calls or told.thoughts else ""),
        "reasoning": "".join(told.thoughts) or None,
        "tool_calls": told.calls,
    }


def probabilities(prompt: str, told: Told, top: int) -> dict[str, Any]:
    """Of each token its log probability, and the best ones: itself and, by a wide gap, made-up ones."""
    content = []
    for position, piece in enumerate([*told.thoughts, *told.pieces]):
        value = logprob(prompt, position)
        best = [{"token": piece if rank == 0 else f"other{rank}", "logprob": value - 2 * rank} for rank in range(top)]
        content.append({"token": piece, "logprob": value, "bytes": list(piece.encode()), "top_logprobs": best})
    return {"content": content}


def events(told: Told, envelope: Mapping[str, Any], wants_usage: bool) -> Iterator[str]:
    """The stream's events, three tokens each, as vLLM sends several at once; then usage, then the end."""
    head = {key: envelope[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def event(choices: list[dict[str, Any]], **more: Any) -> str:
        return f"data: {json.dumps({**head, 'choices': choices, **more})}\n\n"

    yield event([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
    for name, pieces in (("reasoning", told.thoughts), ("content", told.pieces)):
        for start in range(0, len(pieces), 3):
            delta = {name: "".join(pieces[start : start + 3])}
            yield event([{"index": 0, "delta": delta, "finish_reason": None}])
    yield event([{"index": 0, "delta": {}, "finish_reason": told.finish}])
    if wants_usage:
        yield event([], usage=envelope["usage"])
    yield "data: [DONE]\n\n"


def blocks(prompt: str) -> list[str]:
    """What identifies each whole block of the prompt: itself and all before it."""
    pieces, digest, found = tokens(prompt), hashlib.sha256(), []
    for start in range(0, len(pieces) - BLOCK + 1, BLOCK):
        digest.update("".join(pieces[start : start + BLOCK]).encode())
        found.append(digest.hexdigest())
    return found
