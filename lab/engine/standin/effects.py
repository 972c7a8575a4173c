# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine tells of the effects of its settings: lines of its start, counters in /metrics. The numbers are made up, the shapes are not."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

_DRAFTS_A_TOKEN = 2
_ACCEPTED_A_TOKEN = 1


def start_lines(chosen: argparse.Namespace, environment: Mapping[str, str]) -> Iterator[str]:
    """After the ranks have joined, in the order of a start."""
    subsystems = environment.get("NCCL_DEBUG_SUBSYS", "").upper().split(",")
    if environment.get("NCCL_IB_SUBNET_AWARE_ROUTING") == "1" and {"NET", "ALL"} & set(subsystems):
        yield "NCCL INFO NET/IB: Subnet-aware routing: overriding dev 1 with dev 0"
    yield "Model loading took 0.10 GiB memory and 0.100000 seconds"
    yield "Available KV cache memory: 0.20 GiB"
    if chosen.node_rank == 0:
        yield "GPU KV cache size: 849,026 tokens"
    mode = (chosen.compilation_config or {}).get("cudagraph_mode", "NONE")
    if mode != "NONE" and not chosen.enforce_eager:
        yield "Graph capturing finished in 1 secs, took 0.05 GiB"


def drafted(model: str, generated: int, speculative: Mapping[str, Any] | None) -> str:
    """Counters of draft tokens in Prometheus' text form, none without speculation. generated: tokens since the start."""
    counters = {"draft": generated * _DRAFTS_A_TOKEN, "accepted": generated * _ACCEPTED_A_TOKEN} if speculative else {}
    label = f'{{engine="0",model_name="{model}"}}'
    return "".join(
        f"# TYPE vllm:spec_decode_num_{name}_tokens_total counter\nvllm:spec_decode_num_{name}_tokens_total{label} {count:.1f}\n"
        for name, count in counters.items()
    )
