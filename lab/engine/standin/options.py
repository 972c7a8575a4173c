# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of `vllm serve` that published GB10 launchers pass; any other flag is refused, as vLLM does."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from . import VERSION

_NUMBERS = (
    "--data-parallel-size",
    "--kv-cache-memory-bytes",
    "--max-model-len",
    "--max-num-batched-tokens",
    "--max-num-seqs",
    "--pipeline-parallel-size",
    "--seed",
)
_FRACTIONS = ("--gpu-memory-utilization", "--mm-processor-cache-gb")
_TEXTS = ("--dtype", "--load-format", "--quantization", "--reasoning-parser", "--tokenizer", "--tool-call-parser")
_JSON = (
    "--compilation-config",
    "--default-chat-template-kwargs",
    "--engram-config",
    "--hf-overrides",
    "--limit-mm-per-prompt",
    "--speculative-config",
)
_SWITCHES = (
    "--async-scheduling",
    "--enable-auto-tool-choice",
    "--enable-expert-parallel",
    "--enforce-eager",
    "--headless",
    "--language-model-only",
    "--trust-remote-code",
)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    top.add_argument("-v", "--version", action="version", version=VERSION)
    commands = top.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", allow_abbrev=False)
    serve.add_argument("model_tag", metavar="MODEL")
    serve.add_argument("--host", default="0.0.0.0")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--served-model-name", nargs="+")
    serve.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    serve.add_argument("--nnodes", type=int, default=1)
    serve.add_argument("--node-rank", type=int, default=0)
    serve.add_argument("--master-addr", default="127.0.0.1")
    serve.add_argument("--master-port", type=int, default=29501)
    serve.add_argument("--distributed-executor-backend", choices=["external_launcher", "mp", "ray", "uni"])
    serve.add_argument("--block-size", type=int, choices=[16, 32, 64, 128, 256])
    serve.add_argument(
        "--kv-cache-dtype", choices=["auto", "bfloat16", "fp8", "fp8_ds_mla", "fp8_e4m3", "fp8_e5m2", "nvfp4_ds_mla"]
    )
    serve.add_argument("--mm-encoder-tp-mode", choices=["data", "weights"])
    for names, kind in ((_NUMBERS, int), (_FRACTIONS, float), (_TEXTS, str), (_JSON, _json)):
        for name in names:
            serve.add_argument(name, type=kind)
    for name in _SWITCHES:
        serve.add_argument(name, action="store_true")
    return top


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parsed flags; exits with status 2 and the usage on a flag or value that vLLM does not know."""
    return parser().parse_args(arguments)


def problems(options: argparse.Namespace) -> list[str]:
    """What the flags contradict among themselves."""
    found = []
    if options.pipeline_parallel_size not in (None, 1):
        found.append("--pipeline-parallel-size above 1 is not played by the stand-in")
    if options.nnodes < 1 or options.tensor_parallel_size < 1:
        found.append("--nnodes and --tensor-parallel-size must be at least 1")
    elif options.tensor_parallel_size != options.nnodes:
        found.append(
            f"--nnodes {options.nnodes} does not fit --tensor-parallel-size {options.tensor_parallel_size}: "
            "a GB10 has one GPU, so each node holds one rank"
        )
    if not 0 <= options.node_rank < max(options.nnodes, 1):
        found.append(f"--node-rank {options.node_rank} must be between 0 and {options.nnodes - 1}")
    if options.headless and options.node_rank == 0:
        found.append("--headless on rank 0: nobody would serve the API")
    if options.nnodes > 1 and options.node_rank > 0 and not options.headless:
        found.append(f"rank {options.node_rank} needs --headless: the API runs on rank 0")
    if options.nnodes > 1 and options.distributed_executor_backend != "mp":
        found.append("several nodes need --distributed-executor-backend mp")
    if options.enable_auto_tool_choice and not options.tool_call_parser:
        found.append("--enable-auto-tool-choice requires --tool-call-parser")
    return found


def images(options: argparse.Namespace) -> int:
    """How many pictures a prompt may hold: vLLM's own 999, or what the flags say."""
    if options.language_model_only:
        return 0
    return int((options.limit_mm_per_prompt or {}).get("image", 999))
