# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of digests that lie beside the files of a checkpoint: coreutils' MD5SUMS and SHA256SUMS, Hugging Face's inventory."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .manifest import digest_problem

#: Names by which a list is found. The JSON ones hold what the Hugging Face API says of a repository's files.
_SUMS = re.compile(r"(?:MD5|SHA256)SUMS?(?:\.[A-Za-z0-9_-]+)?(?:\.txt)?", re.IGNORECASE)
_JSON = frozenset({"checkpoint-files.json", "huggingface-files.json"})
#: Not lists: signatures of lists.
_SIGNATURES = (".asc", ".sig", ".gpg", ".minisig", ".sign")
#: ``HEX  name`` and ``HEX *name`` of md5sum and sha256sum; a backslash in front says that the name is escaped.
_GNU = re.compile(r"(\\?)([0-9A-Fa-f]{32}|[0-9A-Fa-f]{64}) [ *](.+)")
#: ``MD5 (name) = HEX``, their --tag and what BSD's tools write.
_BSD = re.compile(r"(\\?)(?:MD5|SHA256|SHA2-256) \((.+)\) = ([0-9A-Fa-f]{32}|[0-9A-Fa-f]{64})")
_BY_LENGTH = {32: "md5", 64: "sha256"}
#: The strongest first: which one counts when several lists name a file.
_STRENGTH = ("sha256", "gitblob", "md5")


class ListError(ValueError):
    """A list that cannot be read, or two that disagree; its text is the message for the user."""


@dataclass(frozen=True)
class Listed:
    """What a list says of a file. where: path of the list. size: bytes, None when the list gives none."""

    digest: str
    where: str
    size: int | None = None


def is_list(path: str) -> bool:
    """Whether a file of this name is a list of digests."""
    name = posixpath.basename(path)
    return (bool(_SUMS.fullmatch(name)) or name in _JSON) and not name.lower().endswith(_SIGNATURES)


def parse(path: str, content: bytes) -> dict[str, Listed]:
    """What this list says, by path below the prefix. Names in a list are relative to its directory. Raises ListError."""
    try:
        text = content.decode("utf-8")
        rows = _json_rows(text) if path.endswith(".json") else _sum_rows(text)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ListError(
            f"{path} is not a list of digests ({error}); expected are lines of md5sum or sha256sum, or in a .json file what "
            "the Hugging Face API says of a repository's files"
        ) from error
    base = posixpath.dirname(path)
    found: dict[str, Listed] = {}
    for name, digest, size in rows:
        target = posixpath.normpath(posixpath.join(base, name))
        problem = digest_problem(digest)
        if problem:
            raise ListError(f"{path}: {name}: {problem}")
        if target in found and found[target].digest != digest:
            raise ListError(f"{path} names {name} twice, with different digests")
        found[target] = Listed(digest, path, size)
    return found


def merge(lists: Iterable[Mapping[str, Listed]]) -> tuple[dict[str, Listed], list[str]]:
    """What counts of several lists, and where they disagree, one text each."""
    chosen: dict[str, Listed] = {}
    problems = []
    for path, item in [pair for one in lists for pair in one.items()]:
        known = chosen.get(path)
        if known is None or _rank(item) < _rank(known):
            chosen[path] = item
        elif _rank(item) == _rank(known) and item.digest != known.digest:
            problems.append(f"{path} has {known.digest} in {known.where} and {item.digest} in {item.where}")
    return chosen, problems


def _rank(item: Listed) -> int:
    return _STRENGTH.index(item.digest.partition(":")[0])


def _sum_rows(text: str) -> list[tuple[str, str, int | None]]:
    rows: list[tuple[str, str, int | None]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith(("#", ";")):
            continue
        gnu, bsd = _GNU.fullmatch(line.rstrip("\r")), _BSD.fullmatch(line.rstrip("\r"))
        if gnu:
            escaped, value, name = gnu.groups()
        elif bsd:
            escaped, name, value = bsd.groups()
        else:
            raise ValueError(f"line {number} is {line[:80]!r}")
        name = name.replace("\\\\", "\\") if escaped else name
        rows.append((name, f"{_BY_LENGTH[len(value)]}:{value.lower()}", None))
    return rows


def _json_rows(text: str) -> list[tuple[str, str, int | None]]:
    """``/api/models/ORG/NAME?blobs=true`` (siblings), ``/api/models/ORG/NAME/tree/REV`` (a list), or ``{"files": [...]}``."""
    data = json.loads(text)
    items = data if isinstance(data, list) else data.get("siblings", data.get("files"))
    if not isinstance(items, list):
        raise ValueError("it has no list of files")
    rows = [_json_row(item) for item in items if item.get("type", "file") == "file"]
    return [(name, digest, size) for name, digest, size in rows if digest]


def _json_row(item: Mapping[str, Any]) -> tuple[str, str, int | None]:
    name = str(item["rfilename"] if "rfilename" in item else item["path"])
    large = item.get("lfs") or {}
    size = item.get("size", large.get("size"))
    sha256 = str(large.get("sha256") or large.get("oid") or "").removeprefix("sha256:")
    blob = str(item.get("blobId") or item.get("oid") or "")
    digest = f"sha256:{sha256}" if sha256 else f"gitblob:{blob}" if blob else ""
    return name, digest, None if size is None else int(size)
