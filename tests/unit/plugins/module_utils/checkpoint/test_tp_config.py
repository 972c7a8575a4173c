# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import tp_config
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
        ({**CONFIG, "virtual_heads_from": True}, "two different virtual_heads_from"),
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
