# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The row rules against an implementation written from their description alone, slow and plain, on random small tables."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.engram import (
    EngramError,
    column_primes,
    parse,
    ranges,
)

GEOMETRIES = 200


def sieve(limit):
    """All primes below limit, by crossing out."""
    crossed = set()
    primes = []
    for number in range(2, limit):
        if number not in crossed:
            primes.append(number)
            crossed.update(range(number * number, limit, number))
    return primes


PRIMES = sieve(6000)


def plain_columns(layers, ngram, heads, vocabulary):
    """Rows of each column: layer after layer, n-gram size after n-gram size, head after head, the next free prime."""
    free = [prime for prime in PRIMES if prime >= vocabulary]
    return {layer: [free.pop(0) for _column in range((ngram - 1) * heads)] for layer in layers}


def plain_vllm(columns, tp):
    """A rank takes the next width columns of what is left; each row of a column is written down by its owner."""
    width = 0
    while width * tp < len(columns):
        width += 1
    owners = [index // width for index, rows in enumerate(columns) for _row in range(rows)]
    return spread(owners, tp)


def plain_sglang(rows, tp):
    """Row n belongs to the last rank r whose first row N*r//tp is not behind it."""
    first = [rows * rank // tp for rank in range(tp)]
    owners = []
    rank = 0
    for row in range(rows):
        while rank + 1 < tp and first[rank + 1] <= row:
            rank += 1
        owners.append(rank)
    return spread(owners, tp)


def spread(owners, tp):
    """[lo, hi] of each rank from the owner of each row; None for a rank that owns nothing."""
    result = [None] * tp
    for row, owner in enumerate(owners):
        low = row if result[owner] is None else result[owner][0]
        result[owner] = [low, row + 1]
    return result


@st.composite
def geometries(draw):
    layers = draw(st.lists(st.integers(0, 60), min_size=1, max_size=4, unique=True))
    return {
        "layers": layers,
        "ngram": draw(st.integers(2, 5)),
        "heads": draw(st.integers(1, 6)),
        "vocabulary": draw(st.integers(2, 400)),
        "tp": draw(st.integers(1, 12)),
        "place": draw(st.sampled_from(["text_config", "language_config", None])),
    }


def config_of(geometry, columns):
    keys = {
        "engram_layer_ids": geometry["layers"],
        "engram_num_embeddings": [sum(columns[layer]) for layer in geometry["layers"]],
        "engram_max_ngram_size": geometry["ngram"],
        "engram_vocab_size": geometry["vocabulary"],
        "engram_n_heads": geometry["heads"],
    }
    return {geometry["place"]: keys} if geometry["place"] else keys


def core(config, tp, rule):
    """What the code under test says: ranges by rank and layer, or the error."""
    try:
        return ranges(config, tp, rule)
    except EngramError as error:
        return str(error)


@settings(max_examples=GEOMETRIES, deadline=None, derandomize=True)
@given(geometries())
def test_as_the_plain_implementation(geometry):
    columns = plain_columns(geometry["layers"], geometry["ngram"], geometry["heads"], geometry["vocabulary"])
    config, tp = config_of(geometry, columns), geometry["tp"]
    assert column_primes(parse(config)) == {layer: tuple(primes) for layer, primes in columns.items()}
    for rule in ("vllm", "sglang"):
        expected = {
            str(layer): plain_vllm(primes, tp) if rule == "vllm" else plain_sglang(sum(primes), tp)
            for layer, primes in columns.items()
        }
        found = core(config, tp, rule)
        if any(None in ranks for ranks in expected.values()):
            assert "would own no rows" in found or "fewer rows than the tensor-parallel size" in found
        else:
            assert found == [{layer: ranks[rank] for layer, ranks in expected.items()} for rank in range(tp)]


@settings(max_examples=GEOMETRIES, deadline=None, derandomize=True)
@given(geometries(), st.integers(-3, 3).filter(bool))
def test_a_table_of_another_size_is_refused_with_both_numbers(geometry, off):
    columns = plain_columns(geometry["layers"], geometry["ngram"], geometry["heads"], geometry["vocabulary"])
    config = config_of(geometry, columns)
    keys = config[geometry["place"]] if geometry["place"] else config
    true = keys["engram_num_embeddings"][-1]
    if true + off < 1:
        return
    keys["engram_num_embeddings"][-1] = true + off
    for rule in ("vllm", "sglang"):
        text = core(config, 1, rule)
        assert (
            f"layer {geometry['layers'][-1]}: engram_num_embeddings {true + off}, its hash columns need {true}" in text
        )
