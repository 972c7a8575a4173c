# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The OpenAI-compatible API of rank 0: the endpoints and shapes that health checks and smoke tests use."""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from . import NAME, VERSION, chat, load, pictures
from .answers import answer, logprob, tokens
from .effects import drafted
from .faults import planted

_BODY_LIMIT = 8 << 20
_HANGS = 60.0  # s
_EVENT = 0.002  # s between the events of a stream
_DEFAULT_TOKENS = {"completions": 16, "chat": 4096}


class BadRequestError(Exception):
    """Refused with a status and a JSON error, as vLLM words it."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Api(ThreadingHTTPServer):
    """Serves one model under its names."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        address: tuple[str, int],
        names: Sequence[str],
        directory: str,
        max_model_len: int,
        *,
        speculative: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
        images: int = 0,
    ) -> None:
        self.names = list(names)
        self.directory = directory
        self.max_model_len = max_model_len
        self.created = int(time.time())
        self.speculative = speculative
        self.template = dict(template or {})
        self.images = images  # that a prompt may hold
        self.generated = 0
        self.earlier = ""  # the prompt of the request before
        self.cached: set[str] = set()
        self.counting = threading.Lock()
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; anything else is printed as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Api
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        pages = {"/health": None, "/ping": None, "/version": {"version": VERSION}, "/v1/models": self._models()}
        path = self.path.partition("?")[0]
        load.wait(load.HANGS)
        if path == "/health" and planted("health-hangs"):
            time.sleep(_HANGS)
        if path in pages:
            self._send(200, pages[path])
        elif path == "/metrics":
            model = self.server.names[0]
            text = load.metrics(model, self.server.generated)
            text += drafted(model, self.server.generated, self.server.speculative)
            self._send_bytes(200, "text/plain; version=0.0.4", text.encode())
        else:
            self._send_error(BadRequestError(404, "Not Found", "NotFoundError"))

    def do_POST(self) -> None:
        handlers = {"/v1/completions": self._completions, "/v1/chat/completions": self._chat}
        try:
            body = self._body()
            load.wait(load.WORKING, load.STUCK, load.HANGS)
            handler = handlers.get(self.path.partition("?")[0])
            if handler is None:
                raise BadRequestError(404, "Not Found", "NotFoundError")
            answered = handler(body)
            if answered is not None:
                self._send(200, answered)
        except BadRequestError as error:
            self._send_error(error)

    def log_message(self, format: str, *arguments: Any) -> None:
        print(f"INFO:     {self.client_address[0]}:{self.client_address[1]} - {format % arguments}", flush=True)

    def _models(self) -> dict[str, Any]:
        entries = [
            {
                "id": name,
                "object": "model",
                "created": self.server.created,
                "owned_by": NAME,
                "root": self.server.directory,
                "parent": None,
                "max_model_len": self.server.max_model_len,
            }
            for name in self.server.names
        ]
        return {"object": "list", "data": entries}

    def _body(self) -> Mapping[str, Any]:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        if not 0 <= length <= _BODY_LIMIT:
            self.close_connection = True
            raise BadRequestError(400, f"Content-Length must be between 0 and {_BODY_LIMIT}")
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError as error:
            raise BadRequestError(400, f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise BadRequestError(400, "the body must be a JSON object")
        return body

    def _completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._check(body)
        if body.get("stream"):
            raise BadRequestError(400, "the lab's stand-in streams chat completions only")
        prompts = body.get("prompt")
        prompts = [prompts] if isinstance(prompts, str) else prompts
        if not isinstance(prompts, list) or not prompts or not all(isinstance(prompt, str) for prompt in prompts):
            raise BadRequestError(400, "prompt: expected a text or a list of texts")
        choices, used, made = [], 0, 0
        for index, prompt in enumerate(prompts):
            pieces, reason = _cut(answer(prompt), _max_tokens(body, "completions"))
            used, made = used + len(tokens(prompt)), made + len(pieces)
            probabilities = None
            if body.get("logprobs") is not None:
                values = [logprob(prompt, position) for position in range(len(pieces))]
                probabilities = {
                    "tokens": pieces,
                    "token_logprobs": values,
                    "top_logprobs": [{piece: value} for piece, value in zip(pieces, values, strict=True)],
                    "text_offset": [len("".join(pieces[:position])) for position in range(len(pieces))],
                }
            choices.append(
                {"index": index, "text": "".join(pieces), "logprobs": probabilities, "finish_reason": reason}
            )
        return self._envelope(body, "text_completion", choices, used, made)

    def _chat(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """None when it was streamed."""
        self._check(body)
        prompt = _last_message(body.get("messages"), self.server.images)
        if body.get("logprobs") and planted("nan-logprobs"):
            raise BadRequestError(400, "Out of range float values are not JSON compliant: nan")
        thinks = chat.thinks(body, self.server.template)
        told = chat.tell(prompt, body, _max_tokens(body, "chat"), self.server.earlier, thinks)
        cached = self._cached(prompt)
        probabilities = (
            chat.probabilities(prompt, told, body.get("top_logprobs") or 0) if body.get("logprobs") else None
        )
        choice = {
            "index": 0,
            "message": chat.message(told),
            "logprobs": probabilities,
            "finish_reason": told.finish,
        }
        made = len(told.thoughts) + len(told.pieces)
        envelope = self._envelope(body, "chat.completion", [choice], len(tokens(prompt)), made)
        envelope["usage"]["prompt_tokens_details"] = {"cached_tokens": cached}
        if not body.get("stream"):
            return envelope
        self._stream(told, envelope, bool((body.get("stream_options") or {}).get("include_usage")))
        return None

    def _cached(self, prompt: str) -> int:
        """Tokens of the prompt whose whole blocks were seen before, from its start on."""
        blocks = chat.blocks(prompt)
        with self.server.counting:
            self.server.earlier = prompt
            known = next((at for at, block in enumerate(blocks) if block not in self.server.cached), len(blocks))
            self.server.cached.update(blocks)
        return known * chat.BLOCK

    def _stream(self, told: chat.Told, envelope: Mapping[str, Any], wants_usage: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in chat.events(told, envelope, wants_usage):
            self.wfile.write(event.encode())
            self.wfile.flush()
            time.sleep(_EVENT)

    def _check(self, body: Mapping[str, Any]) -> None:
        model = body.get("model", self.server.names[0])
        if model not in self.server.names:
            raise BadRequestError(404, f"The model `{model}` does not exist.", "NotFoundError")

    def _envelope(
        self, body: Mapping[str, Any], kind: str, choices: list[dict[str, Any]], used: int, made: int
    ) -> dict[str, Any]:
        with self.server.counting:
            self.server.generated += made
        prefix = "chatcmpl" if kind == "chat.completion" else "cmpl"
        return {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": body.get("model", self.server.names[0]),
            "choices": choices,
            "usage": {"prompt_tokens": used, "completion_tokens": made, "total_tokens": used + made},
        }

    def _send_error(self, error: BadRequestError) -> None:
        self._send(
            error.status, {"error": {"message": str(error), "type": error.kind, "param": None, "code": error.status}}
        )

    def _send(self, status: int, body: Any) -> None:
        self._send_bytes(status, "application/json", b"" if body is None else json.dumps(body).encode())

    def _send_bytes(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _cut(text: str, limit: int) -> tuple[list[str], str]:
    pieces = tokens(text)
    return pieces[:limit], "length" if len(pieces) > limit else "stop"


def _max_tokens(body: Mapping[str, Any], kind: str) -> int:
    value = body.get("max_completion_tokens", body.get("max_tokens"))
    if value is None:
        return _DEFAULT_TOKENS[kind]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequestError(400, f"max_tokens must be at least 1, got {value!r}.")
    return value


def _last_message(messages: Any, images: int) -> str:
    """Text of the last user message, and what its pictures show; content may be a text or a list of parts."""
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise BadRequestError(400, "messages: expected a list with at least one message")
    asked = [message for message in messages if message.get("role") == "user"]
    if not asked:
        raise BadRequestError(400, "messages: no message of the role user")
    content = asked[-1].get("content")
    try:
        shown = pictures.seen(content, images)
    except pictures.PictureError as error:
        raise BadRequestError(400, str(error)) from error
    if isinstance(content, list):
        content = "\n".join(part["text"] for part in content if isinstance(part, dict) and "text" in part) + shown
    if not isinstance(content, str):
        raise BadRequestError(400, "messages: content must be a text or a list of parts")
    return content
