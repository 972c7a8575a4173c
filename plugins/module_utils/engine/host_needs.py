# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a profile wants of the host that its rank runs on, for the roles that ready hosts; pure. Profiles are plain data here."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

# Each engine's flag for the part of the machine's memory that it takes.
_SHARE = {"vllm": "gpu-memory-utilization", "sglang": "mem-fraction-static"}
_SIZES = ("weights_gib", "activations_gib", "graphs_gib")


def memory(profile: Mapping[str, Any]) -> dict[str, Any]:
    """weights_gib, activations_gib, graphs_gib and utilization of a rank (0: unknown), and page_cache."""
    sizes = {name: float(profile[name]) for name in _SIZES}
    return {**sizes, "utilization": utilization(profile), "page_cache": profile["page_cache"]}


def utilization(profile: Mapping[str, Any]) -> float:
    """Part of the memory that the engine compares with what is there; 0 when it does not, as with a pinned KV cache."""
    options = profile["options"]
    if options.get("kv-cache-memory-bytes"):
        return 0.0
    try:
        return float(options.get(_SHARE[profile["engine"]]) or 0)
    except (TypeError, ValueError):
        return 0.0  # a text that only the node can fill in


def nccl(profile: Mapping[str, Any]) -> dict[str, str]:
    """Where the NCCL lies that will serve: path of a directory on the node, or image and runtime. All empty: there is none to look at."""
    none = {"path": "", "image": "", "runtime": "auto"}
    renderer = profile["renderer"]
    if not profile["nccl"] or renderer == "kubernetes":
        return none
    if renderer == "venv":
        return {**none, "path": _venv(profile["executable"])}
    return {"path": "", "image": profile["image_id"] or profile["image"], "runtime": renderer}


def _venv(executable: str) -> str:
    """Directory of the virtual environment that has this program."""
    folder = posixpath.dirname(executable)
    return posixpath.dirname(folder) if posixpath.basename(folder) == "bin" else folder
