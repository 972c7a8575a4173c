# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node has of memory, and what the engine said that it uses of it; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

KIB = 1024
GIB = 1 << 30

_VLLM_WEIGHTS = re.compile(r"Model loading took ([\d.]+) GiB")
_VLLM_KV = re.compile(r"Available KV cache memory: ([\d.]+) GiB")
# SGLang's model_runner; what it calls GB is 2^30. A drafter is loaded by itself, with a line of its own.
_SGLANG_WEIGHTS = re.compile(r"Load weight end\..* mem usage=([\d.]+) GB")
_SGLANG_BEFORE = re.compile(r"Load weight end\..* avail mem=([\d.]+) GB")
_SGLANG_AFTER = re.compile(r"Memory pool end\. avail mem=([\d.]+) GB")
_FIELD = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def memory(meminfo: str, lines: Sequence[str], engine: str = "vllm") -> dict[str, int | None]:
    """Bytes: all, available, and what the engine said of weights and KV cache; None: not told."""
    fields = {name: KIB * int(kib) for name, kib in _FIELD.findall(meminfo)}
    weights, kv = _sglang(lines) if engine == "sglang" else _vllm(lines)
    return {
        "total": fields.get("MemTotal", 0),
        "available": fields.get("MemAvailable"),
        "weights": None if weights is None else int(weights * GIB),
        "kv": None if kv is None else int(kv * GIB),
    }


def _vllm(lines: Sequence[str]) -> tuple[float | None, float | None]:
    weights, kv = _numbers(_VLLM_WEIGHTS, lines), _numbers(_VLLM_KV, lines)
    return (weights[-1] if weights else None), (kv[-1] if kv else None)


def _sglang(lines: Sequence[str]) -> tuple[float | None, float | None]:
    """The pools of the cache are many and named differently: what was available before less what is after them."""
    weights, kv, available = _numbers(_SGLANG_WEIGHTS, lines), 0.0, None
    for line in lines:
        before, after = _SGLANG_BEFORE.search(line), _SGLANG_AFTER.search(line)
        if before:
            available = float(before[1])
        elif after and available is not None:
            kv += max(0.0, available - float(after[1]))
            available = float(after[1])
    return (sum(weights) if weights else None), (kv or None)


def _numbers(pattern: re.Pattern[str], lines: Sequence[str]) -> list[float]:
    return [float(match[1]) for line in lines for match in [pattern.search(line)] if match]
