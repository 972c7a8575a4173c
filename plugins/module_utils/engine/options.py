# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a profile as words of a command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def words(options: Mapping[str, Any]) -> list[str]:
    """The flags in the profile's order; true is a flag without value, a mapping one JSON argument, a list several words."""
    found: list[str] = []
    for name, value in options.items():
        found.append(f"--{name}")
        if isinstance(value, Mapping):
            found.append(json.dumps(value, separators=(",", ":")))
        elif isinstance(value, (list, tuple)):
            found += [word(item) for item in value]
        elif value is not True:
            found.append(word(value))
    return found


def word(value: Any) -> str:
    """One value of a flag; true is lower case, as engines read it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def flags(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """The way back: each flag of a command line, dashes and all, with its first value; None when it has none."""
    for word, following in zip(words, [*words, "--"][1:], strict=True):
        name, has_value, value = word.partition("=")
        if name.startswith("-"):
            yield name, value if has_value else None if following.startswith("--") else following


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """base with over on it: mappings key by key, everything else replaced. null takes a key of options or env away again."""
    result = dict(base)
    for key, value in over.items():
        held = result.get(key)
        if isinstance(held, Mapping) and isinstance(value, Mapping):
            result[key] = merged(held, value)
        else:
            result[key] = value
    return result
