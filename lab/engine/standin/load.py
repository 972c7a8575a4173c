# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test keeps a serving engine busy with: a word in a file, read anew for every request, and what /metrics then says."""

from __future__ import annotations

import os
import time
from pathlib import Path

FILE = "/run/gb10-lab/engine-load"
WORKING = "working"  # a long prompt: answers wait, tokens are counted
STUCK = "stuck"  # answers wait, and nothing is counted
HANGS = "hangs"  # no request of any kind gets an answer
_RATE = 100  # tokens/s
_LONGEST = 120.0  # s
_POLL = 0.1


def word() -> str:
    """The word in the file, empty without one."""
    try:
        return Path(os.environ.get("GB10_LAB_ENGINE_LOAD", FILE)).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def wait(*words: str) -> None:
    """Hold a request back while one of these words is there."""
    limit = time.monotonic() + _LONGEST
    while word() in words and time.monotonic() < limit:
        time.sleep(_POLL)


def metrics(model: str, generated: int) -> str:
    """In Prometheus' text form, with vLLM's names. generated: tokens since the start."""
    busy = word()
    counted = generated + (int(time.monotonic() * _RATE) if busy == WORKING else 0)
    values = {
        "vllm:generation_tokens_total": counted,
        "vllm:num_requests_running": 1 if busy else 0,
        "vllm:num_requests_waiting": 0,
    }
    return "".join(f'{name}{{engine="0",model_name="{model}"}} {value:.1f}\n' for name, value in values.items())
