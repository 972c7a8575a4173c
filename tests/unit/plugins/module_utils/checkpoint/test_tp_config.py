# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import engram, tp_config
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.tp_config import ConfigError

ORIGINAL = (Path(__file__).parents[3] / "fixtures/checkpoint/config-exl3.json").read_text(encoding="utf-8")
CONFIG = json.loads(ORIGINAL)


def shown(config):
    return config["text_config"]["num_attention_heads"], config["text_config"]["o_groups"]


def test_the_published_edit_byte_for_byte():
    text = tp_config.derived_text(ORIGINAL, 3)
    assert len(text) == 5260
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "713a52fa39ea0b661dd71f4b737db3507564fe4039ff5d4131aa00a9b5832ecf"
    )


@pytest.mark.parametrize(
    ("tp", "counts"),
    [(1, (64, 8)), (2, (64, 8)), (3, (72, 9)), (4, (64, 8)), (5, (80, 10)), (6, (96, 12)), (7, (112, 14))],
)
def test_counts(tp, counts):
    result = tp_config.padded(CONFIG, tp)
    assert shown(result) == counts
    assert counts[0] % tp == 0 and counts[1] % tp == 0
    padded = counts != (64, 8)
    assert ("virtual_heads_from" in result) == padded
    assert ("virtual_heads_from" in result["text_config"]) == padded
    assert ("kai_tp3_virtual_heads" in result) == (tp == 3)
    assert padded or result == CONFIG


def test_the_input_is_left_alone():
    before = copy.deepcopy(CONFIG)
    tp_config.padded(CONFIG, 3)
    assert before == CONFIG


@pytest.mark.parametrize("tp", [1, 2, 3, 5])
def test_twice_is_once(tp):
    once = tp_config.padded(CONFIG, tp)
    assert tp_config.serialised(tp_config.padded(once, tp)) == tp_config.serialised(once)


def test_another_number_of_ranks_starts_from_the_real_counts():
    for_three = tp_config.padded(CONFIG, 3)
    assert tp_config.padded(for_three, 6) == tp_config.padded(CONFIG, 6)
    assert tp_config.padded(for_three, 4) == CONFIG


def test_a_padded_config_without_our_marker_is_done_already():
    # LakyFx publishes the same edit without the marker.
    config = tp_config.padded(CONFIG, 3)
    del config["kai_tp3_virtual_heads"]
    assert tp_config.padded(config, 3) == config


def test_text_stays_as_it_is_when_nothing_changes():
    assert tp_config.derived_text(ORIGINAL, 2) == ORIGINAL


def without(key):
    config = copy.deepcopy(CONFIG)
    del config["text_config"][key]
    return config


def with_text(**values):
    config = copy.deepcopy(CONFIG)
    config["text_config"].update(values)
    return config


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"model_type": "llama", "num_attention_heads": 32}, "found the keys model_type, num_attention_heads"),
        ({}, "found the keys none"),
        (without("o_groups"), "text_config.o_groups is None"),
        (with_text(num_attention_heads="64"), "num_attention_heads is '64'"),
        (with_text(num_attention_heads=True), "num_attention_heads is True"),
        (with_text(num_attention_heads=65), "65 heads in 8 groups"),
        ({**CONFIG, "virtual_heads_from": {"num_attention_heads": 64}}, "virtual_heads_from.o_groups is None"),
        (
            {**CONFIG, "virtual_heads_from": True},
            "virtual_heads_from is True, expected num_attention_heads and o_groups",
        ),
        (
            {**with_text(virtual_heads_from={"num_attention_heads": 8, "o_groups": 1}), "virtual_heads_from": {}},
            "two different virtual_heads_from",
        ),
    ],
)
def test_what_it_does_not_understand_it_refuses(config, text):
    with pytest.raises(ConfigError, match=text):
        tp_config.padded(config, 3)


@pytest.mark.parametrize("tp", [0, -1, True, "3", 1.5])
def test_ranks_are_a_positive_number(tp):
    with pytest.raises(ConfigError, match="tensor parallel size"):
        tp_config.padded(CONFIG, tp)


@pytest.mark.parametrize(("text", "reason"), [("{", "not JSON"), ("[]", "holds a list")])
def test_texts_that_are_no_config(text, reason):
    with pytest.raises(ConfigError, match=reason):
        tp_config.derived_text(text, 3)


# --- neither original nor ours ----------------------------------------------------------------------------------------

RECORD = {"num_attention_heads": 64, "o_groups": 8}


def edited(heads, groups, **top):
    return {**with_text(num_attention_heads=heads, o_groups=groups), **top}


@pytest.mark.parametrize("tp", [1, 3, 4, 9])
@pytest.mark.parametrize(("counts", "ranks"), [((72, 9), 3), ((80, 10), 5), ((96, 12), 6), ((112, 14), 7)])
def test_a_padding_without_its_record_is_refused(tp, counts, ranks):
    with pytest.raises(ConfigError) as error:
        tp_config.padded(edited(*counts), tp)
    says = f"shows {counts[0]} heads in {counts[1]} groups without virtual_heads_from: that is 64 heads in 8 groups"
    assert says in str(error.value) and f"padded for {ranks} ranks" in str(error.value)
    assert "Take the original config.json" in str(error.value)


@pytest.mark.parametrize("counts", [(64, 8), (128, 16), (32, 4), (8, 1), (72, 18), (36, 9)])
def test_counts_of_other_models_are_real(counts):
    assert tp_config.real_counts(edited(*counts)) == counts


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            edited(71, 1, virtual_heads_from=RECORD),
            "shows 71 heads in 1 groups, but virtual_heads_from names 64 heads in 8",
        ),
        (edited(72, 8, virtual_heads_from=RECORD), "shows 72 heads in 8 groups"),
        (edited(32, 4, virtual_heads_from=RECORD), "shows 32 heads in 4 groups"),
        (
            edited(64, 8, virtual_heads_from={"num_attention_heads": 128, "o_groups": 16}),
            "shows 64 heads in 8 groups, but virtual_heads_from names 128 heads in 16 groups",
        ),
    ],
)
@pytest.mark.parametrize("tp", [3, 4])
def test_counts_that_are_no_padding_of_the_recorded_ones(config, says, tp):
    with pytest.raises(ConfigError, match=says):
        tp_config.padded(config, tp)


@pytest.mark.parametrize("ranks", range(1, 65))
def test_whatever_was_padded_can_be_padded_again(ranks):
    once = tp_config.padded(CONFIG, ranks)
    assert tp_config.real_counts(once) == (64, 8)
    again = tp_config.padded(once, 3)
    again.pop("kai_tp3_virtual_heads", None)  # what was padded for nine ranks is right for three, without the marker
    assert {**again, "kai_tp3_virtual_heads": tp_config.padded(CONFIG, 3)["kai_tp3_virtual_heads"]} == tp_config.padded(
        CONFIG, 3
    )


def test_a_record_of_nothing_is_none():
    config = {**with_text(virtual_heads_from=None), "virtual_heads_from": None}
    assert tp_config.real_counts(config) == (64, 8)
    assert tp_config.padded(config, 3) == tp_config.padded(CONFIG, 3)
    assert tp_config.padded(config, 4) == config


@pytest.mark.parametrize("place", ["top", "text"])
def test_a_record_in_one_place_is_completed(place):
    config = tp_config.padded(CONFIG, 3)
    (config if place == "text" else config["text_config"])["virtual_heads_from"] = None
    assert tp_config.padded(config, 3)["virtual_heads_from"] == RECORD


def test_72_in_9_without_a_record_that_is_null():
    with pytest.raises(ConfigError, match="without virtual_heads_from"):
        tp_config.padded(edited(72, 9, virtual_heads_from=None), 3)


# --- what nobody means ------------------------------------------------------------------------------------------------


def nested(depth):
    return ORIGINAL.rstrip()[:-1] + ', "x": ' + "[" * depth + "]" * depth + "}"


@pytest.mark.parametrize("text", [nested(600), nested(100_000), "[" * 100_000], ids=range(3))
def test_a_text_that_is_nested_too_deeply(text):
    with pytest.raises(ConfigError, match="nested too deeply"):
        tp_config.derived_text(text, 3)


def test_a_mapping_that_is_nested_too_deeply():
    config = {**CONFIG}
    inner = config
    for _level in range(2000):
        inner["x"] = {}
        inner = inner["x"]
    with pytest.raises(ConfigError, match="nested too deeply"):
        tp_config.padded(config, 3)


MANY = list(range(100_000))


@pytest.mark.parametrize(
    "config",
    [
        with_text(num_attention_heads=MANY),
        with_text(o_groups=-(10**5000)),
        with_text(num_attention_heads=10**5000, o_groups=7),
        {**CONFIG, "virtual_heads_from": MANY},
        {**with_text(virtual_heads_from={"a": MANY}), "virtual_heads_from": {"b": MANY}},
        {str(number): 0 for number in MANY},
    ],
)
def test_what_the_file_says_is_cut_off_in_messages(config):
    with pytest.raises(ConfigError) as error:
        tp_config.padded(config, 3)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("tp", [65, 10**6, 10**5000], ids=range(3))
def test_more_ranks_than_there_are(tp):
    with pytest.raises(ConfigError, match="is not a number of ranks from 1 to 64"):
        tp_config.padded(CONFIG, tp)


def test_it_knows_as_many_ranks_as_the_rest():
    """It stands alone, so the number is written there once more."""
    assert tp_config.MOST_RANKS == engram.MOST_RANKS
