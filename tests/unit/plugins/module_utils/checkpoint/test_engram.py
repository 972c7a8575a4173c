# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import engram as engram_file
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.engram import (
    EngramConfig,
    EngramError,
    column_primes,
    is_prime,
    parse,
    ranges,
)

GOLDEN = json.loads((Path(__file__).parents[3] / "fixtures/engram/golden-ranges.json").read_text())
CONFIG = GOLDEN["config"]


@pytest.mark.parametrize("tp", [1, 2, 3, 4, 5, 6, 8, 12, 24])
def test_vllm_ranges_are_the_golden_ones(tp):
    assert ranges(CONFIG, tp, "vllm") == GOLDEN["vllm_hash_head_split"][str(tp)]


def test_the_golden_size_with_an_idle_rank_is_refused_for_that_rank():
    golden = GOLDEN["vllm_hash_head_split"]["7"]
    idle = [rank for rank, part in enumerate(golden) if all(low == high for low, high in part.values())]
    with pytest.raises(EngramError, match=rf"rank {', '.join(map(str, idle))} would own no rows"):
        ranges(CONFIG, 7, "vllm")
    # The columns of the others are those of six ranks.
    assert golden[: idle[0]] == ranges(CONFIG, 6, "vllm")


def test_the_golden_table_has_no_other_sizes():
    assert list(GOLDEN["vllm_hash_head_split"]) == ["1", "2", "3", "4", "5", "6", "7", "8", "12", "24"]
    assert list(GOLDEN["sglang_even_split"]) == list(GOLDEN["vllm_hash_head_split"])


@pytest.mark.parametrize("tp", [1, 2, 3, 4, 5, 6, 7, 8, 12, 24])
def test_sglang_ranges_are_the_golden_ones(tp):
    assert ranges(CONFIG, tp, "sglang") == GOLDEN["sglang_even_split"][str(tp)]


@pytest.mark.parametrize(
    ("tp", "rank", "published"),
    [
        (3, 1, "1:128000880:256002934 14:128004290:256009984"),
        (3, 2, "1:256002934:384006168 14:256009984:384016682"),
        (4, 1, "1:96000564:192001740 14:96003054:192007016"),
    ],
)
def test_published_values(tp, rank, published):
    found = ranges(CONFIG, tp, "vllm")[rank]
    assert " ".join(f"{layer}:{low}:{high}" for layer, (low, high) in found.items()) == published


@pytest.mark.parametrize("rule", ["vllm", "sglang"])
@pytest.mark.parametrize("tp", [2, 3, 4, 8])
def test_ranges_tile_each_table(rule, tp):
    split = ranges(CONFIG, tp, rule)
    for layer, rows in (("1", 384006168), ("14", 384016682)):
        parts = [part[layer] for part in split]
        assert parts[0][0] == 0
        assert parts[-1][1] == rows
        assert all(before[1] == after[0] for before, after in itertools.pairwise(parts))


def test_column_primes_are_the_golden_ones():
    found = {str(layer): list(primes) for layer, primes in column_primes(parse(CONFIG)).items()}
    assert found == GOLDEN["column_primes"]


def test_the_search_starts_again_with_each_ngram_size_and_shares_what_is_taken():
    # from 10 up: 11 13 for size 2, then 17 19 for size 3 since 11 and 13 are taken, and on for the next layer
    engram = EngramConfig(layers=(0, 5), rows=(1, 1), max_ngram_size=3, vocab_size=10, heads=2)
    assert column_primes(engram) == {0: (11, 13, 17, 19), 5: (23, 29, 31, 37)}


@pytest.mark.parametrize("key", ["text_config", "language_config"])
def test_nested_configuration(key):
    assert ranges({key: CONFIG, "model_type": "x"}, 3, "vllm") == ranges(CONFIG, 3, "vllm")


@pytest.mark.parametrize(
    ("change", "tp", "rule", "says"),
    [
        (
            {"engram_num_embeddings": [384006168, 384016681]},
            3,
            "vllm",
            "layer 14: engram_num_embeddings 384016681, its hash columns need 384016682",
        ),
        (
            {"engram_num_embeddings": [384006169, 384016682]},
            3,
            "sglang",
            "layer 1: engram_num_embeddings 384006169, its hash columns need 384006168",
        ),
        ({"engram_num_embeddings": [384006168]}, 3, "vllm", "as long as each other"),
        ({"engram_num_embeddings": "many"}, 3, "vllm", "engram_num_embeddings is 'many'"),
        ({"engram_layer_ids": [1, 1]}, 3, "vllm", "name each layer once"),
        ({"engram_vocab_size": True}, 3, "vllm", "engram_vocab_size is True"),
        ({"engram_n_heads": 0}, 3, "vllm", "engram_n_heads is 0, expected an integer of at least 1"),
        ({}, 7, "vllm", "rank 6 would own no rows"),
        ({}, 48, "vllm", "would own no rows"),
        ({}, 0, "vllm", "tensor-parallel size is 0"),
        ({}, "3", "sglang", "tensor-parallel size is '3'"),
        ({}, 3, "even", "rule is 'even', allowed: vllm, sglang"),
        ({"engram_num_embeddings": [2, 9]}, 3, "sglang", "layers [1] have fewer rows"),
    ],
)
def test_refusals(change, tp, rule, says):
    with pytest.raises(EngramError) as error:
        ranges({**CONFIG, **change}, tp, rule)
    assert says in str(error.value)


def test_all_missing_keys_are_named():
    with pytest.raises(EngramError, match="no engram_layer_ids, engram_num_embeddings, engram_max_ngram_size"):
        parse({"text_config": {"hidden_size": 5120}})


def test_something_else_than_a_mapping():
    with pytest.raises(EngramError, match="is a list"):
        parse([])


def test_primes_against_trial_division():
    def plain(number):
        return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))

    assert [number for number in range(3000) if is_prime(number)] == [number for number in range(3000) if plain(number)]


@pytest.mark.parametrize(
    ("number", "prime"),
    [
        (561, False),  # Carmichael
        (3215031751, False),  # strong pseudoprime to 2, 3, 5 and 7
        (3825123056546413051, False),  # strong pseudoprime to the first nine primes
        (2**61 - 1, True),
        (18446744073709551557, True),  # the largest below 2**64
    ],
)
def test_numbers_that_fool_weaker_tests(number, prime):
    assert is_prime(number) is prime


def test_beyond_the_proven_range():
    with pytest.raises(EngramError):
        is_prime(1 << 64)


# --- numbers that nobody means ----------------------------------------------------------------------------------------


#: What the file is run with, in a process of its own that can be ended.
_ALONE = """
import json, runpy, sys, time
given = runpy.run_path(sys.argv[1])
config, rule = json.load(sys.stdin)
began = time.process_time()
try:
    given["ranges"](config, 3, rule)
except given["EngramError"] as error:
    print(json.dumps([str(error), time.process_time() - began]))
"""
_HUGE = 10**4000


@pytest.mark.parametrize("rule", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"engram_n_heads": 10**7}, "384006168, its 30000000 hash columns need at least 480000000000000"),
        ({"engram_max_ngram_size": 10**7}, "384006168, its 79999992 hash columns need at least 1279999872000000"),
        ({"engram_n_heads": 9}, "384006168, its hash columns need 43200"),
        ({"engram_vocab_size": 10**15}, "384006168, its hash columns need 24000000000"),
        ({"engram_vocab_size": 2, "engram_n_heads": 10**7}, "give 60000000 hash columns in 2 tables, expected at most"),
        ({"engram_vocab_size": 2, "engram_max_ngram_size": 10**7}, "give 159999984 hash columns in 2 tables"),
        ({"engram_vocab_size": 2, "engram_n_heads": 86}, "give 516 hash columns"),
        ({"engram_vocab_size": 2, "engram_n_heads": 85}, "its hash columns need"),
        (
            {"engram_vocab_size": 1 << 54, "engram_num_embeddings": [1 << 63] * 2, "engram_n_heads": 85},
            "engram_num_embeddings 9223372036854775808, its hash columns need",
        ),
        ({"engram_vocab_size": (1 << 64) - 1, "engram_num_embeddings": [1 << 63] * 2}, "beyond the 64-bit range"),
        (
            {"engram_n_heads": _HUGE, "engram_vocab_size": _HUGE},
            "engram_vocab_size is a number beyond the 64-bit range",
        ),
        ({"engram_num_embeddings": [1, _HUGE]}, "engram_num_embeddings is a number beyond the 64-bit range"),
        (
            {"engram_layer_ids": list(range(10**4)), "engram_num_embeddings": [384006168] * 10**4},
            "give 240000 hash columns in 10000 tables",
        ),
    ],
)
def test_absurd_numbers_are_refused_within_a_second(change, says, rule):
    given = json.dumps([{**CONFIG, **change}, rule])
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, engram_file.__file__],
        input=given,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    text, seconds = json.loads(done.stdout)
    assert says in text and len(text) < 3000
    assert seconds < 1


@pytest.mark.parametrize("rule", ["vllm", "sglang"])
@pytest.mark.parametrize("tp", [65, 10**6, 10**8, 10**4000, 10**5000, -(10**5000)], ids=range(6))
def test_more_ranks_than_there_are(tp, rule):
    with pytest.raises(EngramError, match=r"tensor-parallel size is .*, expected an integer from 1 to 64") as error:
        ranges(CONFIG, tp, rule)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("tp", "idle"), [(7, "rank 6"), (10, "rank 8 to 9"), (48, "rank 24 to 47"), (64, "rank 24 to 63")]
)
def test_idle_ranks_are_told_as_a_range(tp, idle):
    with pytest.raises(EngramError, match=f"so {idle} would own no rows"):
        ranges(CONFIG, tp, "vllm")


_MANY = list(range(100_000))
_KEYS = ("engram_layer_ids", "engram_num_embeddings", "engram_max_ngram_size", "engram_vocab_size", "engram_n_heads")


@pytest.mark.parametrize(
    "change",
    [
        *({key: _MANY} for key in _KEYS),
        *({key: -(10**5000)} for key in _KEYS),
        {
            "engram_layer_ids": _MANY[:400],
            "engram_num_embeddings": [5] * 400,
            "engram_max_ngram_size": 2,
            "engram_n_heads": 1,
        },
        {"engram_layer_ids": _MANY, "engram_num_embeddings": [1] * len(_MANY)},
    ],
)
@pytest.mark.parametrize("rule", ["vllm", "sglang"])
def test_what_the_file_says_is_cut_off_in_messages(change, rule):
    with pytest.raises(EngramError) as error:
        ranges({**CONFIG, **change}, 1, rule)
    assert len(str(error.value)) < 800


def test_a_rule_is_cut_off_in_messages():
    with pytest.raises(EngramError) as error:
        ranges(CONFIG, 3, _MANY)
    assert len(str(error.value)) < 300


# --- where the keys are -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"text_config": {}, "language_config": CONFIG},
        {"text_config": {"hidden_size": 5120}, **CONFIG},
        {"text_config": dict.fromkeys(CONFIG), "language_config": CONFIG},
        {"text_config": {"engram_vocab_size": CONFIG["engram_vocab_size"]}, "language_config": CONFIG},
        {"text_config": CONFIG, "language_config": {}, **CONFIG},
        {"text_config": "x", **CONFIG},
    ],
)
def test_the_place_that_has_the_keys(config):
    assert ranges(config, 3, "vllm") == ranges(CONFIG, 3, "vllm")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {"text_config": CONFIG, **CONFIG, "engram_vocab_size": 11},
            "engram_vocab_size is 16000000 in text_config and 11 at the top level",
        ),
        (
            {"text_config": {"engram_layer_ids": [1]}, "language_config": CONFIG},
            r"engram_layer_ids is \[1\] in text_config and \[1, 14\] in language_config",
        ),
    ],
)
def test_places_that_disagree(config, says):
    with pytest.raises(EngramError, match=says):
        ranges(config, 3, "vllm")
