# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at what a node holds of Engram rows, and of whole shards that rows can be taken from. Reads only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..host import read_text
from . import journal, survey
from .budget import Reclaimable, reclaimable
from .decide import Disk
from .hashing import file_digest
from .journal import Begun
from .layout import Layout
from .manifest import PARTIAL, File
from .objects import INDEX
from .receipt import Stat
from .row_place import RowPlace
from .row_state import NAME, RowState, RowStateError, parse
from .survey import chunks, disk_of, receipts

PROC = Path("/proc")


@dataclass(frozen=True)
class Slices:
    """A directory with slices: what its engram-local.json says, and what lies there by path.

    chunks: checksums of the whole objects that they are slices of, by path, where they are known. journaled: by path what
    engram-local.json said of a file that stayed, where a run removed it and did not end.
    """

    directory: Path
    state: RowState | None = None
    found: Mapping[str, Stat] = field(default_factory=dict)
    chunks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    journaled: Mapping[str, RowState] = field(default_factory=dict)

    @property
    def states(self) -> tuple[RowState, ...]:
        """Everything that vouches for files here."""
        return (self.state,) if self.state else tuple(self.journaled.values())

    def of(self, path: str) -> RowState | None:
        """What vouches for this file, if anything does."""
        return self.state or self.journaled.get(path)


@dataclass(frozen=True)
class RowSurvey:
    """here: the place of the wanted slices. others: those of other revisions. begun: files that an earlier run did not finish.

    wholes: files of this node that hold a shard whole, by its path. busy: files here that are in use, see row_serving.in_use. ours: files here that are
    slices of ours whether or not anything says so. content: SHA-256 of the index here, where its size is right. damaged: what was read
    again and is not as recorded, by damaged_key.
    """

    disk: Disk
    block: int
    here: Slices
    others: tuple[Slices, ...] = ()
    begun: Mapping[str, Begun] = field(default_factory=dict)
    wholes: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    ours: frozenset[str] = frozenset()
    content: str = ""
    problem: str = ""
    damaged: Mapping[str, str] = field(default_factory=dict)

    @property
    def holders(self) -> tuple[Slices, ...]:
        """Every directory with slices."""
        return (self.here, *self.others)

    def wrong(self, directory: Path, path: str) -> frozenset[str]:
        """Names in engram-local.json of the extents of this file that are not as recorded; its path alone when all of it is wrong.

        What was found in a directory that has the file no more was carried over, as a replacement in place does, and counts wherever it is.
        """
        holders = {str(one.directory): path in one.found for one in self.holders}
        return frozenset(
            name
            for place, name in (split_key(key, path) for key in self.damaged)
            if name and (place == str(directory) or not _within(place, holders) or not holders.get(place, True))
        )


def damaged_key(directory: Path, key: str) -> str:
    """How what is not as recorded is told. key: as engram-local.json of this directory names it."""
    return f"{directory}/{key}"


def _within(place: str, holders: Iterable[str]) -> bool:
    """Whether it is one of these directories, or below one: then this is another file of the same name."""
    return any(place == holder or place.startswith(f"{holder}/") for holder in holders)


def split_key(key: str, path: str) -> tuple[str, str]:
    """The directory and the name in engram-local.json, of one that damaged_key made of this file; empty texts for another file's."""
    place, found, rest = f"{key}:".partition(f"/{path}:")
    return (place, f"{path}:{rest}".rstrip(":")) if found else ("", "")


def look(place: RowPlace, files: Sequence[File], whole_directories: Iterable[str] = ()) -> RowSurvey:
    """files: the shards, and the index where that is wanted, as planned. whole_directories: where else whole shards may lie."""
    paths = [file.path for file in files]
    problem, state = "", None
    try:
        state = _state(place)
    except RowStateError as error:
        problem = str(error)
    layout = place.layout
    record = journal.parse(read_text(place.journal) or "", journal.boot_id())
    journaled = {} if state else _journaled(place, record)
    states = [state] if state else journaled.values()
    known = {path: found for one in states for path, found in _chunks(place, one).items()}
    here = Slices(place.directory, state, _found(place.directory, paths), known, journaled)
    others = (_slices(RowPlace(layout, directory), paths) for directory in _holders(layout))
    return RowSurvey(
        disk=disk_of(place.directory),
        block=block_of(place.directory),
        here=here,
        others=tuple(slices for slices in others if slices.state and slices.directory != place.directory),
        begun=record.begun,
        wholes=_wholes(place, files, whole_directories),
        ours=_ours(place, here.found),
        content=_content(here, files),
        problem=problem,
    )


def reclaimable_beside(place: RowPlace, revision: str, disk: Disk, linked: frozenset[str]) -> Reclaimable:
    """What could be deleted of the checkpoint beside this revision, where the rows are to lie. linked: see budget.reclaimable."""
    of_checkpoint = survey.look(place.layout, revision)
    if disk.device != of_checkpoint.disk.device:
        return Reclaimable()
    return reclaimable(revision, of_checkpoint, linked)


def _state(place: RowPlace) -> RowState | None:
    text = read_text(place.record)
    return None if text is None else parse(text, str(place.record))


def read_state(place: RowPlace) -> tuple[RowState | None, str]:
    """What engram-local.json says, and why it cannot be used."""
    try:
        return _state(place), ""
    except RowStateError as error:
        return None, str(error)


def _journaled(place: RowPlace, record: journal.Record) -> dict[str, RowState]:
    """What the record of this place said of files that stayed when it was removed."""
    found = {}
    for path, staying in record.staying.items():
        with contextlib.suppress(RowStateError):
            if staying.directory == str(place.directory):
                found[path] = parse(staying.record, path)
    return found


def _holders(layout: Layout) -> list[Path]:
    """Directories with slices: of revisions, also of one that is being replaced in place, and of a staging that took them over.

    What vouches for their rows is engram-local.json alone, so no receipt is asked for.
    """
    places = [path for place in (layout.revisions, layout.stagings) if place.is_dir() for path in place.iterdir()]
    return sorted(path for path in places if not path.name.startswith(".") and (path / NAME).is_file())


def _slices(place: RowPlace, paths: Iterable[str]) -> Slices:
    state, _problem = read_state(place)
    return Slices(place.directory, state, _found(place.directory, paths) if state else {}, _chunks(place, state))


def _chunks(place: RowPlace, state: RowState | None) -> dict[str, tuple[str, ...]]:
    return chunks(place.layout, state.revision, {file.path: file.digest for file in state.files}) if state else {}


def _found(directory: Path, paths: Iterable[str]) -> dict[str, Stat]:
    """What lies there of these files and of their partial ones."""
    stats = {name: stat_of(directory / name) for path in paths for name in (path, path + PARTIAL)}
    return {name: stat for name, stat in stats.items() if stat is not None}


def _ours(place: RowPlace, found: Mapping[str, Stat]) -> frozenset[str]:
    """Sparse files in the usual directory. A file without holes is a whole shard that somebody put there, as what a link leads to may be."""
    if not place.usual:
        return frozenset()
    return frozenset(
        path for path, stat in found.items() if stat.allocated < stat.size and not place.target(path).is_symlink()
    )


def _content(here: Slices, files: Iterable[File]) -> str:
    size = next((file.size for file in files if file.path == INDEX), -1)
    stat = here.found.get(INDEX)
    return content_of(here.directory / INDEX) if stat is not None and stat.size == size else ""


def content_of(path: Path) -> str:
    """``sha256:hex`` of a small file, empty where it cannot be read."""
    try:
        return file_digest(path, "sha256:", None)
    except OSError:
        return ""


def stat_of(path: Path) -> Stat | None:
    try:
        stat = path.lstat()
    except OSError:
        return None
    return Stat(stat.st_size, stat.st_mtime_ns, stat.st_nlink, stat.st_blocks * 512, stat.st_ino, stat.st_dev)


def block_of(path: Path) -> int:
    """Block size of the file system that will hold this path."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return os.statvfs(path).f_frsize


# --- whole shards -----------------------------------------------------------------------------------------------------


def _wholes(place: RowPlace, files: Iterable[File], directories: Iterable[str]) -> dict[str, tuple[Path, ...]]:
    """Files that hold a shard whole: first those that a receipt vouches for, then those that only look like it."""
    wanted = {file.path: file for file in files}
    found: dict[str, list[Path]] = {path: [] for path in wanted}
    for receipt in receipts(place.layout):
        for entry in receipt.files:
            path = place.layout.revision(receipt.revision) / entry.path
            same = entry.path in wanted and entry.digest == wanted[entry.path].digest
            if same and entry.matches(stat_of(path)):
                found[entry.path].append(path)
    for directory in [str(place.directory), *directories]:
        for file in wanted.values():
            path, stat = Path(directory) / file.path, stat_of(Path(directory) / file.path)
            # With holes it would be a slice, whose holes read as zeros.
            if stat and stat.size == file.size and stat.allocated >= file.size:
                found[file.path].append(path)
    return {path: tuple(dict.fromkeys(places)) for path, places in found.items() if places}


# --- files that are in use --------------------------------------------------------------------------------------------


def busy(found: Mapping[str, Stat]) -> frozenset[str]:
    """Which of these files another process has open or mapped."""
    keys = {(stat.device, stat.inode): path for path, stat in found.items() if not path.endswith(PARTIAL)}
    return frozenset(keys[key] for key in _open_files(frozenset(keys))) if keys else frozenset()


def _open_files(wanted: frozenset[tuple[int, int]]) -> set[tuple[int, int]]:
    """Which of these files, by device and inode, another process has open or mapped. A process that ends meanwhile has none."""
    found: set[tuple[int, int]] = set()
    for process in PROC.iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            found |= wanted & (_descriptors(process) | _mappings(process))
    return found


def _descriptors(process: Path) -> set[tuple[int, int]]:
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                stat = descriptor.stat()
                found.add((stat.st_dev, stat.st_ino))
    return found


def _mappings(process: Path) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    try:
        lines = (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        fields = line.split()
        major, _colon, minor = fields[3].partition(":")
        if fields[4] != "0":
            found.add((os.makedev(int(major, 16), int(minor, 16)), int(fields[4])))
    return found
