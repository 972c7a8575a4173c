# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM itself says of command lines. Runs with the Python that has vLLM; {name: words behind `serve`} in, {name: complaints} out.

Its parser takes some values as they come, so those are put to what reads them later: the registries of parsers, the classes that
the JSON becomes. Nothing is loaded and no process is started.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from vllm.config import MultiModalConfig, SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

MULTIMODAL = {  # of the command line: of the class
    "limit_mm_per_prompt": "limit_per_prompt",
    "mm_processor_cache_gb": "mm_processor_cache_gb",
    "mm_encoder_tp_mode": "mm_encoder_tp_mode",
}


class RefusedError(Exception):
    """The parser would have ended the program."""


class Parser(FlexibleArgumentParser):
    def error(self, message: str) -> Any:
        raise RefusedError(message)


def complaints(words: list[str]) -> list[str]:
    """Flags that this vLLM has not as `unknown: --FLAG`; if there are none, whatever it has against the values."""
    parser = make_arg_parser(Parser())
    flags = [word for word in words if word.startswith("--")]
    unknown = [f"unknown: {flag}" for flag in flags if flag not in parser._option_string_actions]
    if unknown:
        return unknown
    try:
        options = parser.parse_args(words)
        validate_parsed_serve_args(options)
        options.model = "."  # the model of the command line is on no disk here
        AsyncEngineArgs.from_cli_args(options)
    except (RefusedError, KeyError, TypeError, ValueError) as error:
        return [f"{type(error).__name__}: {error}"]
    return [*_parsers(options), *_speculation(options.speculative_config or {}), *_multimodal(options)]


def _parsers(options: Any) -> Iterator[str]:
    for name, get in (
        (options.reasoning_parser, ReasoningParserManager.get_reasoning_parser),
        (options.tool_call_parser, ToolParserManager.get_tool_parser),
    ):
        if name:
            try:
                get(name)
            except KeyError as error:
                yield f"KeyError: {error}"


def _speculation(given: dict[str, Any]) -> Iterator[str]:
    """The object is made beside a model only, so each field is put to its type."""
    fields = SpeculativeConfig.__pydantic_fields__
    for name, value in given.items():
        if name not in fields:
            yield f"speculative-config has no {name}"
            continue
        try:
            TypeAdapter(Annotated[(fields[name].annotation, fields[name])]).validate_python(value)
        except ValidationError as error:
            yield f"speculative-config {name}: {error.errors()[0]['msg']}"


def _multimodal(options: Any) -> Iterator[str]:
    found = {field: getattr(options, name) for name, field in MULTIMODAL.items()}
    given = {field: value for field, value in found.items() if value is not None}
    try:
        MultiModalConfig(**given)
    except ValidationError as error:
        yield f"multimodal: {error.errors()[0]['msg']}"


if __name__ == "__main__":
    json.dump({name: complaints(words) for name, words in json.load(sys.stdin).items()}, sys.stdout)
