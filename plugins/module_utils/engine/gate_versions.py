# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which versions of engine and NCCL a rank runs, by what they say of themselves; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

# vLLM's API server (head) and engine; NCCL's own line, and vLLM's about it.
_ENGINE = re.compile(r"(?:vLLM API server version |LLM engine \(v)(\d[\w.+]*)")
_NCCL = re.compile(r"(?:NCCL version |using nccl==)(\d+(?:\.\d+)+)")


def versions(lines: Sequence[str], answer: str = "") -> dict[str, str]:
    """``engine`` and ``nccl``, empty where nothing tells. answer: what the head says at /version."""
    return {"engine": _answered(answer) or _said(_ENGINE, lines), "nccl": _said(_NCCL, lines)}


def _answered(answer: str) -> str:
    try:
        return str(json.loads(answer or "{}").get("version") or "")
    except (ValueError, AttributeError):
        return ""


def _said(pattern: re.Pattern[str], lines: Sequence[str]) -> str:
    return next((match[1] for line in lines for match in [pattern.search(line)] if match), "")
