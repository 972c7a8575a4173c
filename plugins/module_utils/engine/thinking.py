# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is sent so that a model thinks or does not, and where its answer and its reasoning are; pure.

The one place that knows it: watchdog, probe, acceptance and benchmark read and ask by it. A copy runs on the nodes without Ansible, so this
file imports the standard library only. A profile's `thinking` is {enable, disable, default}: chat_template_kwargs that switch thinking on
and off, and whether the model thinks when it is told neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KWARGS = "chat_template_kwargs"
ROOM = 4096  # tokens of an answer that comes after thinking which nobody can switch off
# vLLM's field (reasoning_content until 0.11), and SGLang's.
_REASONING = ("reasoning", "reasoning_content")


def content(message: Any) -> str:
    """The answer in a message, or in a piece of a stream; empty when there is none."""
    return _text(message, "content")


def reasoning(message: Any) -> str:
    """What was thought before the answer, as the reasoning parser put it aside."""
    return next((text for name in _REASONING if (text := _text(message, name))), "")


def _text(message: Any, name: str) -> str:
    held = message.get(name) if isinstance(message, Mapping) else None
    return held if isinstance(held, str) else ""


def quiet(thinking: Mapping[str, Any]) -> dict[str, Any]:
    """chat_template_kwargs with which the model answers without thinking."""
    return _kwargs(thinking, "disable")


def aloud(thinking: Mapping[str, Any]) -> dict[str, Any]:
    """chat_template_kwargs with which the model thinks first; none where nobody parses what it thinks."""
    return _kwargs(thinking, "enable")


def _kwargs(thinking: Mapping[str, Any], name: str) -> dict[str, Any]:
    held = thinking.get(name)
    return dict(held) if isinstance(held, Mapping) else {}


def stated(thinking: Mapping[str, Any], sent: Mapping[str, Any]) -> str:
    """Whether a model that is sent these chat_template_kwargs thinks before it answers: `off`, `on`, or `unknown` where the profile says neither."""
    off, on = quiet(thinking), aloud(thinking)
    for switch, word in ((off, "off"), (on, "on")):
        if switch and all(name in sent and sent[name] == value for name, value in switch.items()):
            return word
    if sent.keys() & (off.keys() | on.keys()):
        return "unknown"
    return "on" if thinking.get("default") is True else "off"


def tokens(thinking: Mapping[str, Any], enough: int) -> int:
    """How many an answer may have of which so many are enough: more where the model thinks and cannot be told not to."""
    return max(enough, ROOM) if thinking.get("default") is True and not quiet(thinking) else enough


def body(given: Mapping[str, Any], *layers: Mapping[str, Any]) -> dict[str, Any]:
    """A request's body with these keys over it, one layer after the other; chat_template_kwargs are joined, not replaced."""
    made = dict(given)
    for layer in layers:
        joined = {**_kwargs(made, KWARGS), **_kwargs(layer, KWARGS)}
        made.update(layer)
        made.pop(KWARGS, None)
        if joined:
            made[KWARGS] = joined
    return made
