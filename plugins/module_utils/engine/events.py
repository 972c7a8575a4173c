# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-sent events of a streamed completion, put together to the answer in one piece; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from . import thinking


class Assembly:
    """Takes the lines of a stream. ended: the server said so. error: what it complained about in the stream."""

    def __init__(self) -> None:
        self.ended = False
        self.error = ""
        self.chunks = 0
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._usage: Mapping[str, Any] | None = None
        self._finish: str | None = None

    def take(self, line: str) -> bool:
        """Whether the line brought text."""
        if not line.startswith("data:"):
            return False
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            self.ended = True
            return False
        try:
            event = json.loads(data)
        except ValueError:
            self.error = f"an event that is not JSON: {data[:80]}"
            return False
        return self._event(event) if isinstance(event, dict) else False

    def _event(self, event: Mapping[str, Any]) -> bool:
        if "error" in event:
            error = event["error"]
            self.error = str(error.get("message", error) if isinstance(error, dict) else error)
            return False
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        choices = event.get("choices") or [{}]
        choice = choices[0] if isinstance(choices[0], dict) else {}
        self._finish = choice.get("finish_reason") or self._finish
        delta = choice.get("delta") or {}
        text, thought = thinking.content(delta), thinking.reasoning(delta)
        self._content.append(text)
        self._reasoning.append(thought)
        self.chunks += bool(text or thought)
        return bool(text or thought)

    def body(self) -> str:
        message = {
            "role": "assistant",
            "content": "".join(self._content),
            "reasoning": "".join(self._reasoning) or None,
        }
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return json.dumps({"choices": [choice], "usage": self._usage, "chunks": self.chunks})
