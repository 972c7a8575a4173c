# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at the Engram rows of a node for their checks: as recorded, or by reading every row again."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..host import open_regular, read_text
from ..report.checks import Check
from . import engram, row_again, row_info, safetensors
from .hashing import file_digest
from .layout import Layout
from .manifest import ManifestError, name_problem
from .objects import INDEX
from .options import range_problems
from .rate import Bucket
from .receipt import ReceiptError
from .row_layout import shards, table_places
from .row_place import RowPlace, directory_problem, place_of
from .row_plan import RowPlanError
from .row_state import RowState, content_key
from .row_survey import block_of, read_state, stat_of
from .runtime import load_crc64
from .survey import current_revision, read_receipt
from .weight_index import INDEX_LIMIT, WeightIndexError, engram_places


def information(options: Mapping[str, Any]) -> tuple[list[Check], dict[str, Any]]:
    """Checks and state. Raises ManifestError when an option cannot be, HostError when the disk cannot be read."""
    problems = [name_problem(options["name"]), name_problem(options["revision"]) if options["revision"] else ""]
    problems += range_problems(dict(options))
    if any(problems):
        raise ManifestError("; ".join(problem for problem in problems if problem))
    layout = Layout(options["root"], options["name"])
    misplaced = directory_problem(layout, options["directory"] or "") if options["placement"] == "directory" else ""
    if misplaced:
        raise ManifestError(misplaced)
    revision = options["revision"] or current_revision(layout)
    wanted = row_info.Wanted(
        node=options["node"],
        revision=revision,
        placement=options["placement"],
        rule=options["rule"],
        tp=options["tensor_parallel"],
        rank=options["rank"],
    )
    place = place_of(layout, revision or ".none", options["placement"], options["directory"] or "")
    model = layout.revision(revision or ".none")
    try:
        config = _config(wanted, model)
        wanted = _with_rows(wanted, config, _digests(layout, wanted.revision))
        wanted = replace(wanted, places=_places(config, (model / INDEX, place.target(INDEX))))
        seen = _seen(wanted, place, model, config, options)
    except (ManifestError, RowPlanError, WeightIndexError, engram.EngramError) as error:
        seen = row_info.Seen(place.directory, problem=str(error))
    found = row_info.checks(wanted, seen)
    return found, row_info.state_of(wanted, seen, found[0].ok)


def _digests(layout: Layout, revision: str) -> dict[str, str]:
    """Of the revision's files, by its receipt; what is wrong with that is told by the checks on the files."""
    try:
        receipt = read_receipt(layout, revision) if revision else None
    except ReceiptError:
        return {}
    return {entry.path: entry.digest for entry in receipt.files} if receipt else {}


def _config(wanted: row_info.Wanted, model: Path) -> Any:
    """Of the revision. Raises ManifestError."""
    if not wanted.revision:
        raise ManifestError("no revision is active, so there is no config.json that says which rows are wanted")
    text = read_text(model / "config.json")
    if text is None:
        raise ManifestError(f"{model / 'config.json'} is missing")
    try:
        return json.loads(text)
    except ValueError as error:
        raise ManifestError(f"{model / 'config.json'} is not JSON: {error}") from error
    except RecursionError:
        raise ManifestError(f"{model / 'config.json'} is nested too deeply") from None


def _places(config: Any, indexes: Iterable[Path]) -> dict[str, str]:
    """Which file each tensor of the tables is in, by the first of these indexes that says so; empty where none does."""
    for path in indexes:
        with contextlib.suppress(OSError, WeightIndexError, RowPlanError):
            return table_places(config, engram_places(_index_bytes(path)))
    return {}


def _index_bytes(path: Path) -> bytes:
    """Raises OSError, WeightIndexError."""
    with os.fdopen(open_regular(path), "rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        if size > INDEX_LIMIT:
            raise WeightIndexError(f"{INDEX}: {size} bytes, expected at most {INDEX_LIMIT}")
        return handle.read(INDEX_LIMIT + 1)


def _with_rows(wanted: row_info.Wanted, config: Any, digests: Mapping[str, str]) -> row_info.Wanted:
    split = engram.ranges(config, wanted.tp, wanted.rule)
    if not 0 <= wanted.rank < wanted.tp:
        raise ManifestError(f"rank is {wanted.rank}, expected 0 to {wanted.tp - 1}")
    parsed = engram.parse(config)
    return replace(
        wanted,
        digests=digests,
        layers={layer: (low, high) for layer, (low, high) in split[wanted.rank].items()},
        tables={str(layer): rows for layer, rows in zip(parsed.layers, parsed.rows, strict=True)},
    )


def _seen(
    wanted: row_info.Wanted, place: RowPlace, model: Path, config: Any, options: Mapping[str, Any]
) -> row_info.Seen:
    unused = _unused(place, wanted, options["directory"] or "")
    if wanted.placement == "full":
        return row_info.Seen(model, broken=_broken(model, config), unused=unused)
    state, problem = read_state(place)
    names = [*(file.path for file in state.files), INDEX] if state else []
    stats = {name: stat_of(place.target(name)) for name in names}
    again = options["verify"] == "full" and state is not None
    return row_info.Seen(
        directory=place.directory,
        state=state,
        found={name: stat for name, stat in stats.items() if stat},
        block=block_of(place.directory),
        damaged=_wrong(place, state, options) if state else {},
        read_again=again,
        named=wanted.placement == "directory" and not place.usual,
        problem=problem,
        unused=unused,
    )


def _unused(place: RowPlace, wanted: row_info.Wanted, named: str) -> tuple[str, int] | None:
    """The directory that slices lie in, the named one or the usual one, when this placement does not use it."""
    for one in (place_of(place.layout, wanted.revision, "directory", directory) for directory in (named, "")):
        if one.directory == place.directory and wanted.placement == "directory":
            continue
        state, _problem = read_state(one)
        stats = [stat_of(one.target(file.path)) for file in state.files] if state else []
        size = sum(stat.allocated for stat in stats if stat)
        if size:
            return str(one.directory), size
    return None


def _broken(model: Path, config: Any) -> list[str]:
    """What is wrong with the shards with tables where all rows are to be in them."""
    try:
        index = _index_bytes(model / INDEX)
    except OSError as error:
        raise ManifestError(f"cannot read {error.filename}: {error.strerror}") from error
    found = [_not_whole(model / name, name) for name in shards(config, engram_places(index))]
    return [text for text in found if text]


def _not_whole(path: Path, name: str) -> str:
    """What is wrong with a shard, by its blocks and its own header, or an empty text."""
    try:
        with os.fdopen(open_regular(path), "rb") as handle:
            stat = os.fstat(handle.fileno())
            if stat.st_blocks * 512 < stat.st_size:
                return f"{name} has holes, and the placement is full: rows in them read as zeros"
            row_again.header(handle.fileno(), stat.st_size, name)
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    except safetensors.HeaderError as error:
        return str(error)
    return ""


# --- reading again ----------------------------------------------------------------------------------------------------


def _wrong(place: RowPlace, state: RowState, options: Mapping[str, Any]) -> dict[str, str]:
    """What is not as it was verified, by its name in engram-local.json. The index is small, so it is always read."""
    if options["verify"] != "full":
        return _wrong_index(place.target(INDEX), state, options["python_path"])
    crc = row_again.reader(options["python_path"])
    rows = row_again.damaged(place.directory, state, crc, Bucket(options["rate_limit"]))
    return {**_wrong_index(place.target(INDEX), state, options["python_path"]), **rows}


def _wrong_index(path: Path, state: RowState, python_path: str) -> dict[str, str]:
    """By its SHA-256, or in a record without one by what was planned, as far as that is a checksum that can be computed here."""
    content = state.digests.get(content_key(INDEX), "")
    expected, stat = content or state.digests.get(INDEX, ""), stat_of(path)
    if not expected or stat is None:
        return {}
    if stat.size > INDEX_LIMIT:
        return {INDEX: f"{stat.size} bytes, expected at most {INDEX_LIMIT}"}
    try:
        digest = file_digest(path, expected, None if content else load_crc64(python_path))
    except LookupError:
        return {}
    except OSError as error:
        return {INDEX: f"cannot be read again: {error.strerror}"}
    return {} if digest == expected else {INDEX: f"digest {digest} instead of {expected}"}
