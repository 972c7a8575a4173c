# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The padding of heads and groups in config.json that lets the vLLM lane split 64 heads over three ranks.

The edit is the one that the field publishes for tensor parallel 3 (LLMKube dsv41-tp3-config job, tonyd2wild
EXL3-TP3 recipe): 64 heads in 8 output groups become 72 in 9, and the engine is told how many of them are real.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

HEADS = "num_attention_heads"
GROUPS = "o_groups"
REAL = "virtual_heads_from"
MARKER = "kai_tp3_virtual_heads"


class ConfigError(ValueError):
    """A config.json that this does not understand; its text is the message for the user."""


def counts(config: Mapping[str, Any]) -> tuple[int, int]:
    """Attention heads and output groups as the engine would read them."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise ConfigError(
            f"config.json has no text_config (found the keys {', '.join(map(str, config)) or 'none'}); "
            "the padding is known for DeepSeek-V4.1 configurations only"
        )
    return _pair(text, "text_config")


def padded(config: Mapping[str, Any], tp: int) -> dict[str, Any]:
    """A copy of config for tp ranks. Unchanged where tp divides the counts; padding it twice is padding it once."""
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
        raise ConfigError(f"tensor parallel size {tp!r} is not a positive number of ranks")
    result = copy.deepcopy(dict(config))
    shown = counts(result)
    heads, groups = real_counts(result)
    wanted = padded_counts(heads, groups, tp)
    if shown == wanted and (wanted == (heads, groups) or REAL in result):
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
    """The counts that the weights have: those before an earlier padding, if there was one."""
    heads, groups = counts(config)
    records = [place[REAL] for place in (config, config["text_config"]) if REAL in place]
    if not records:
        return heads, groups
    if any(not isinstance(record, Mapping) or record != records[0] for record in records):
        raise ConfigError(f"config.json has two different {REAL}: {records}; take the original config.json")
    return _pair(records[0], REAL)


def derived_text(text: str, tp: int) -> str:
    """The text of config.json for tp ranks; the same text when nothing changes."""
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"config.json is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"config.json holds a {type(config).__name__}, not an object")
    result = padded(config, tp)
    return text if result == config else serialised(result)


def serialised(config: Mapping[str, Any]) -> str:
    """As the published edit writes it: one space of indent, nothing after the last brace."""
    return json.dumps(config, indent=1)


def _count(place: Mapping[str, Any], key: str, where: str) -> int:
    value = place.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"config.json: {where}.{key} is {value!r}, expected a positive number; "
            "the padding is known for DeepSeek-V4.1 configurations only"
        )
    return value


def _pair(place: Mapping[str, Any], where: str) -> tuple[int, int]:
    heads, groups = (_count(place, key, where) for key in (HEADS, GROUPS))
    if heads % groups:
        raise ConfigError(f"config.json: {where} has {heads} heads in {groups} groups, which does not divide")
    return heads, groups
