# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rank's life: check flags, machine and model, join the group, serve on rank 0, end in order or with the reason."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from . import NAME, VERSION, EngineError, effects, fabric, model, options
from .api import Api
from .group import Group, Hello

_READY_TIMEOUT = 600.0  # s; vLLM's own default of VLLM_ENGINE_READY_TIMEOUT_S


class Stop(KeyboardInterrupt):
    """SIGTERM or SIGINT: an ordered end."""


def log(text: str) -> None:
    """One line; flushed, so that the journal has it when the process dies."""
    level, _, rest = text.partition(" ")
    if level not in ("ERROR", "WARNING"):
        level, rest = "INFO", text
    print(f"{level} {time.strftime('%m-%d %H:%M:%S')} {rest}", flush=True)


def main(arguments: Sequence[str]) -> int:
    chosen = options.parse(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    log(f"{NAME} {VERSION}: this is the lab's stand-in for vLLM, it runs no model")
    try:
        _run(chosen)
    except Stop:
        log("stopped in order")
        return 0
    except EngineError as error:
        for line in str(error).splitlines():
            log(f"ERROR {line}")
        return 1


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Stop


def _run(chosen: argparse.Namespace) -> NoReturn:
    timeout = _ready_timeout()
    opened = _checked(chosen)
    hello = Hello(chosen.node_rank, chosen.tensor_parallel_size, opened.fingerprint)
    group = Group(hello, chosen.master_addr, chosen.master_port, log)
    ending = "ended with an error"
    try:
        group.join(timeout)
        log(f"world_size={chosen.tensor_parallel_size} rank={chosen.node_rank}: all ranks joined")
        log(_transport())
        for line in effects.start_lines(chosen, os.environ):
            log(line)
        if chosen.node_rank == 0:
            _serve_api(chosen, opened)
        log("Application startup complete.")
        group.watch()
        raise AssertionError("watch returned")
    except Stop:
        ending = "was stopped"
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not cut the farewell short
        group.leave(ending)


def _checked(chosen: argparse.Namespace) -> model.Model:
    """The model, after every check of the start; what the flags and the split lack is reported together."""
    found = options.problems(chosen)
    try:
        if os.environ.get("VLLM_HOST_IP"):
            fabric.check_own_address(os.environ["VLLM_HOST_IP"])
    except EngineError as error:
        found.append(str(error))
    if found:
        raise EngineError("\n".join(found))
    opened = model.open_model(Path(chosen.model_tag))
    found = model.split_problems(opened, chosen.tensor_parallel_size, chosen.max_model_len)
    if found:
        raise EngineError("\n".join(found))
    for line in model.check_engram(
        opened, chosen.node_rank, chosen.tensor_parallel_size, os.environ.get("DSV41_ENGRAM_DIR")
    ):
        log(line)
    return opened


def _ready_timeout() -> float:
    text = os.environ.get("VLLM_ENGINE_READY_TIMEOUT_S", "")
    try:
        return float(text) if text else _READY_TIMEOUT
    except ValueError:
        raise EngineError(f"VLLM_ENGINE_READY_TIMEOUT_S={text}: expected seconds") from None


def _transport() -> str:
    interface = os.environ.get("NCCL_SOCKET_IFNAME", "").removeprefix("=").partition(",")[0]
    address = os.environ.get("VLLM_HOST_IP") or "127.0.0.1"
    if interface:
        address = fabric.interface_address(interface)
    return f"NCCL INFO {fabric.transport_line(os.environ, Path('/sys'), address)}"


def _serve_api(chosen: argparse.Namespace, opened: model.Model) -> None:
    names = chosen.served_model_name or [chosen.model_tag]
    longest = chosen.max_model_len or int(opened.text.get("max_position_embeddings", 0))
    try:
        api = Api(
            (chosen.host, chosen.port),
            names,
            str(opened.directory),
            longest,
            speculative=chosen.speculative_config,
            template=chosen.default_chat_template_kwargs,
            images=options.images(chosen),
        )
    except OSError as error:
        raise EngineError(f"cannot serve at {chosen.host}:{chosen.port}: {error.strerror or error}") from error
    threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    log(f"Starting vLLM API server on http://{chosen.host}:{chosen.port}")
