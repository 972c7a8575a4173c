# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at the API of the head: its health, a tiny completion, and what it counts.

A copy runs on the nodes without Ansible, so this file imports the standard library and its siblings only.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import thinking
from .watch import Limits, Probe

ANSWER_TOKENS = 3
QUESTION = "Say ok."
_LIMIT = 4 << 20  # bytes of an answer
# Counters that grow while the engine works, at a long prefill too, and gauges of what it has to do; of vLLM and of SGLang.
_TOKENS = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:iteration_tokens_total_sum",
    "sglang:generation_tokens_total",
    "sglang:prompt_tokens_total",
)
_QUEUED = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
)


class Reply(NamedTuple):
    """status 0: none came, and error says why. slow: it did not come in time."""

    status: int = 0
    body: str = ""
    error: str = ""
    slow: bool = False


class Target(NamedTuple):
    """Where the API is, from the engine's record, and what the model is told so that it does not think."""

    host: str
    port: int
    health: str
    model: str
    quiet: Mapping[str, Any] = {}  # never changed


def target(record: Mapping[str, Any]) -> Target:
    """From engine.json. Raises ValueError when it does not say."""
    readiness = record.get("readiness")
    health = readiness.get("health", "/health") if isinstance(readiness, Mapping) else "/health"
    parts = urllib.parse.urlsplit(str(record.get("url", "")))
    if not parts.hostname:
        raise ValueError("it names no url")
    thinks = record.get("thinking")
    quiet = thinking.quiet(thinks) if isinstance(thinks, Mapping) else {}
    return Target(parts.hostname, parts.port or 80, str(health), str(record.get("served_model_name", "")), quiet)


def look(where: Target, limits: Limits) -> Probe:
    """Ask for health and for an answer; what it counts is asked for only when the answer is late."""
    health = _health(ask(where, where.health, limits.health_timeout_s), where.health)
    question = {
        "model": where.model,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": ANSWER_TOKENS,
    }
    body = thinking.body(question, {thinking.KWARGS: where.quiet})
    reply = ask(where, "/v1/chat/completions", limits.probe_timeout_s, body)
    wrong = wrong_answer(reply)
    counted = ask(where, "/metrics", limits.health_timeout_s)
    text = counted.body if counted.status == 200 else ""
    return Probe(health, wrong, reply.slow, total(text, _TOKENS), total(text, _QUEUED))


def _health(reply: Reply, path: str) -> str:
    return "" if reply.status == 200 else f"{path}: {reply.error or f'status {reply.status}'}"


def wrong_answer(reply: Reply) -> str:
    """Empty for a completion with a text or with reasoning, which shows as well that the engine computes; else what is wrong with it."""
    if reply.status != 200:
        said = " ".join(reply.body.split())[:160]
        return f"a completion: {reply.error or f'status {reply.status} {said}'.strip()}"
    try:
        message = json.loads(reply.body)["choices"][0]["message"]
    except (ValueError, LookupError, TypeError):
        return "a completion: the answer is none"
    return "" if thinking.content(message) or thinking.reasoning(message) else "a completion: the answer is empty"


def total(text: str, names: tuple[str, ...]) -> float | None:
    """Sum of these metrics over all their labels, None when none of them is there."""
    found = []
    for line in text.splitlines():
        name, _space, value = line.rpartition(" ")
        if name.partition("{")[0] in names:
            try:
                found.append(float(value))
            except ValueError:
                continue
    return sum(found) if found else None


def ask(where: Target, path: str, timeout: float, body: Mapping[str, Any] | None = None) -> Reply:
    """One request, plain and direct; no environment's proxy has a part in it."""
    connection = http.client.HTTPConnection(where.host, where.port, timeout=timeout)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return Reply(answer.status, answer.read(_LIMIT).decode("utf-8", "replace"))
    except TimeoutError:
        return Reply(error=f"no answer within {timeout:g} s", slow=True)
    except (OSError, http.client.HTTPException) as error:
        return Reply(error=getattr(error, "strerror", None) or str(error) or type(error).__name__)
    finally:
        connection.close()
