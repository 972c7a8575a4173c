# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark of a serving group: what is asked, what counts as a measurement, and what it comes to; pure."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .acceptance_long import filler
from .anchors import Anchor, nearest
from .asking import CHAT, Answer, Asking, Request

UNIT = "tok/s"
_CACHED_TOKENS = 64  # a chat template's start, which every prompt has, may be cached
_CACHED_SHARE = 0.01
_SHORT = 0.9  # of the tokens that were asked for; an answer that is shorter is no measurement
_LINES = 40
_HITS = re.compile(
    r"^(?:vllm:prefix_cache_hits(?:_total)?|sglang:cached_tokens_total)(?:\{[^}]*\})?\s+([\d.eE+]+)", re.MULTILINE
)
_DRAFTED = re.compile(r"^vllm:spec_decode_num_draft_tokens(?:_total)?(?:\{[^}]*\})?\s+([\d.eE+]+)", re.MULTILINE)
_ACCEPTED = re.compile(r"^vllm:spec_decode_num_accepted_tokens(?:_total)?(?:\{[^}]*\})?\s+([\d.eE+]+)", re.MULTILINE)
TASKS = {
    "prose": "Write a long, plain story about a lighthouse keeper. Do not stop early.",
    "code": "Write a long Python module that implements a bank with accounts, transfers and tests. Code only. Do not stop early.",
}


class BenchError(Exception):
    """A reason why nothing can be measured; the text is the message for the user."""


@dataclass(frozen=True)
class Settings:
    """prefill_lengths, decode_tokens in tokens; concurrency: requests at once; repeats: timed runs of each measurement."""

    prefill_lengths: tuple[int, ...]
    decode_tokens: int
    decode_tasks: tuple[str, ...]
    concurrency: tuple[int, ...]
    repeats: int
    profile: str


@dataclass(frozen=True)
class Case:
    """One measurement. kind: prefill, or decode with its task. length: tokens of the prompt that are aimed at."""

    kind: str
    length: int
    concurrency: int

    @property
    def decode(self) -> bool:
        return self.kind.startswith("decode")


@dataclass(frozen=True)
class Sample:
    """One run of a case. rate in tokens a second, None with the reason in note. tokens: of a prompt, as the server counted them."""

    rate: float | None
    tokens: int
    note: str = ""


@dataclass(frozen=True)
class Row:
    """One measurement as it is reported; a median of None has its reason in note."""

    kind: str
    tokens: int
    concurrency: int
    median: float | None
    low: float | None
    high: float | None
    unit: str
    samples: int
    published: float | None
    published_tokens: int | None
    source: str
    note: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def problem(settings: Settings) -> str:
    """What is wrong with the settings; empty when nothing is."""
    if any(length < 1 for length in settings.prefill_lengths):
        return f"prefill_lengths are {list(settings.prefill_lengths)}, expected tokens, at least 1"
    if not all(1 <= many <= 64 for many in settings.concurrency):
        return f"concurrency is {list(settings.concurrency)}, allowed are 1 to 64"
    if settings.repeats < 1 or settings.decode_tokens < 2:
        return f"repeats is {settings.repeats}, decode_tokens {settings.decode_tokens}; allowed are at least 1 and 2"
    return ""


def cases(settings: Settings) -> list[Case]:
    """Prefill at each length alone, then decode of each task at each concurrency."""
    found = [Case("prefill", length, 1) for length in settings.prefill_lengths]
    found += [Case(f"decode, {task}", 0, many) for many in settings.concurrency for task in settings.decode_tasks]
    return found


def calibration(asking: Asking) -> Request:
    """A prompt of known lines; the server's count tells how many tokens a line has."""
    text = "\n".join(filler(_LINES, asking.seed(0)))
    return Request(CHAT, asking.body(f"{asking.nonce}\n{text}", max_tokens=1))


def tokens_a_line(answer: Answer) -> float:
    """From the answer to the calibration; 0 when the server counts nothing, and then no length can be aimed at."""
    return answer.usage("prompt_tokens") / _LINES


def requests(case: Case, settings: Settings, asking: Asking, number: int, per_line: float) -> tuple[Request, ...]:
    """One run of a case. Every prompt begins with a word of its own, so that none begins as an earlier one did."""
    made = []
    for index in range(case.concurrency):
        salt = asking.seed(1000 + number * 97 + index)
        head = f"{salt:x} {number} {index} {asking.nonce}"
        if case.decode:
            task = TASKS[case.kind.partition(", ")[2]]
            more: dict[str, Any] = {"max_tokens": settings.decode_tokens, "stream": True, "ignore_eos": True}
            body = asking.body(f"{head}\n{task}", stream_options={"include_usage": True}, **more)
            made.append(Request(CHAT, body, stream=True))
        else:
            lines = filler(max(1, round(case.length / per_line)), salt)
            made.append(Request(CHAT, asking.body("\n".join([head, *lines]), max_tokens=1)))
    return tuple(made)


def sample(case: Case, settings: Settings, answers: Sequence[Answer], hits: float | None) -> Sample:
    """What one run gives. hits: tokens that the server says it took from its prefix cache meanwhile, None when it does not say."""
    tokens = max((answer.usage("prompt_tokens") for answer in answers), default=0)
    trouble = next((answer.trouble() for answer in answers if answer.trouble()), "")
    if trouble:
        return Sample(None, tokens, trouble)
    cached = max(hits or 0, sum(cached_tokens(answer) or 0 for answer in answers))
    asked = sum(answer.usage("prompt_tokens") for answer in answers)
    if cached > max(_CACHED_TOKENS * len(answers), _CACHED_SHARE * asked):
        return Sample(None, tokens, f"prefix cache hit: {cached:.0f} of {asked} tokens, so nothing was measured")
    if not asked:
        return Sample(None, 0, "the server gives no usage, so nothing can be counted")
    return _decode(settings, answers, tokens) if case.decode else _prefill(answers, tokens)


def _prefill(answers: Sequence[Answer], tokens: int) -> Sample:
    seconds = max(answer.seconds for answer in answers)
    return Sample(tokens / seconds if seconds else None, tokens)


def _decode(settings: Settings, answers: Sequence[Answer], tokens: int) -> Sample:
    """All streams together, from the first token of any to the end of the last. Tokens are the server's count: an event may hold many."""
    made = [answer.usage("completion_tokens") for answer in answers]
    if min(made) < _SHORT * settings.decode_tokens:
        return Sample(None, tokens, f"{min(made)} tokens came, {settings.decode_tokens} were asked for")
    seconds = max(answer.seconds for answer in answers) - min(answer.first for answer in answers)
    if seconds <= 0:
        return Sample(None, tokens, "the whole answer came at once, so there is no time to divide by")
    return Sample(sum(count - 1 for count in made) / seconds, tokens)


def cached_tokens(answer: Answer) -> int | None:
    """Tokens of the prompt that usage says came from the cache; None when it does not say."""
    usage = answer.data().get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    value = details.get("cached_tokens") if isinstance(details, dict) else None
    return value if isinstance(value, int) else None


def cache_hits(metrics: str) -> float | None:
    """Tokens from the prefix cache since the start, by /metrics; None when the server does not tell."""
    return _total(_HITS, metrics)


def speculation(before: str, after: str) -> dict[str, float] | None:
    """Draft tokens and those accepted meanwhile; None without speculation."""
    counts = [(_total(pattern, after) or 0) - (_total(pattern, before) or 0) for pattern in (_DRAFTED, _ACCEPTED)]
    return (
        None
        if counts[0] <= 0
        else {"drafted": counts[0], "accepted": counts[1], "rate": round(counts[1] / counts[0], 4)}
    )


def _total(pattern: re.Pattern[str], metrics: str) -> float | None:
    found = [float(value) for value in pattern.findall(metrics)]
    return sum(found) if found else None


def row(case: Case, samples: Sequence[Sample], anchors: Sequence[Anchor]) -> Row:
    """The median of the runs that count. One that hit the cache, or broke, voids the measurement: half a result is none."""
    notes = list(dict.fromkeys(one.note for one in samples if one.note))
    rates = [one.rate for one in samples if one.rate is not None]
    whole = bool(rates) and len(rates) == len(samples)
    tokens = max((one.tokens for one in samples), default=0)
    anchor = nearest(anchors, case.kind, tokens, case.concurrency)
    return Row(
        kind=case.kind,
        tokens=tokens,
        concurrency=case.concurrency,
        median=round(statistics.median(rates), 2) if whole else None,
        low=round(min(rates), 2) if whole else None,
        high=round(max(rates), 2) if whole else None,
        unit=UNIT,
        samples=len(rates),
        published=anchor.rate if anchor else None,
        published_tokens=anchor.tokens if anchor else None,
        source=anchor.source if anchor else "",
        note="; ".join(notes),
    )


def table(rows: Sequence[Row]) -> str:
    """All rows as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(Row.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in one.to_dict().items()} for one in rows)
    return out.getvalue()


def checks(node: str, rows: Sequence[Row], slow: float) -> list[Mapping[str, Any]]:
    """A check a row. slow: part of a published number below which a measurement is a warning."""
    return [_check(node, one, slow) for one in rows]


def _check(node: str, one: Row, slow: float) -> Mapping[str, Any]:
    name = f"{one.kind}, {one.tokens} tokens, {one.concurrency} at once"
    beside = (
        f", published {one.published:g} at {one.published_tokens or 'unstated'} tokens ({one.source})"
        if one.published
        else ""
    )
    ok = one.median is not None and (one.published is None or one.median >= slow * one.published)
    return {
        "id": "engine.benchmark",
        "node": node,
        "ok": ok,
        "severity": "warning",
        "found": f"{name}: {one.median:g} {one.unit}{beside}"
        if one.median is not None
        else f"{name}: no result, {one.note}",
        "expected": f"at least {slow:g} of what was published" if one.published else "a measurement",
        "cure": "see that nothing else uses the group meanwhile; run verify.yml with fabric_bandwidth and fabric_allreduce on a stopped group; "
        "compare with the first benchmark after a boot, memory fragments with every start of the engine",
    }
