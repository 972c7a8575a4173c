# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Published numbers of the engine profiles, which a benchmark is shown beside; each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Anchor:
    """kind as the benchmark has it. tokens: length of the prompt, 0 when it was not stated. rate in tokens a second."""

    kind: str
    tokens: int
    concurrency: int
    rate: float
    source: str


_RING = "LLMKube, DeepSeek-V4.1-Flash on three DGX Sparks in a ring"
_PAIR = "LLMKube, DeepSeek V4 Flash Vision on two DGX Sparks"
_BARE = "pavelzak, Two Small Boxes and a 304-Billion Parameter Model"
_SWITCH = "tonyd2wild on three DGX Sparks at a switch, as LLMKube's post on the ring compares it"

PUBLISHED: dict[str, tuple[Anchor, ...]] = {
    "vllm-tp3-ring-exl3": (
        Anchor("prefill", 3_400, 1, 1094, _RING),
        Anchor("prefill", 49_800, 1, 1334, _RING),
        Anchor("decode, prose", 0, 1, 31, f"{_RING} (31 to 35, DSpark k=5)"),
        Anchor("decode, code", 0, 1, 65, f"{_RING} (DSpark k=5)"),
    ),
    "vllm-tp3-ring-docker": (
        Anchor("prefill", 2_950, 1, 712, f"{_SWITCH} (712 to 846)"),
        Anchor("prefill", 93_000, 1, 1236, f"{_SWITCH} (without speculation)"),
        # Of unknown text. Prose is slower than code: held against it, a good group would look slow.
        Anchor("decode, code", 0, 1, 51.5, f"{_SWITCH} (DSpark k=5, kind of text not stated)"),
    ),
    "vllm-tp2-pair-vision": (
        Anchor("prefill", 3_700, 1, 1820, f"{_PAIR} (variant B)"),
        Anchor("prefill", 26_000, 1, 1888, f"{_PAIR} (variant B)"),
        Anchor("decode, prose", 0, 1, 37, f"{_PAIR} (37 to 39, DSpark k=3, 300 tokens)"),
    ),
    "vllm-tp2-baremetal": (
        Anchor("prefill", 0, 1, 1900, f"{_BARE} (about, length not stated)"),
        Anchor("decode, prose", 0, 1, 36.7, _BARE),
    ),
}

_FAR = 2.0  # a prompt more than this many times longer or shorter is another measurement


def nearest(anchors: Sequence[Anchor], kind: str, tokens: int, concurrency: int) -> Anchor | None:
    """The published number of the same kind and concurrency with the nearest length, unless that is far off."""
    same = [anchor for anchor in anchors if (anchor.kind, anchor.concurrency) == (kind, concurrency)]
    unstated = next((anchor for anchor in same if not anchor.tokens), None)
    stated = sorted((anchor for anchor in same if anchor.tokens), key=lambda anchor: abs(anchor.tokens - tokens))
    if stated and tokens and max(stated[0].tokens / tokens, tokens / stated[0].tokens) <= _FAR:
        return stated[0]
    return unstated
