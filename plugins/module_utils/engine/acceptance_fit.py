# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which questions of the acceptance test a profile leaves without a right answer: these are not asked, however well the group serves; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import thinking
from .asking import Asking, Probe
from .options import flags

_TOOLS = {"vllm": ("enable-auto-tool-choice", "tool-call-parser"), "sglang": ("tool-call-parser",)}
_REASONING = "reasoning-parser"
_LENGTH = {"vllm": "max-model-len", "sglang": "context-length"}
_LETTERS = (
    3  # a token of the questions has more on average, so that what is counted by them is rather too long than too short
)
_WHOLE = ("count", "reasoning", "nonce", "image")  # judged by all of the answer
_TOP_LOGPROBS = {"logprobs": 1, "parity": 2}  # what each asks for


def given(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of a profile, its options and those among its args, without dashes; true for one without value."""
    words = flags(profile.get("args", ()))
    named = {name.lstrip("-").replace("_", "-"): True if value is None else value for name, value in words}
    return {**profile.get("options", {}), **named}


def aloud(profile: Mapping[str, Any], thinks: Mapping[str, Any]) -> dict[str, Any]:
    """chat_template_kwargs that make the model think; none without a parser, which alone fills the field that is looked for.

    profile: empty when nothing is known of it.
    """
    return thinking.aloud(thinks) if not profile or given(profile).get(_REASONING) else {}


def reasons(profile: Mapping[str, Any], thinks: Mapping[str, Any], asking: Asking) -> dict[str, str]:
    """Why no answer would be right, by the name of the question. Nothing for an empty profile."""
    return dict(_reasons(given(profile), _engine(profile), thinks, asking)) if profile else {}


def _engine(profile: Mapping[str, Any]) -> str:
    return str(profile.get("engine", "vllm"))


def _reasons(
    options: Mapping[str, Any], engine: str, thinks: Mapping[str, Any], asking: Asking
) -> Iterator[tuple[str, str]]:
    lacking = [name for name in _TOOLS[engine] if not options.get(name)]
    if lacking:
        yield "tools", f"the profile has no tool-call parser ({', '.join(lacking)})"
    told = asking.template or asking.extra.get(thinking.KWARGS)
    if thinks.get("default") is True and not told and not options.get(_REASONING):
        for name in _WHOLE:
            yield name, f"the model thinks, and without {_REASONING} that is part of its answer"
    if engine == "vllm":
        yield from _probabilities(options)


def _probabilities(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """vLLM refuses a request for more than max-logprobs of them, -1 for all; in some modes it gives other numbers in their place."""
    most, mode = number(options.get("max-logprobs")), str(options.get("logprobs-mode", ""))
    for name, wanted in _TOP_LOGPROBS.items():
        if most is not None and 0 <= most < wanted:
            yield name, f"max-logprobs is {most}, {wanted} are asked for"
    if mode.endswith("_logits"):
        yield "logprobs", f"logprobs-mode is {mode}: these are no probabilities"


def length(profile: Mapping[str, Any]) -> tuple[str, int]:
    """The flag that bounds question and answer together, and how many tokens it allows; 0 when the profile does not say."""
    name = _LENGTH[_engine(profile)] if profile else ""
    most = number(given(profile).get(name)) if profile else None
    return name, max(most or 0, 0)


def too_long(probe: Probe, flag: str, most: int) -> str:
    """Why a question does not fit, empty when it does or when nothing is known (most is 0)."""
    needed = max((_needed(request.body) for request in probe.requests if request.body), default=0)
    return f"question and answer take about {needed} tokens, {flag} is {most}" if 0 < most < needed else ""


def _needed(body: Mapping[str, Any]) -> int:
    """Tokens of a request, about. A picture is not counted."""
    content = body["messages"][0]["content"]
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return int(body["max_tokens"]) + len(text) // _LETTERS


def number(value: Any) -> int | None:
    """A whole number, also as a text; None for anything else, such as vLLM's auto."""
    try:
        return None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return None
