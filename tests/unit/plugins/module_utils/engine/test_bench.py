# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured, what counts, and what it comes to."""

from __future__ import annotations

import csv
import io
import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import anchors, bench
from ansible_collections.gb10.ring.plugins.module_utils.engine.asking import Answer, Asking

ASKING = Asking("m", "abcdefghij")
SETTINGS = bench.Settings((1000, 4000), 100, ("prose", "code"), (1, 4), 3, "vllm-tp3-ring-exl3")
PREFILL, DECODE = bench.Case("prefill", 1000, 1), bench.Case("decode, prose", 0, 2)


def answer(seconds=1.0, first=0.0, *, prompt=1000, made=1, cached=None, status=200):
    usage = {"prompt_tokens": prompt, "completion_tokens": made}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return Answer(status, json.dumps({"choices": [{"message": {"content": "x"}}], "usage": usage}), "", seconds, first)


def test_cases():
    found = [(case.kind, case.length, case.concurrency) for case in bench.cases(SETTINGS)]
    assert found[:2] == [("prefill", 1000, 1), ("prefill", 4000, 1)]
    assert found[2:] == [
        ("decode, prose", 0, 1),
        ("decode, code", 0, 1),
        ("decode, prose", 0, 4),
        ("decode, code", 0, 4),
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"prefill_lengths": (0,)}, "prefill_lengths are [0]"),
        ({"concurrency": (65,)}, "concurrency is [65]"),
        ({"repeats": 0}, "repeats is 0"),
        ({"decode_tokens": 1}, "decode_tokens 1"),
    ],
)
def test_settings_that_are_refused(changes, problem):
    found = bench.problem(bench.Settings(**{**SETTINGS.__dict__, **changes}))
    assert problem in found
    assert bool(found) is bool(problem)


def test_no_two_prompts_begin_alike():
    starts = [
        request.body["messages"][0]["content"].split()[0]
        for number in range(50)
        for request in bench.requests(bench.Case("decode, code", 0, 4), SETTINGS, ASKING, number, 10.0)
    ]
    assert len(set(starts)) == len(starts)


def test_lengths_follow_the_server_s_count():
    per_line = bench.tokens_a_line(answer(prompt=480))
    assert per_line == 12.0
    (request,) = bench.requests(PREFILL, SETTINGS, ASKING, 0, per_line)
    assert len(request.body["messages"][0]["content"].splitlines()) == 1 + 83
    assert request.body["max_tokens"] == 1
    assert not request.stream
    assert bench.tokens_a_line(Answer(200, "{}")) == 0


def test_decode_is_streamed_with_usage_and_without_an_early_end():
    for request in bench.requests(DECODE, SETTINGS, ASKING, 0, 12.0):
        assert request.stream
        assert request.body["stream_options"] == {"include_usage": True}
        assert (request.body["ignore_eos"], request.body["max_tokens"]) == (True, 100)


@pytest.mark.parametrize(
    ("case", "answers", "hits", "rate", "note"),
    [
        (PREFILL, [answer(seconds=2.0)], None, 500.0, ""),
        (PREFILL, [answer(seconds=2.0, cached=0)], 0.0, 500.0, ""),
        (PREFILL, [answer(cached=48)], 48.0, 1000.0, ""),
        (PREFILL, [answer(cached=960)], None, None, "prefix cache hit: 960 of 1000 tokens"),
        (PREFILL, [answer()], 960.0, None, "prefix cache hit: 960 of 1000 tokens"),
        (PREFILL, [answer(status=500)], None, None, "status 500"),
        (PREFILL, [answer(prompt=0)], None, None, "no usage"),
        (PREFILL, [Answer(error="no answer within 600 s")], None, None, "no answer within 600 s"),
        (DECODE, [answer(4.0, 1.0, made=101), answer(5.0, 1.5, made=101)], None, 50.0, ""),
        (
            DECODE,
            [answer(4.0, 1.0, made=101), answer(5.0, 1.5, made=80)],
            None,
            None,
            "80 tokens came, 100 were asked for",
        ),
        (DECODE, [answer(1.0, 1.0, made=100)], None, None, "came at once"),
    ],
)
def test_samples(case, answers, hits, rate, note):
    found = bench.sample(case, SETTINGS, answers, hits)
    assert found.rate == rate
    assert note in found.note
    assert bool(found.note) is (rate is None)


METRICS = """\
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 160.0
vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.7e9
vllm:spec_decode_num_draft_tokens_total{engine="0"} 3370.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 1011.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 418.0
"""


def test_what_the_counters_say():
    assert bench.cache_hits(METRICS) == 160.0
    assert bench.cache_hits("") is None
    assert bench.speculation("", METRICS) == {"drafted": 3370.0, "accepted": 1011.0, "rate": 0.3}
    assert bench.speculation(METRICS, METRICS) is None
    assert bench.speculation("", "") is None


def test_a_row_has_the_median_and_what_was_published():
    samples = [bench.Sample(rate, 3391) for rate in (1101.0, 1090.0, 1140.0)]
    row = bench.row(PREFILL, samples, anchors.PUBLISHED["vllm-tp3-ring-exl3"])
    assert (row.median, row.low, row.high, row.samples, row.tokens) == (1101.0, 1090.0, 1140.0, 3, 3391)
    assert (row.published, row.published_tokens) == (1094, 3400)
    assert "LLMKube" in row.source


def test_one_run_that_is_no_measurement_voids_the_row():
    row = bench.row(PREFILL, [bench.Sample(1000.0, 9), bench.Sample(None, 9, "prefix cache hit")], ())
    assert (row.median, row.low, row.published, row.note, row.samples) == (None, None, None, "prefix cache hit", 1)


@pytest.mark.parametrize(
    ("kind", "tokens", "many", "rate"),
    [
        ("prefill", 3000, 1, 1094),
        ("prefill", 60000, 1, 1334),
        ("prefill", 12000, 1, None),
        ("prefill", 3400, 4, None),
        ("decode, code", 40, 1, 65),
        ("decode, prose", 0, 1, 31),
        ("other", 0, 1, None),
    ],
)
def test_the_published_number_of_the_same_measurement(kind, tokens, many, rate):
    found = anchors.nearest(anchors.PUBLISHED["vllm-tp3-ring-exl3"], kind, tokens, many)
    assert (found.rate if found else None) == rate


@pytest.mark.parametrize(
    ("rate", "ok", "found"),
    [
        (1101.0, True, "prefill, 3391 tokens, 1 at once: 1101 tok/s, published 1094 at 3400 tokens (LLMKube"),
        (876.0, True, "876 tok/s"),
        (874.0, False, "874 tok/s"),
        (None, False, "no result, prefix cache hit"),
    ],
)
def test_checks(rate, ok, found):
    sample = bench.Sample(rate, 3391, "" if rate else "prefix cache hit")
    row = bench.row(PREFILL, [sample], anchors.PUBLISHED["vllm-tp3-ring-exl3"])
    (check,) = bench.checks("spark3", [row], 0.8)
    assert (check["ok"], check["severity"]) == (ok, "warning")
    assert found in check["found"]


def test_the_table_is_csv():
    row = bench.row(PREFILL, [bench.Sample(None, 9, 'a "b", c')], ())
    (read,) = csv.DictReader(io.StringIO(bench.table([row])))
    assert read["note"] == 'a "b", c'
    assert (read["kind"], read["median"], read["tokens"]) == ("prefill", "", "9")
