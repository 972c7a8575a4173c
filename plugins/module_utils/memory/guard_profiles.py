# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Named limits of the memory guard, the source beside each value, and the check of a user's own values; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .guard import Limits

GIB = 1024

# LLMKube's guard of three Sparks in a ring, unless another source is named.
RING = Limits(
    drops=True,
    drop_at_start=True,  # vLLM's start-up check takes the page cache of freshly staged files for used memory
    loading_cached_mib=40 * GIB,  # also the limit of DeepSeek-V4.1-Flash-EXL3-DGX-Spark's cache flusher
    serving_free_mib=4 * GIB,
    serving_cached_mib=512,
    drop_interval_s=5,
    loading_stop_mib=GIB
    + 512,  # as while serving; LLMKube stops nothing then, but parallel JIT compilation has wedged nodes
    stop_free_mib=GIB + 512,
    stop_after_s=10,
    floor_mib=GIB,  # where a 450K-token prefill took a rank that had no guard; lower is not known to be survived
    growth_mib_s=2 * GIB,  # of this collection: faster growth is not caught in time
    least_growth_mib_s=50,  # of this collection: slower than that, stop_after_s is in time for the floor
    interval_s=2,
)

PROFILES: Mapping[str, Limits] = {
    "ring": RING,
    # Two nodes at utilisation limits whose healthy MemAvailable is 1.5 to 2 GiB (dsv41-flash-vllm-2x-spark: floor 250 MB, 2 s).
    "lean": RING._replace(serving_free_mib=768, loading_stop_mib=250, stop_free_mib=250, stop_after_s=2, floor_mib=250),
    # Rather lose a start than find out: 5 GiB while loading (spark-ds41f; DeepSeek-V4.1-Flash-vLLM-DGX-Spark), 3 GiB while
    # serving, at once (spark-ds41f).
    "early": RING._replace(loading_stop_mib=5 * GIB, stop_free_mib=3 * GIB, stop_after_s=1, floor_mib=2 * GIB),
    # For an engine that uses the page cache as its weights, such as native ExLlamaV3: a drop would read them all again.
    "mapped": RING._replace(drops=False, drop_at_start=False),
}

_FLAGS = ("drops", "drop_at_start")
_LOWEST = {"interval_s": 0.25, "growth_mib_s": 1, "least_growth_mib_s": 1, "floor_mib": 64}
_HIGHEST = {"interval_s": 5, "drop_interval_s": 600, "stop_after_s": 600}
_NOT_ABOVE = (
    ("floor_mib", "stop_free_mib"),
    ("floor_mib", "loading_stop_mib"),
    ("stop_free_mib", "serving_free_mib"),
)
_SIZE_LIMIT = 1 << 20  # 1 TiB


def limits(profile: str, own: Mapping[str, Any]) -> Limits:
    """The profile's limits with the user's own values in their place. Raises ValueError with everything that is wrong."""
    base = PROFILES[profile]
    problems = [problem for key in sorted(own, key=str) if (problem := _problem(str(key), own[key]))]
    if not problems:
        base = base._replace(**{str(key): _typed(str(key), value) for key, value in own.items()})
        problems = [
            f"{lower} is {getattr(base, lower)} and {upper} is {getattr(base, upper)}, expected {lower} not above {upper}"
            for lower, upper in _NOT_ABOVE
            if getattr(base, lower) > getattr(base, upper)
        ]
    if problems:
        raise ValueError("; ".join(problems))
    return base


def _problem(key: str, value: Any) -> str:
    if key not in Limits._fields:
        return f"{key} is not a limit of the guard, expected one of {', '.join(Limits._fields)}"
    if key in _FLAGS:
        return "" if isinstance(value, bool) else f"{key} is {value!r}, expected true or false"
    lowest, highest = _LOWEST.get(key, 0), _HIGHEST.get(key, _SIZE_LIMIT)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not lowest <= value <= highest:
        return f"{key} is {value!r}, expected a number from {lowest:g} to {highest:g}"
    return ""


def _typed(key: str, value: Any) -> Any:
    return int(value) if key.endswith(("_mib", "_mib_s")) else value
