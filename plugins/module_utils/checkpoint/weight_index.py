# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the index of a checkpoint (model.safetensors.index.json) says that its Engram tensors are.

The published indexes have up to 15.6 MB and 188,245 entries, of which twelve count here. They are read one entry after the other, so
that an index, whole or damaged, never takes more memory than its own text twice.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

from . import units
from .manifest import path_problem
from .objects import INDEX

#: Bytes that an index may have.
INDEX_LIMIT = 24 << 20
#: What the names of the tensors have in common whose place is kept.
MARK = ".engram."
_KEPT_LIMIT = 4096
_DEPTH_LIMIT = 32
_KEYS_LIMIT = 32
#: Values outside of weight_map. The published indexes have two: metadata and its total_size.
_SKIPPED_LIMIT = 10_000
_STEP = 1 << 20
_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}){0,4096}"')
_OTHER = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,4})?")
#: An entry as every known writer writes it, and what follows it.
_ENTRY = re.compile(
    r'[ \t\n\r]*"([^"\\\x00-\x1f]{1,4096})"[ \t\n\r]*:[ \t\n\r]*"([^"\\\x00-\x1f]{1,4096})"[ \t\n\r]*([,}])'
)


class WeightIndexError(ValueError):
    """An index that cannot be right; the text names the file and is the message for the user."""


def engram_places(data: bytes, path: str = INDEX) -> dict[str, str]:
    """The file of each Engram tensor, by the tensor's name. Raises WeightIndexError."""
    if len(data) > INDEX_LIMIT:
        raise WeightIndexError(f"{path}: {len(data)} bytes, expected at most {INDEX_LIMIT}")
    _check_encoding(data, path)
    # Structure is ASCII in UTF-8 too, and a character that takes one byte keeps the text as small as the file.
    reader = _Reader(data.decode("latin-1"), path)
    return reader.document()


def _check_encoding(data: bytes, path: str) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), _STEP):
            decoder.decode(data[start : start + _STEP])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise WeightIndexError(f"{path}: not UTF-8: {error.reason}") from None


class _Reader:
    """Walks through the text of an index."""

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.at = 0
        self.skipped = 0
        self.kept: dict[str, str] = {}

    def document(self) -> dict[str, str]:
        self._take("{")
        names: set[str] = set()
        while not self._closes("}", first=not names):
            name = self._name()
            if name in names:
                raise self._error(f"{units.printable(name)!r} is in it twice")
            names.add(name)
            if len(names) > _KEYS_LIMIT:
                raise self._error(f"more than {_KEYS_LIMIT} keys beside weight_map")
            if name == "weight_map":
                self._map()
            else:
                self._skip(1)
        self._space()
        if self.at != len(self.text):
            raise self._error("something follows the last brace")
        if "weight_map" not in names:
            raise self._error("no weight_map")
        return self.kept

    def _map(self) -> None:
        self._take("{")
        if self._closes("}", first=True):
            return
        following = ","
        while following == ",":
            match = _ENTRY.match(self.text, self.at)
            if match is None:
                following = self._entry()
                continue
            self.at, following = match.end(), match[3]
            if MARK in match[1]:
                self._keep(*(part.encode("latin-1").decode() for part in match.group(1, 2)))

    def _entry(self) -> str:
        """One entry whose strings have escapes; what follows it."""
        name = self._name()
        self._space()
        self._keep(name, self._string())
        self._space()
        end = self.text[self.at : self.at + 1]
        if end not in ("}", ","):
            raise self._error("expected a comma or a closing brace")
        self.at += 1
        return end

    def _keep(self, tensor: str, path: str) -> None:
        if MARK not in tensor:
            return
        if tensor in self.kept:
            raise self._error(f"tensor {units.printable(tensor)!r} is in weight_map twice")
        problem = path_problem(path) or ("" if path.isprintable() else "has a character that cannot be printed")
        if problem:
            raise self._error(f"tensor {units.printable(tensor)!r}: the file {units.printable(path)!r} {problem}")
        self.kept[tensor] = path
        if len(self.kept) > _KEPT_LIMIT:
            raise self._error(f"more than {_KEPT_LIMIT} Engram tensors")

    def _skip(self, depth: int) -> None:
        """Over one value of any kind."""
        self.skipped += 1
        if depth > _DEPTH_LIMIT or self.skipped > _SKIPPED_LIMIT:
            raise self._error(f"nested too deeply, or more than {_SKIPPED_LIMIT} values beside weight_map")
        self._space()
        char = self.text[self.at : self.at + 1]
        if char == '"':
            self._string()
        elif char in ("{", "["):
            self._skip_inside(char, depth)
        else:
            match = _OTHER.match(self.text, self.at)
            if match is None:
                raise self._error("expected a value")
            self.at = match.end()

    def _skip_inside(self, opening: str, depth: int) -> None:
        closing = "}" if opening == "{" else "]"
        self._take(opening)
        first = True
        while not self._closes(closing, first):
            if opening == "{":
                self._name()
            self._skip(depth + 1)
            first = False

    def _closes(self, closing: str, first: bool) -> bool:
        """Whether the object or array ends here; otherwise the comma before the next value is taken."""
        self._space()
        if self.text[self.at : self.at + 1] == closing:
            self.at += 1
            return True
        if not first:
            self._take(",")
        return False

    def _name(self) -> str:
        self._space()
        name = self._string()
        self._take(":")
        return name

    def _string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise self._error("expected a text of at most 4096 characters")
        self.at = match.end()
        value: Any = json.loads(match[0].encode("latin-1"))
        return str(value)

    def _take(self, char: str) -> None:
        self._space()
        if self.text[self.at : self.at + 1] != char:
            raise self._error(f"expected {char!r}")
        self.at += 1

    def _space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _error(self, what: str) -> WeightIndexError:
        found = units.printable(self.text[self.at : self.at + 20])
        return WeightIndexError(f"{self.path}: {what} (at byte {self.at}, before {found!r})")
