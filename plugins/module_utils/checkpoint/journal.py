# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a staging: one line for every part and every file that is on the disk, so that a killed run costs little.

Lines are appended without a sync. What a process wrote survives its death in the kernel; a crash of the machine is told by
the boot id, and parts from before it are read back and compared with their checksum. A file's line is written after fsync.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .manifest import File
from .parts import Done, Part
from .receipt import Entry
from .stretches import without

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Begun:
    """A file in transfer. check: algorithm of the parts' checksums.

    trusted: parts that this boot of the machine wrote. doubtful: those that have to be read back. proved: bytes of them that were held
    to something else than themselves, see Journal.proved.
    """

    size: int
    digest: str
    check: str
    trusted: tuple[Done, ...] = ()
    doubtful: tuple[Done, ...] = ()
    proved: tuple[Part, ...] = ()

    def fits(self, file: File, check: str) -> bool:
        """Whether parts of it are parts of this file: the digest says, an ETag may change with the bytes staying."""
        return (self.size, self.digest, self.check) == (file.size, file.digest, check)


@dataclass(frozen=True)
class Staying:
    """A file that is not moved, while what vouches for it is gone. directory: where it lies. record: what vouched for it."""

    directory: str
    record: str


@dataclass(frozen=True)
class Record:
    """What a journal says. files: finished ones. begun: the others. staying: files of which another record said that they are whole."""

    files: Mapping[str, Entry] = field(default_factory=dict)
    begun: Mapping[str, Begun] = field(default_factory=dict)
    staying: Mapping[str, Staying] = field(default_factory=dict)


def boot_id() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def parse(text: str, boot: str) -> Record:
    """What these lines say on a machine of this boot id. A line that cannot be read, such as a torn last one, says nothing."""
    files: dict[str, Entry] = {}
    begun: dict[str, Begun] = {}
    staying: dict[str, Staying] = {}
    here = False
    for line in text.splitlines():
        try:
            row = json.loads(line)
            kind = row["line"]
            if kind == "boot":
                here = bool(boot) and row["id"] == boot
            elif kind == "begin":
                files.pop(row["path"], None)
                staying.pop(row["path"], None)
                begun[row["path"]] = Begun(int(row["size"]), str(row["digest"]), str(row["check"]))
            elif kind == "part":
                begun[row["path"]] = _with_part(begun[row["path"]], row, here)
            elif kind == "proved":
                part = Part(int(row["offset"]), int(row["length"]))
                begun[row["path"]] = replace(begun[row["path"]], proved=(*begun[row["path"]].proved, part))
            elif kind == "file":
                entry = Entry(str(row["path"]), int(row["size"]), str(row["digest"]), int(row["mtime_ns"]))
                files[entry.path] = entry
                begun.pop(entry.path, None)
            elif kind == "stays":
                staying[row["path"]] = Staying(str(row["directory"]), str(row["record"]))
                begun.pop(row["path"], None)
        except (ValueError, KeyError, TypeError):
            continue
    return Record(files, begun, staying)


def _with_part(begun: Begun, row: Mapping[str, Any], here: bool) -> Begun:
    done = Done(Part(int(row["offset"]), int(row["length"])), int(row["check"], 16))
    if begun.proved and done not in begun.trusted and done not in begun.doubtful:
        begun = replace(begun, proved=without(begun.proved, (done.part,)))  # other bytes than those that were proved
    if here:
        return replace(begun, trusted=(*begun.trusted, done))
    return replace(begun, doubtful=(*begun.doubtful, done))


class Journal:
    """Appends to a journal; many threads may."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        # A line torn by a crash must not swallow the next one.
        self._append({"line": "boot", "id": boot_id()}, b"\n")

    def close(self) -> None:
        os.close(self._descriptor)

    def begin(self, file: File, check: str) -> None:
        """Parts of this file follow; those before do not count any more."""
        row = {"line": "begin", "path": file.path, "size": file.size, "digest": file.digest, "check": check}
        self._append(row)

    def part(self, path: str, done: Done) -> None:
        part = done.part
        row = {"line": "part", "path": path, "offset": part.offset, "length": part.length, "check": f"{done.check:x}"}
        self._append(row)

    def proved(self, path: str, part: Part) -> None:
        """These bytes, which have their part lines, are those of the source: a digest of before says so, or a second reading."""
        self._append({"line": "proved", "path": path, "offset": part.offset, "length": part.length})

    def file(self, entry: Entry) -> None:
        """The bytes of this file are durable and verified. After this line comes the file's last rename."""
        self._append({"line": "file", **asdict(entry)})
        self.sync()

    def stays(self, path: str, directory: str, record: str) -> None:
        """This file is whole where it lies, though what says so goes until the others have come. record: what it said of this file."""
        self._append({"line": "stays", "path": path, "directory": directory, "record": record})

    def failed(self, path: str) -> None:
        """This run will not bring this file: told for neighbours that wait for it, and of no meaning to the next run."""
        with contextlib.suppress(OSError):
            self._append({"line": "failed", "path": path})

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def _append(self, row: Mapping[str, Any], start: bytes = b"") -> None:
        data = start + json.dumps(row).encode() + b"\n"
        with self._lock:
            os.write(self._descriptor, data)
