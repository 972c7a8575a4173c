# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a staging that may be given away: those that its journal or its receipt says were verified, as they were then."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from . import journal
from .layout import Layout
from .receipt import Entry, ReceiptError, Stat
from .receipt import parse as parse_receipt


class Shelf:
    """digests: of the files that may be given away, by path. Many threads may ask."""

    def __init__(
        self,
        layout: Layout,
        revision: str,
        digests: Mapping[str, str],
        pace_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout, self._revision, self._digests = layout, revision, digests
        self._pace, self._clock = pace_s, clock
        self._lock = threading.Lock()
        self._entries: dict[str, set[Entry]] = {}
        self._failed: set[str] = set()
        self._given: set[str] = set()
        self._looked_at = float("-inf")
        self._journal_at = 0
        self._receipt_stamp = 0

    def open(self, path: str) -> BinaryIO | None:
        """A finished file to read, or None when there is none."""
        with self._lock:
            self._look()
            entries = tuple(self._entries.get(path, ()))
        if not entries:
            return None
        staging, revision = self._layout.staging(self._revision), self._layout.revision(self._revision)
        # The staging directory again at the end: it becomes the revision's by a rename, which may come in between.
        for place in (staging, revision, staging, revision):
            file = _opened(place / path, entries)
            if file:
                self._given.add(path)
                return file
        return None

    def failed(self, path: str) -> bool:
        """Whether the staging that runs has given this file up. Nodes that wait for each other's would wait for ever."""
        with self._lock:
            self._look()
            return path in self._failed

    def release(self) -> None:
        """Drop what is in the page cache of the files that were given away."""
        for path in self._given:
            file = self.open(path)
            if file:
                with file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _look(self) -> None:
        """Read what is new; not at every request, of which there are many for files that are not there yet."""
        now = self._clock()
        if now - self._looked_at < self._pace:
            return
        self._looked_at = now
        with contextlib.suppress(OSError, ValueError, KeyError):
            self._read_journal(self._layout.journal(self._revision))
        with contextlib.suppress(OSError, ReceiptError):
            self._read_receipt(self._layout.receipt(self._revision))

    def _read_journal(self, path: Path) -> None:
        with path.open("rb") as handle:
            if os.fstat(handle.fileno()).st_size < self._journal_at:
                self._journal_at = 0
            handle.seek(self._journal_at)
            fresh = handle.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._journal_at += len(whole)
        files = []
        for line in whole.splitlines():
            if line.startswith(b'{"line": "boot"'):
                self._failed.clear()  # another run begins
            elif line.startswith(b'{"line": "failed"'):
                self._failed.add(str(json.loads(line)["path"]))
            elif line.startswith(b'{"line": "file"'):
                files.append(line.decode(errors="replace"))
        self._know(journal.parse("\n".join(files), "").files)

    def _read_receipt(self, path: Path) -> None:
        stamp = path.stat().st_mtime_ns
        if stamp != self._receipt_stamp:
            receipt = parse_receipt(path.read_text(encoding="utf-8"), str(path))
            self._receipt_stamp = stamp
            self._know({entry.path: entry for entry in receipt.files})

    def _know(self, entries: Mapping[str, Entry]) -> None:
        for path, entry in entries.items():
            if self._digests.get(path) == entry.digest:
                self._entries.setdefault(path, set()).add(entry)


def _opened(path: Path, entries: tuple[Entry, ...]) -> BinaryIO | None:
    """The file, if it is one that was verified as it is now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    found = os.fstat(descriptor)
    known = Stat(found.st_size, found.st_mtime_ns)
    if stat.S_ISREG(found.st_mode) and any(entry.matches(known) for entry in entries):
        return os.fdopen(descriptor, "rb", buffering=0)
    os.close(descriptor)
    return None
