# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which settings of a profile hold a secret, by their names: a unit, a command line and engine.json are no place for one; pure.

To an engine tokens are pieces of text as well: tokenizer-mode, max-num-batched-tokens and long-prefill-token-threshold are no secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .options import flags

_ALWAYS = r"SECRET|PASSW(OR)?D|PASSPHRASE|(API|ACCESS|PRIVATE)_?KEY"
_VARIABLE = re.compile(rf"{_ALWAYS}|TOKEN(?!S|IZ)", re.IGNORECASE)
_FLAG = re.compile(rf"{_ALWAYS}|TOKEN\Z", re.IGNORECASE)
_PLACE = re.compile(r"_(FILE|PATH|DIR)\Z", re.IGNORECASE)  # where it lies, not what it is


def of_variable(name: str) -> bool:
    """Whether an environment variable of this name holds one."""
    return bool(_VARIABLE.search(name)) and not _PLACE.search(name)


def of_flag(name: str) -> bool:
    """The same of a flag, with or without dashes, or of a key within a flag's value."""
    plain = re.sub(r"[-.]", "_", name.lstrip("-"))
    return bool(_FLAG.search(plain)) and not _PLACE.search(plain)


def in_options(options: Mapping[Any, Any]) -> list[str]:
    """Names of flags with one, and of keys within their values as FLAG.KEY. A flag without value holds none."""
    return _named(options.items())


def in_words(words: Sequence[str]) -> list[str]:
    """The same of a command line's words, `--flag value` and `--flag=value`."""
    return _named((name, _value(value)) for name, value in flags(words))


def _named(given: Iterable[tuple[Any, Any]]) -> list[str]:
    found = []
    for name, value in given:
        if of_flag(str(name)) and value is not None and not isinstance(value, bool):
            found.append(str(name))
        elif isinstance(value, Mapping):
            found += [f"{name}.{inner}" for inner in in_options(value)]
    return found


def _value(text: str | None) -> Any:
    """A JSON object as a mapping, all other values as they are."""
    try:
        return json.loads(text) if text and text.startswith("{") else text
    except ValueError:
        return text
