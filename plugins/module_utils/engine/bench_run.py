# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the benchmark: calibrates, warms up, measures, and looks at the server's counters before and after each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import anchors, bench
from .asking import Answer, Asking, Request
from .bench import Case, Sample, Settings
from .client import Client, page, told


@dataclass(frozen=True)
class Found:
    """rows: the measurements. cache_told_by: usage, metrics or nothing. speculation: None without draft tokens."""

    rows: tuple[bench.Row, ...]
    server: Mapping[str, Any]
    cache_told_by: str
    speculation: Mapping[str, float] | None


def measure(settings: Settings, asking: Asking, client: Client) -> Found:
    """All cases, one after the other. Raises BenchError when the server gives nothing to start from."""
    first = client.send(bench.calibration(asking))
    per_line = bench.tokens_a_line(first)
    if first.trouble() or not per_line:
        raise bench.BenchError(
            f"{first.trouble() or 'the server gives no usage'}; expected a completion with a count of tokens. "
            "Cure: see that the engine serves (verify.yml), then run again"
        )
    before = page(client, "/metrics")
    published = anchors.PUBLISHED.get(settings.profile, ())
    rows = []
    for number, case in enumerate(bench.cases(settings)):
        samples = _samples(case, settings, asking, client, (number, per_line))
        rows.append(bench.row(case, samples, published))
    after = page(client, "/metrics")
    return Found(tuple(rows), told(client, "/version"), _told_by(first, after), bench.speculation(before, after))


def _samples(
    case: Case, settings: Settings, asking: Asking, client: Client, where: tuple[int, float]
) -> Sequence[Sample]:
    """The runs that count, after one that does not: the first of a shape compiles kernels."""
    number, per_line = where
    made = []
    for turn in range(settings.repeats + 1):
        requests = bench.requests(case, settings, asking, number * 100 + turn, per_line)
        answers, hits = _run(client, requests)
        made.append(bench.sample(case, settings, answers, hits))
    return made[1:]


def _run(client: Client, requests: Sequence[Request]) -> tuple[list[Answer], float | None]:
    before = bench.cache_hits(page(client, "/metrics"))
    answers = client.send_all(requests, together=True)
    after = bench.cache_hits(page(client, "/metrics"))
    return answers, None if before is None or after is None else after - before


def _told_by(first: Answer, metrics: str) -> str:
    if bench.cached_tokens(first) is not None:
        return "usage"
    return "nothing" if bench.cache_hits(metrics) is None else "metrics"
