# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions to an OpenAI-compatible server, answers, and how answers are read; pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import thinking

CHAT = "/v1/chat/completions"
_NUMBER = re.compile(r"-?\d[\d,]*")
_GROUPED = re.compile(r"-?\d{1,3}(?:,\d{3})+\Z")
_SHOWN = 160


@dataclass(frozen=True)
class Request:
    """One request. body: None asks with GET. stream: the answer comes in events."""

    path: str
    body: Mapping[str, Any] | None = None
    stream: bool = False


@dataclass(frozen=True)
class Answer:
    """What came back. status 0: nothing, and error says why. A stream's body is put together to that of an answer in one piece.

    seconds: until the end. first: seconds until the first piece of text. ended: whether the stream said that it is at its end.
    """

    status: int = 0
    body: str = ""
    error: str = ""
    seconds: float = 0.0
    first: float = 0.0
    ended: bool = True

    def data(self) -> Mapping[str, Any]:
        """The body as JSON; an empty mapping when it is none."""
        try:
            told = json.loads(self.body)
        except ValueError:
            return {}
        return told if isinstance(told, dict) else {}

    def choice(self) -> Mapping[str, Any]:
        choices = self.data().get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        return first if isinstance(first, dict) else {}

    def message(self) -> Mapping[str, Any]:
        message = self.choice().get("message")
        return message if isinstance(message, dict) else {}

    def text(self) -> str:
        return thinking.content(self.message())

    def reasoning(self) -> str:
        return thinking.reasoning(self.message())

    def usage(self, name: str) -> int:
        """A count of the usage, 0 when the server gave none."""
        usage = self.data().get("usage")
        value = usage.get(name) if isinstance(usage, dict) else None
        return value if isinstance(value, int) else 0

    def trouble(self) -> str:
        """Why there is no answer to judge; empty when there is one."""
        if not self.status:
            return self.error or "no answer"
        if self.status != 200:
            return f"status {self.status}: {shown(self._message())}"
        if self.error:
            return self.error
        return "" if self.ended else "the stream broke off"

    def _message(self) -> str:
        told = self.data()
        error = told.get("error", told)
        message = error.get("message") if isinstance(error, dict) else error
        return str(message or self.body)


@dataclass(frozen=True)
class Judged:
    """Whether the answer is right, and what was answered in short."""

    ok: bool
    answered: str


@dataclass(frozen=True)
class Probe:
    """One thing that is asked. name is the last part of the check's id; asked and expected are for people.

    together: the requests are sent at the same time.
    """

    name: str
    asked: str
    expected: str
    requests: tuple[Request, ...]
    judge: Callable[[Sequence[Answer]], Judged] = field(repr=False)
    cure: str
    together: bool = False


@dataclass(frozen=True)
class Asking:
    """What every question of a run has in common. nonce: small letters, new for each run. extra: put into every body.

    template: chat_template_kwargs of every question that says nothing else.
    """

    model: str
    nonce: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = 512
    template: Mapping[str, Any] = field(default_factory=dict)

    def body(self, content: Any, **more: Any) -> dict[str, Any]:
        given = {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
        }
        return thinking.body(given, {thinking.KWARGS: self.template}, self.extra, more)

    def ask(self, content: Any, **more: Any) -> Request:
        return Request(CHAT, self.body(content, **more))

    def seed(self, index: int) -> int:
        """A number that depends on the nonce and the index."""
        value = index + 1
        for letter in self.nonce:
            value = (value * 31 + ord(letter)) % 1_000_003
        return value


def shown(text: str, limit: int = _SHOWN) -> str:
    """One line for a person, cut when it is long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def said(answer: Answer) -> str:
    """The text of an answer as it is shown, or why there is none."""
    if answer.trouble() or answer.text() or not answer.reasoning():
        return answer.trouble() or repr(shown(answer.text()))
    return f"'', only reasoning {shown(answer.reasoning(), 80)!r}{_cut_short(answer)}"


def _cut_short(answer: Answer) -> str:
    return ", cut at the most tokens allowed" if answer.choice().get("finish_reason") == "length" else ""


def numbers(text: str) -> list[int]:
    """All whole numbers of a text; a comma inside groups of three belongs to the number."""
    found: list[int] = []
    for word in _NUMBER.findall(text):
        parts = [word.replace(",", "")] if _GROUPED.match(word) else word.split(",")
        found += [int(part) for part in parts if part not in ("", "-")]
    return found


def probabilities(answer: Answer) -> list[float]:
    """Log probabilities of the tokens, in chat's shape or that of completions; a value that is no number becomes NaN."""
    held = answer.choice().get("logprobs")
    if not isinstance(held, dict):
        return []
    content = held.get("content")
    if isinstance(content, list):
        values = [token.get("logprob") if isinstance(token, dict) else None for token in content]
    else:
        values = list(held.get("token_logprobs") or [])
    return [float(value) if isinstance(value, (int, float)) else math.nan for value in values]
