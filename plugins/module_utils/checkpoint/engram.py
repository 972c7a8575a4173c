# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rows of the Engram tables each tensor-parallel rank reads, computed from a checkpoint's config.json.

Two engines split the same tables in two ways. vLLM gives each rank whole hash columns, whose sizes are primes; SGLang cuts
the rows evenly. The numbers differ at every size above one, so the rule is always named.

This file stands alone (standard library, no relative import): the lab's engine imports it as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RULES = ("vllm", "sglang")
_TEXT_KEYS = ("text_config", "language_config")
_KEYS = (
    *("engram_layer_ids", "engram_num_embeddings", "engram_max_ngram_size"),
    *("engram_vocab_size", "engram_n_heads"),
)
#: As many ranks as the collection knows anywhere.
MOST_RANKS = 64
#: Characters of what somebody else wrote, and layers told one by one, in a message.
_SHOWN = 120
_TOLD = 4
# These bases decide every number below 3.3e24 (Sorenson and Webster, 2015), so the test is no guess.
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
_PRIME_LIMIT = 1 << 64
#: Hash columns of all tables together, each of which a prime is searched for; the published checkpoints have 48.
_COLUMN_LIMIT = 512


class EngramError(ValueError):
    """The configuration or the wanted split cannot be right; the text is the message for the user."""


@dataclass(frozen=True)
class EngramConfig:
    """The engram_* keys of a config.json that decide the split.

    layers: decoder layers that have a table. rows: rows of each of those tables, in the same order.
    """

    layers: tuple[int, ...]
    rows: tuple[int, ...]
    max_ngram_size: int
    vocab_size: int
    heads: int

    @property
    def columns(self) -> int:
        """Hash columns of one table: one for each n-gram size from 2 up and each head."""
        return (self.max_ngram_size - 1) * self.heads


def is_prime(number: int) -> bool:
    """Whether number is prime, without chance (deterministic Miller-Rabin)."""
    if number < 2:
        return False
    if number >= _PRIME_LIMIT:
        raise EngramError(f"{number} is beyond the 64-bit range of row numbers")
    for prime in _WITNESSES:
        if number % prime == 0:
            return number == prime
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, witness, odd, twos) for witness in _WITNESSES)


def _passes(number: int, witness: int, odd: int, twos: int) -> bool:
    value = pow(witness, odd, number)
    if value in (1, number - 1):
        return True
    for _square in range(twos - 1):
        value = value * value % number
        if value == number - 1:
            return True
    return False


def parse(config: Mapping[str, Any]) -> EngramConfig:
    """The engram keys of a config.json: under text_config, under language_config, or flat, wherever they are. Raises EngramError."""
    if not isinstance(config, Mapping):
        raise EngramError(
            f"the configuration is a {type(config).__name__}, expected the mapping that config.json holds"
        )
    text = _place(config)
    missing = [key for key in _KEYS if key not in text]
    if missing:
        raise EngramError(
            f"config.json has no {', '.join(missing)}: this checkpoint has no Engram tables, or not in the known form"
        )
    layers = _integers(text, "engram_layer_ids", minimum=0)
    rows = _integers(text, "engram_num_embeddings", minimum=1)
    if len(layers) != len(rows) or len(set(layers)) != len(layers):
        raise EngramError(
            f"config.json: engram_layer_ids {_shown(list(layers))} and engram_num_embeddings {_shown(list(rows))} must be as long as "
            "each other and name each layer once"
        )
    return EngramConfig(
        layers=layers,
        rows=rows,
        max_ngram_size=_integer(text, "engram_max_ngram_size", minimum=2),
        vocab_size=_integer(text, "engram_vocab_size", minimum=2),
        heads=_integer(text, "engram_n_heads", minimum=1),
    )


def _place(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of the file that has most of the keys, the first of equals. Raises EngramError where two say different things."""
    places = {f"in {key}": config[key] for key in _TEXT_KEYS if isinstance(config.get(key), Mapping)}
    places["at the top level"] = config
    for key in _KEYS:
        said = {name: place[key] for name, place in places.items() if place.get(key) is not None}
        first = next(iter(said.values()), None)
        if any(value != first for value in said.values()):
            told = " and ".join(f"{_shown(value)} {name}" for name, value in said.items())
            raise EngramError(f"config.json: {key} is {told}. The file was edited; take the original config.json")
    return max(places.values(), key=lambda place: sum(place.get(key) is not None for key in _KEYS))


def _shown(value: object) -> str:
    """A value of the file for a message. Python refuses to write down huge numbers and deep lists."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "something too large to show"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _integer(text: Mapping[str, Any], key: str, minimum: int) -> int:
    value = text[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise EngramError(f"config.json: {key} is {_shown(value)}, expected an integer of at least {minimum}")
    return _in_range(key, value)


def _integers(text: Mapping[str, Any], key: str, minimum: int) -> tuple[int, ...]:
    value = text[key]
    valid = isinstance(value, (list, tuple)) and len(value) > 0
    if not valid or any(isinstance(item, bool) or not isinstance(item, int) or item < minimum for item in value):
        raise EngramError(f"config.json: {key} is {_shown(value)}, expected a list of integers of at least {minimum}")
    return tuple(_in_range(key, item) for item in value)


def _in_range(key: str, value: int) -> int:
    if value >= _PRIME_LIMIT:
        raise EngramError(f"config.json: {key} is a number beyond the 64-bit range of row numbers")
    return value


def column_primes(engram: EngramConfig) -> dict[int, tuple[int, ...]]:
    """Rows of each hash column, for each layer: n-gram size outside, head inside.

    Every column takes the smallest prime that no column of this or an earlier layer has; the search starts again at the
    vocabulary size with each n-gram size. What is taken has no gaps, so going on behind it finds the same as starting again.
    """
    fresh = _primes(engram.vocab_size)
    return {layer: tuple(itertools.islice(fresh, engram.columns)) for layer in engram.layers}


def _primes(start: int) -> Iterator[int]:
    """Primes from start up, in order."""
    return (number for number in itertools.count(start) if is_prime(number))


def checked_primes(engram: EngramConfig) -> dict[int, tuple[int, ...]]:
    """column_primes, after a check that they fill each table exactly. Raises EngramError with both numbers."""
    _check_columns(engram)
    primes = column_primes(engram)
    wrong = [
        f"layer {layer}: engram_num_embeddings {rows}, its hash columns need {sum(primes[layer])}"
        for layer, rows in zip(engram.layers, engram.rows, strict=True)
        if sum(primes[layer]) != rows
    ]
    if wrong:
        raise _unfit(engram, wrong)
    return primes


def _check_columns(engram: EngramConfig) -> None:
    """Refuse more columns than primes can be searched for in a moment, with what can be told of them without that."""
    least, together = engram.columns * engram.vocab_size, engram.columns * len(engram.layers)
    if together <= _COLUMN_LIMIT:
        return
    # No prime is smaller than the vocabulary size, so no column has fewer rows.
    wrong = [
        f"layer {layer}: engram_num_embeddings {rows}, its {engram.columns} hash columns need at least {least}"
        for layer, rows in zip(engram.layers, engram.rows, strict=True)
        if rows < least
    ]
    if wrong:
        raise _unfit(engram, wrong)
    raise EngramError(
        f"config.json: engram_max_ngram_size {engram.max_ngram_size} and engram_n_heads {engram.heads} give {together} hash columns "
        f"in {len(engram.layers)} tables, expected at most {_COLUMN_LIMIT}"
    )


def _unfit(engram: EngramConfig, wrong: Sequence[str]) -> EngramError:
    told = "; ".join(wrong[:_TOLD]) + (f"; and {len(wrong) - _TOLD} more layers" if len(wrong) > _TOLD else "")
    return EngramError(
        f"config.json: the Engram tables do not fit engram_vocab_size {engram.vocab_size}: {told}. "
        "The file is from another checkpoint or was edited"
    )


def ranges(config: Mapping[str, Any], tp: int, rule: str) -> list[dict[str, list[int]]]:
    """For each rank of tp, the half-open row range [lo, hi] of each table, keyed by the layer number as text.

    rule: ``vllm`` (whole hash columns) or ``sglang`` (even rows). Raises EngramError.
    """
    if rule not in RULES:
        raise EngramError(f"the Engram rule is {_shown(rule)}, allowed: {', '.join(RULES)}")
    if isinstance(tp, bool) or not isinstance(tp, int) or not 1 <= tp <= MOST_RANKS:
        raise EngramError(f"the tensor-parallel size is {_shown(tp)}, expected an integer from 1 to {MOST_RANKS}")
    engram = parse(config)
    bounds = _column_bounds(engram, tp) if rule == "vllm" else _even_bounds(engram, tp)
    return [{str(layer): [cuts[rank], cuts[rank + 1]] for layer, cuts in bounds.items()} for rank in range(tp)]


def _column_bounds(engram: EngramConfig, tp: int) -> dict[int, list[int]]:
    columns = engram.columns
    width = -(-columns // tp)
    busy = -(-columns // width)
    if busy < tp:
        idle = str(busy) if busy == tp - 1 else f"{busy} to {tp - 1}"
        raise EngramError(
            f"at tensor-parallel size {tp} vLLM gives {width} of the {columns} hash columns to each rank, so rank {idle} would own "
            f"no rows; use a size that divides {columns}"
        )
    bounds: dict[int, list[int]] = {}
    for layer, primes in checked_primes(engram).items():
        bounds[layer] = [sum(primes[: min(rank * width, columns)]) for rank in range(tp + 1)]
    return bounds


def _even_bounds(engram: EngramConfig, tp: int) -> dict[int, list[int]]:
    short = [layer for layer, rows in zip(engram.layers, engram.rows, strict=True) if rows < tp]
    if short:
        raise EngramError(
            f"the Engram tables of layers {_shown(short)} have fewer rows than the tensor-parallel size {tp}"
        )
    checked_primes(engram)  # this rule needs no columns, but a table that they do not fill is from another checkpoint
    return {
        layer: [rows * rank // tp for rank in range(tp + 1)]
        for layer, rows in zip(engram.layers, engram.rows, strict=True)
    }
