# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions of the acceptance test that need more than a line: needles in long prompts, a picture, parity with a reference; pure."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from .asking import Answer, Asking, Judged, Probe, said, shown

DEPTHS = (0.1, 0.5, 0.9)
_TOKENS_A_LINE = 10  # of the filler below, about; what the server counted is told
_THINGS = ("cable", "rack", "port", "door", "lamp", "desk", "chair", "clock")
_COLOURS = ("blue", "green", "grey", "brown", "white", "black", "yellow", "violet")
STRIPES = {"red": (220, 20, 20), "green": (20, 180, 40), "blue": (30, 60, 220)}
PROMPTS = (
    "Explain in two sentences why the sky is blue.",
    "Write a Python function that reverses a list in place.",
    "List the planets of the solar system in order.",
    "Translate into French: The cables are on the table.",
    "What happens to water at 100 degrees Celsius at sea level?",
)
PARITY_TOKENS = 64
COMPARED = 0.1  # of the reference's tokens, at least: answers that all part at once at near ties prove nothing


def filler(lines: int, salt: int) -> list[str]:
    """Dull numbered lines; the salt makes two documents differ from their start."""
    return [
        f"Line {number}: {_THINGS[(number + salt) % 8]} {(number * 7 + salt) % 97} is {_COLOURS[(number * 3 + salt) % 8]} today."
        for number in range(1, lines + 1)
    ]


def needle(asking: Asking, length: int) -> Probe:
    """A number in a long text, at three depths, each text new from its first word on."""
    requests, codes = [], []
    for index, depth in enumerate(DEPTHS):
        code = 10_000 + asking.seed(100 + index + length) % 90_000
        lines = filler(max(length // _TOKENS_A_LINE, 4), asking.seed(200 + index))
        lines.insert(int(len(lines) * depth), f"The access code of {asking.nonce} is {code}.")
        text = "\n".join(lines)
        question = f"What is the access code of {asking.nonce}? Answer with the number only."
        requests.append(asking.ask(f"{asking.nonce} {code % 7}\n{text}\n\n{question}"))
        codes.append(code)

    def judge(answers: Sequence[Answer]) -> Judged:
        found, ok = [], True
        for depth, code, answer in zip(DEPTHS, codes, answers, strict=True):
            used = answer.usage("prompt_tokens")
            right = not answer.trouble() and str(code) in answer.text()
            short = _short(used, length) if right else ""
            ok = ok and right and not short
            note = f" of {used} tokens" if used else ""
            found.append(f"at {depth:.0%}{note}: {'right' if right else said(answer)}{short}")
        return Judged(ok, "; ".join(found))

    cure = (
        "the model loses what is far back: compare attention and KV cache settings (kv-cache-dtype, block size, context length) with "
        "those that last passed"
    )
    asked = f"a code in a text of about {length} tokens, at {', '.join(f'{depth:.0%}' for depth in DEPTHS)} of it"
    return Probe(f"needle_{length}", asked, ", ".join(map(str, codes)), tuple(requests), judge, cure)


def _short(used: int, length: int) -> str:
    """Why a right answer proves nothing at this length; empty when it does. used: tokens of the prompt as the server counted them."""
    if not used:
        return ", and the server counted no tokens (usage), so nothing says how long the prompt was"
    return ", prompt cut" if used < length // 2 else ""


def stripes(order: Sequence[str], width: int = 48, height: int = 48) -> bytes:
    """A PNG of upright stripes in these colours, from left to right."""
    row = b"".join(bytes(STRIPES[name]) * width for name in order)
    pixels = zlib.compress((b"\0" + row) * height)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width * len(order), height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def image(asking: Asking) -> Probe:
    order = list(permutations(STRIPES))[asking.seed(300) % 6]
    picture = base64.b64encode(stripes(order)).decode("ascii")
    question = "Which colours have the three upright stripes, from left to right? Answer with the three words only."
    content = [
        {"type": "text", "text": question},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
    ]

    def judge(answers: Sequence[Answer]) -> Judged:
        words = "".join(letter if letter.isalpha() else " " for letter in answers[0].text().lower()).split()
        ok = not answers[0].trouble() and [word for word in words if word in STRIPES] == list(order)
        return Judged(ok, said(answers[0]))

    cure = "see that the profile serves the vision tower (no --language-model-only, a limit of images above 0)"
    return Probe(
        "image", f"a picture of three stripes: {question}", ", ".join(order), (asking.ask(content),), judge, cure
    )


def parity(asking: Asking, reference: Sequence[Mapping[str, Any]], near_tie: float) -> Probe:
    """Greedy answers beside those of the reference, token by token. near_tie: where the reference's two best tokens are closer than
    this, in natural logarithms, either of the two may win: what follows is another text and is not compared."""

    def judge(answers: Sequence[Answer]) -> Judged:
        same = compared = 0
        ties: list[str] = []
        wrong: list[str] = []
        for number, (held, answer) in enumerate(zip(reference, answers, strict=True), start=1):
            now = transcript(answer)
            if answer.trouble() or not now:
                wrong.append(f"prompt {number}: {answer.trouble() or 'no tokens with log probabilities'}")
                continue
            place = parted(held["tokens"], now)
            compared += len(held["tokens"]) if place is None else place
            if place is None:
                same += 1
                continue
            text = f"prompt {number} parts at token {place + 1} ({difference(held['tokens'], now, place)})"
            (ties if tied(held["tokens"], now, place, near_tie) else wrong).append(text)
        whole = sum(len(held["tokens"]) for held in reference)
        enough = compared >= COMPARED * whole
        parts = [f"{same} of {len(reference)} identical, {compared} of {whole} tokens compared", *ties, *wrong]
        return Judged(not wrong and enough, "; ".join(parts))

    cure = (
        "a near tie may fall either way after a change of kernels, a clear choice may not: look at what changed since the reference was "
        "recorded, and record a new one only when the change is meant to change answers"
    )
    expected = f"the reference's tokens, or its runner-up at a near tie (gap at most {near_tie:g}); at least {COMPARED:.0%} of them compared"
    requests = tuple(
        asking.ask(held["prompt"], logprobs=True, top_logprobs=2, max_tokens=PARITY_TOKENS) for held in reference
    )
    return Probe(
        "parity",
        f"{len(reference)} prompts at temperature 0, {PARITY_TOKENS} tokens each",
        expected,
        requests,
        judge,
        cure,
    )


def without_reference(problem: str) -> Probe:
    """Nothing is asked: what was to be compared with is not there. problem: the file, and what is wrong with it."""
    cure = (
        "record it once from a group that you trust (engine_acceptance_record: true), put a recorded one there on the head, or leave "
        "engine_acceptance_reference empty"
    )

    def judge(_answers: Sequence[Answer]) -> Judged:
        return Judged(False, problem)

    return Probe("parity", "nothing: there is no reference", "a file with recorded answers", (), judge, cure)


def recording(asking: Asking) -> Probe:
    """The prompts of a reference that is to be recorded."""

    def judge(answers: Sequence[Answer]) -> Judged:
        missing = [said(answer) for answer in answers if answer.trouble() or not transcript(answer)]
        return Judged(not missing, "; ".join(missing) or f"{len(answers)} answers recorded")

    requests = tuple(asking.ask(prompt, logprobs=True, top_logprobs=2, max_tokens=PARITY_TOKENS) for prompt in PROMPTS)
    cure = "see engine.acceptance_logprobs: without log probabilities there is no reference"
    return Probe("parity", f"{len(PROMPTS)} prompts, to record", "tokens with log probabilities", requests, judge, cure)


def transcript(answer: Answer) -> list[dict[str, Any]]:
    """Of each token its text, the best other one, and the gap between the two best; None where the server gave only one."""
    held = answer.choice().get("logprobs")
    content = held.get("content") if isinstance(held, dict) else None
    if not isinstance(content, list):
        return []
    return [_step(entry) for entry in content if isinstance(entry, dict)]


def _step(entry: Mapping[str, Any]) -> dict[str, Any]:
    token = str(entry.get("token"))
    best = sorted(
        (
            (float(top["logprob"]), str(top.get("token")))
            for top in entry.get("top_logprobs") or []
            if isinstance(top, dict) and isinstance(top.get("logprob"), (int, float))
        ),
        key=lambda top: -top[0],
    )
    gap = best[0][0] - best[1][0] if len(best) > 1 else math.nan
    runner_up = next((text for _logprob, text in best if text != token), None)
    return {"token": token, "runner_up": runner_up, "gap": gap if math.isfinite(gap) else None}


def reference_of(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    return [{"prompt": prompt, "tokens": transcript(answer)} for prompt, answer in zip(PROMPTS, answers, strict=True)]


def parted(reference: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> int | None:
    """Where the two first differ; None when they do not."""
    for place, (left, right) in enumerate(zip(reference, now, strict=False)):
        if left["token"] != right["token"]:
            return place
    return None if len(reference) == len(now) else min(len(reference), len(now))


def tied(reference: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], place: int, near_tie: float) -> bool:
    """Whether the two part at a near tie of the reference, and for its runner-up. An answer that just ends there chose nothing."""
    if place >= min(len(reference), len(now)):
        return False
    gap = reference[place]["gap"]
    near = isinstance(gap, (int, float)) and gap <= near_tie
    return near and now[place]["token"] == reference[place]["runner_up"]


def difference(reference: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], place: int) -> str:
    """What stands at this place in both, for people."""
    if place >= len(reference):
        return "the reference ends there"
    held = reference[place]
    gap = f"gap {held['gap']:.3f}" if isinstance(held["gap"], (int, float)) else "gap unknown"
    chosen = f"{now[place]['token']!r} came" if place < len(now) else "the answer ends"
    return f"{gap} between {held['token']!r} and {held['runner_up']!r}, {chosen}"


def reference_problem(held: Any) -> str:
    """What is wrong with a reference file's content; empty when nothing is."""
    if not isinstance(held, dict) or not isinstance(held.get("prompts"), list) or not held["prompts"]:
        return "no object with a list of prompts"
    for entry in held["prompts"]:
        tokens = entry.get("tokens") if isinstance(entry, dict) else None
        if not isinstance(tokens, list) or not tokens:
            return f"a prompt without tokens: {shown(str(entry))}"
        if not all(isinstance(token, dict) and {"token", "runner_up", "gap"} <= set(token) for token in tokens):
            return f"tokens without token, runner_up and gap: {shown(str(entry))}"
    return ""
