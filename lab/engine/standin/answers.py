# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deterministic answers: sums, products, counting, echoes, codes in a text and stripes of a picture are right.

Everything else is a fixed text made from the prompt.
"""

from __future__ import annotations

import hashlib
import os
import re

from .faults import planted

_CODE = re.compile(r"access code of (\w+)\?")
_STRIPES = re.compile(r"\bstripes\b.*\[picture: ([a-z, ]+)\]", re.DOTALL)
_TEN_TIMES = re.compile(r"\bthe word (\w+) ten times")
_ARITHMETIC = re.compile(r"(-?\d{1,18})\s*(\+|-|\*|x|times|plus|minus)\s*(-?\d{1,18})", re.IGNORECASE)
_COUNT = re.compile(r"\bcount\b.*?\bto\s+(\d{1,4})", re.IGNORECASE | re.DOTALL)
_ECHO = re.compile(r"\b(?:repeat|echo|reply with|say)\b[^:\n]*:\s*(\S[^\n]*)", re.IGNORECASE)
_NONCE = re.compile(r"\bnonce\b[\s:=]+(\S+)", re.IGNORECASE)
_WORDS = [
    "ring",
    "port",
    "cable",
    "leg",
    "rank",
    "row",
    "table",
    "shard",
    "layer",
    "token",
    "head",
    "group",
    "node",
    "plan",
    "stage",
    "check",
]


def answer(prompt: str) -> str:
    """The whole text that the stand-in says to a prompt."""
    asked = _CODE.search(prompt)
    if asked:
        code = re.search(rf"access code of {asked[1]} is (\d+)", prompt)
        return code[1] if code and not planted("forgets") else "I did not see it."
    asked = _TEN_TIMES.search(prompt)
    if asked:
        return " ".join([asked[1]] * 10)
    found = _ARITHMETIC.search(prompt)
    if found:
        return str(_calculate(int(found[1]), found[2].lower(), int(found[3])) + planted("wrong-sums"))
    found = _COUNT.search(prompt)
    if found:
        return ", ".join(str(number) for number in range(1, int(found[1]) + 1))
    found = _STRIPES.search(prompt) or _ECHO.search(prompt) or _NONCE.search(prompt)
    if found:
        return found[1].strip().strip("\"'`")
    digest = hashlib.sha256(prompt.encode()).digest()
    return " ".join(_WORDS[byte % len(_WORDS)] for byte in digest)


def _calculate(left: int, sign: str, right: int) -> int:
    if os.environ.get("GB10_LAB_WRONG_SUMS"):  # a configuration that serves, and does not pass
        return left
    if sign in ("+", "plus"):
        return left + right
    if sign in ("-", "minus"):
        return left - right
    return left * right


def tokens(text: str) -> list[str]:
    """The text cut into pieces that joined give it back; a piece counts as one token."""
    return re.findall(r"\s*\S+\s*$|\s*\S+", text)


def logprob(prompt: str, position: int) -> float:
    """A finite, negative log probability that depends on the prompt and the position only."""
    digest = hashlib.sha256(f"{position}:{prompt}".encode()).digest()
    return -(1 + digest[0]) / 256
