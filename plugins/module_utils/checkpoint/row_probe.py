# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an engine that is started from its unit would read Engram rows of another revision or rank, holes as zeros among them.

Rows change while a group is stopped, and a run that fails then leaves a unit that a boot starts. So the engine's unit runs this file before
the engine: engine-rows.py RECORD, where RECORD is the engine.json that the unit was rendered with.

It stands alone (standard library): the node has no copy of the collection.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOCAL = "engram-local.json"
#: Bytes of a file that is read here. A manifest with checksums of each chunk, the largest of them, has 2 MB.
_LIMIT = 16 << 20
#: A file below this may lie beside its data, with no block of its own, and yet be whole.
_PAGE = 4096
_ROWS = re.compile(r"\s*([0-9]{1,19})\s*:\s*([0-9]{1,19})\s*:\s*([0-9]{1,19})\s*")
#: What it means to take apart a file that somebody else wrote, whatever stands in it.
NOT_OURS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_CURE = "bring the rows of this unit's revision and group back (restage.yml), or start the group anew with what is there (site.yml)"


@dataclass(frozen=True)
class Serving:
    """What an engine of this node reads. revision: of this checkpoint; empty where none runs, or one of another checkpoint.

    directory: of its rows, empty where they lie in the revision. rows: its ranges, ``LAYER:FIRST:AFTER``, where the unit names them; else they
    are those of rule, tp and rank. digests: of the revision's files by path, as far as they are known.
    """

    revision: str = ""
    directory: str = ""
    rule: str = ""
    tp: int = 0
    rank: int = 0
    rows: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def layout(self) -> tuple[str, int, int]:
        return self.rule, self.tp, self.rank


@dataclass(frozen=True)
class Local:
    """What engram-local.json says of a directory. rows: as in Serving. digests: of the whole objects that its files are slices of.

    placement: of the slices, empty where it says nothing of that.
    """

    revision: str
    rows: str
    rule: str
    tp: int
    rank: int
    digests: Mapping[str, str] = field(default_factory=dict)
    placement: str = ""

    @property
    def layout(self) -> tuple[str, int, int]:
        return self.rule, self.tp, self.rank


def unsafe(serving: Serving, local: Local | None, directory: Path) -> str:
    """Why an engine that is started from this unit would read other rows than its own, or an empty text. local: of that directory."""
    if local is None:
        return ""  # vLLM finds no rows there, and takes those of the whole shards
    known = serving.digests
    wrong = [path for path, digest in local.digests.items() if path in known and digest != known[path]]
    if wrong:
        return (
            f"{directory} holds Engram rows of {_named(wrong)} as revision {_shown(local.revision)} has them, "
            f"not as {serving.revision} does, which it serves"
        )
    mine = same_rows(serving.rows, local.rows) if serving.rows else serving.layout == local.layout
    return "" if mine else f"{directory} holds the Engram rows {_shown(local.rows)}, which are not those of its rank"


def rows_string(layers: Mapping[str, Sequence[int]]) -> str:
    """``LAYER:FIRST:AFTER`` of each table, by commas: the value of SPARK_ENGRAM_ROWS for an engine that reads whole shards."""
    return ",".join(f"{layer}:{low}:{high}" for layer, (low, high) in layers.items())


def same_rows(told: str, held: str) -> bool:
    """Whether both name the same ranges, in whatever order and with whatever space. What names none is held to its text."""
    one, other = _ranges(told), _ranges(held)
    return told == held if one is None or other is None else one == other


def _ranges(text: str) -> dict[int, tuple[int, int]] | None:
    """None where this is no list of ranges."""
    found = [match for part in text.split(",") for match in [_ROWS.fullmatch(part)] if match]
    ranges = {int(match[1]): (int(match[2]), int(match[3])) for match in found}
    return ranges if len(ranges) == len(found) == text.count(",") + 1 else None


def _shown(text: str, most: int = 200) -> str:
    """What somebody else wrote, for a message."""
    line = "".join(char if char.isprintable() else "?" for char in text[:most])
    return line + ("..." if len(text) > most else "")


def _named(paths: Sequence[str], most: int = 5) -> str:
    more = [f"{len(paths) - most} more"] if len(paths) > most else []
    return ", ".join([*(_shown(path) for path in paths[:most]), *more])


def of_record(record: Mapping[str, Any], known: Mapping[str, str]) -> Serving:
    """record: engine.json of a rank. known: digests of its revision's files."""
    model, env = record["model"], record.get("env") or {}
    return Serving(
        revision=str(model["revision"]),
        directory=str(model.get("engram") or ""),
        rule=str(record.get("engine") or ""),
        tp=int(record.get("size") or 0),
        rank=int(record.get("rank") or 0),
        rows=str(env.get("SPARK_ENGRAM_ROWS") or ""),
        digests=known,
    )


# --- the machine ------------------------------------------------------------------------------------------------------


def problem(record: Mapping[str, Any]) -> str:
    """The same of the unit of this engine.json and what is on the node now. A record of rows that is not ours is not judged here."""
    try:
        base, revision = Path(record["model"]["root"]), str(record["model"]["revision"])
        serving = of_record(record, digests(base, revision))
    except NOT_OURS:
        return ""  # it serves no revision of ours
    successor = _replaced_by(base, revision)
    if successor:
        return f"revision {revision} is being replaced in place by {_shown(successor)}, which has not ended: files of it are gone"
    model = base / "revisions" / revision
    directory = Path(serving.directory) if serving.directory else model
    wrong = _unread(model, _sliced(base, revision))
    if wrong:
        return wrong
    if serving.directory and serving.rows and not os.path.exists(directory / LOCAL):
        return f"{directory} has no {LOCAL}, and the engine is told to read the rows {serving.rows} there"
    return unsafe(serving, _local(directory / LOCAL), directory)


def _replaced_by(base: Path, revision: str) -> str:
    """The revision that this one is taken apart for, or an empty text. Its receipt goes first, and is in the record until that has ended."""
    begun = _read(base / "replacing.json")
    receipt = begun.get("receipt")
    ours = isinstance(receipt, dict) and receipt.get("revision") == revision
    gone = not os.path.exists(base / "receipts" / f"{revision}.json")
    return str(begun.get("new") or "another") if ours and gone else ""


def _sliced(base: Path, revision: str) -> list[str]:
    """Files of a revision that may be slices, by its receipt. Where that cannot be used, those of its manifest that have holes."""
    place = base / "receipts" / f"{revision}.json"
    receipt = _read(place)
    sliced = receipt.get("sliced", [])
    if isinstance(receipt.get("files"), list) and isinstance(sliced, list):
        return [str(path) for path in sliced]
    if not os.path.lexists(place):
        return []
    model = base / "revisions" / revision
    return [path for path in _digests(_read(base / "manifests" / f"{revision}.json")) if _sparse(model / path)]


def _unread(model: Path, sliced: Sequence[str]) -> str:
    """Why the holes of these files of a revision may be read as if they were data, or an empty text.

    A whole shard that is to become a slice has none.
    """
    local = _local(model / LOCAL)
    told = local.digests if local else {}
    untold = [path for path in sliced if path not in told and _holes(model / path)]
    if untold:
        return f"{model} has slices of {_named(untold)}, and no {LOCAL} says which of their rows are there"
    alone = [path for path in told if _sparse(model / path)] if local and local.placement == "directory" else []
    if alone:
        return f"{model} has slices of {_named(alone)} that by its {LOCAL} hold rows alone: the other weights in them are holes"
    return ""


def _holes(path: Path) -> bool:
    """Also of a file that is not there, or whose name no file can have."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return True
    return found.st_blocks * 512 < found.st_size


def _sparse(path: Path) -> bool:
    """Not of a file that is not there."""
    try:
        return path.stat().st_size >= _PAGE and _holes(path)
    except (OSError, ValueError):
        return False


def digests(base: Path, revision: str) -> dict[str, str]:
    """Of the whole files of a revision, by path: also of shards that are slices there, which its receipt does not name.

    base: directory of the checkpoint. What cannot be read says nothing.
    """
    places = (
        base / "manifests" / f"{revision}.json",
        base / "revisions" / revision / LOCAL,
        base / "receipts" / f"{revision}.json",
    )
    return {path: digest for place in places for path, digest in _digests(_read(place)).items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(path).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _bytes(path: Path) -> bytes:
    """Of a file, and of nothing that a start could wait for or that has no end. Raises OSError, ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_size <= _LIMIT:
        with os.fdopen(descriptor, "rb") as handle:
            return handle.read(_LIMIT)
    os.close(descriptor)
    raise ValueError(f"{path} is no file, or one of more than {_LIMIT} bytes")


def _digests(held: Mapping[str, Any]) -> dict[str, str]:
    """Of the files that a manifest, a receipt or engram-local.json names."""
    try:
        return {str(item["path"]): str(item["digest"]) for item in held["files"]}
    except NOT_OURS:
        return {}


def _local(path: Path) -> Local | None:
    """None where nothing is there, or nothing of ours."""
    held = _read(path)
    try:
        return Local(
            revision=str(held["revision"]),
            rows=rows_string(held["layers"]),
            rule=str(held["rule"]),
            tp=int(held["tp_size"]),
            rank=int(held["rank"]),
            digests=_digests(held),
            placement=str(held.get("placement") or ""),
        )
    except NOT_OURS:
        return None


def main(argv: Sequence[str]) -> int:
    """0: the engine may start. 1: it may not, and the journal has the reason."""
    if len(argv) != 1:
        sys.stderr.write("usage: engine-rows.py RECORD\n")
        return 2
    found = problem(_read(Path(argv[0])))
    if found:
        sys.stderr.write(f"engine-rows: {found}. Cure: {_CURE}\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
