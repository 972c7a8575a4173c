# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of a serving engine that a test plants while it serves: words in a file, read anew for every request."""

from __future__ import annotations

import os
from pathlib import Path

FILE = "/run/gb10-lab/engine-faults"
WORDS = (
    "health-hangs",  # /health gets no answer
    "nan-logprobs",  # a model whose values are not numbers, as vLLM answers then: status 400
    "wrong-sums",  # computes, wrongly
    "mixed-streams",  # a stream shows a piece of the one before it
    "forgets",  # finds nothing in a long prompt
    "thinks",  # thinks first unless it is told not to, whatever the default of its flags
    "leaks-markers",  # the reasoning is in the answer
    "colour-blind",  # takes red for green in a picture, and green for red
)


def planted(word: str) -> bool:
    """Whether this fault is in the file."""
    try:
        text = Path(os.environ.get("GB10_LAB_ENGINE_FAULTS", FILE)).read_text(encoding="ascii")
    except OSError:
        return False
    return word in text.split()
