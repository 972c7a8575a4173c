# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The padding of heads and groups in config.json that lets the vLLM lane split 64 heads over three ranks.

The edit is the one that the field publishes for tensor parallel 3 (LLMKube dsv41-tp3-config job, tonyd2wild
EXL3-TP3 recipe): 64 heads in 8 output groups become 72 in 9, and the engine is told how many of them are real.

This file stands alone (standard library, no relative import): a Job in the cluster runs it as it is.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

HEADS = "num_attention_heads"
GROUPS = "o_groups"
REAL = "virtual_heads_from"
MARKER = "kai_tp3_virtual_heads"
#: As many ranks as the collection knows anywhere.
MOST_RANKS = 64
#: The published checkpoints, and their paddings for as many ranks as a ring has: one of these without a record was edited. The
#: range ends at 8, since 128 in 16 groups is a larger model's own.
_PUBLISHED = (64, 8)
_RING = range(2, 9)
#: Characters of what somebody else wrote, in a message.
_SHOWN = 120
_DEEP = "config.json is nested too deeply: no checkpoint's is. Take the original config.json"


class ConfigError(ValueError):
    """A config.json that this does not understand; its text is the message for the user."""


def counts(config: Mapping[str, Any]) -> tuple[int, int]:
    """Attention heads and output groups as the engine would read them."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise ConfigError(
            f"config.json has no text_config (found the keys {_cut(', '.join(map(str, config))) or 'none'}); "
            "the padding is known for DeepSeek-V4.1 configurations only"
        )
    return _pair(text, "text_config")


def padded(config: Mapping[str, Any], tp: int) -> dict[str, Any]:
    """A copy of config for tp ranks. Unchanged where tp divides the counts; padding it twice is padding it once."""
    if isinstance(tp, bool) or not isinstance(tp, int) or not 1 <= tp <= MOST_RANKS:
        raise ConfigError(f"tensor parallel size {_shown(tp)} is not a number of ranks from 1 to {MOST_RANKS}")
    try:
        return _padded(copy.deepcopy(dict(config)), tp)
    except RecursionError:
        raise ConfigError(_DEEP) from None


def _padded(result: dict[str, Any], tp: int) -> dict[str, Any]:
    shown = counts(result)
    heads, groups = real_counts(result)
    wanted = padded_counts(heads, groups, tp)
    if shown == wanted and (wanted == (heads, groups) or result.get(REAL) is not None):
        return result
    for place in (result, result["text_config"]):
        place.pop(REAL, None)
    result.pop(MARKER, None)
    result["text_config"][HEADS], result["text_config"][GROUPS] = wanted
    if wanted != (heads, groups):
        result["text_config"][REAL] = {HEADS: heads, GROUPS: groups}
        # In the engine text_config is dict-like and only the copy at the top arrives.
        result[REAL] = {HEADS: heads, GROUPS: groups}
        if tp == 3:
            result[MARKER] = (
                f"{heads} real heads / {groups} o_groups padded to {wanted[0]} / {wanted[1]} "
                "for tensor-parallel 3 (virtual_heads.py)"
            )
    return result


def padded_counts(heads: int, groups: int, tp: int) -> tuple[int, int]:
    """Heads and groups that tp divides, with as many heads in a group as before."""
    if heads % tp == 0 and groups % tp == 0:
        return heads, groups
    wanted = -(-groups // tp) * tp
    return wanted * (heads // groups), wanted


def real_counts(config: Mapping[str, Any]) -> tuple[int, int]:
    """The counts that the weights have: those before an earlier padding, if there was one.

    Raises ConfigError where the counts shown are neither these nor a padding of them.
    """
    shown = counts(config)
    records = [place[REAL] for place in (config, config["text_config"]) if place.get(REAL) is not None]
    if not records:
        _refuse_unrecorded(shown)
        return shown
    for record in records:
        if not isinstance(record, Mapping):
            raise ConfigError(
                f"config.json: {REAL} is {_shown(record)}, expected {HEADS} and {GROUPS}; take the original config.json"
            )
    if any(record != records[0] for record in records):
        raise ConfigError(f"config.json has two different {REAL}: {_shown(records)}; take the original config.json")
    real = _pair(records[0], REAL)
    if shown != real and shown not in _paddings(real, range(2, MOST_RANKS + 1)):
        raise ConfigError(
            f"config.json shows {_said(shown)}, but {REAL} names {_said(real)}, and no number of ranks up to {MOST_RANKS} pads "
            "these to those; take the original config.json"
        )
    return real


def _refuse_unrecorded(shown: tuple[int, int]) -> None:
    """An edit that lost its record: the engine would take all of these heads for real."""
    tp = _paddings(_PUBLISHED, _RING).get(shown)
    if tp and shown != _PUBLISHED:
        raise ConfigError(
            f"config.json shows {_said(shown)} without {REAL}: that is {_said(_PUBLISHED)} padded for {tp} ranks, of which the "
            "engine is not told. Take the original config.json, or an edited one that has the record"
        )


def _paddings(real: tuple[int, int], ranks: Iterable[int]) -> dict[tuple[int, int], int]:
    """The fewest ranks that give these counts."""
    return {padded_counts(*real, tp): tp for tp in sorted(ranks, reverse=True)}


def _said(pair: tuple[int, int]) -> str:
    heads, groups = map(_shown, pair)
    return f"{heads} heads in {groups} groups"


def derived_text(text: str, tp: int) -> str:
    """The text of config.json for tp ranks; the same text when nothing changes."""
    try:
        config = json.loads(text)
        if not isinstance(config, dict):
            raise ConfigError(f"config.json holds a {type(config).__name__}, not an object")
        result = padded(config, tp)
        return text if result == config else serialised(result)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"config.json is not JSON: {error}") from error
    except RecursionError:
        raise ConfigError(_DEEP) from None


def serialised(config: Mapping[str, Any]) -> str:
    """As the published edit writes it: one space of indent, nothing after the last brace."""
    return json.dumps(config, indent=1)


def _count(place: Mapping[str, Any], key: str, where: str) -> int:
    value = place.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"config.json: {where}.{key} is {_shown(value)}, expected a positive number; "
            "the padding is known for DeepSeek-V4.1 configurations only"
        )
    return value


def _pair(place: Mapping[str, Any], where: str) -> tuple[int, int]:
    heads, groups = (_count(place, key, where) for key in (HEADS, GROUPS))
    if heads % groups:
        raise ConfigError(f"config.json: {where} has {_said((heads, groups))}, which does not divide")
    return heads, groups


def _shown(value: object) -> str:
    """A value of the file for a message. Python refuses to write down huge numbers and deep lists."""
    try:
        return _cut(repr(value))
    except (ValueError, RecursionError):
        return "something too large to show"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
