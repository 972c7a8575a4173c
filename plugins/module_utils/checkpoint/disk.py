# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of this node as a place to fetch from, with the face of a connection: one transfer for network and disk."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from .http1 import Answer, BrokenError


class DiskReader:
    """Answers a ranged GET from the file that the target names. What was read does not stay in the page cache."""

    def __init__(self) -> None:
        self.reusable = True
        self._path = ""
        self._descriptor = -1
        self._position = self._end = 0

    def get(self, target: str, headers: Mapping[str, str]) -> Answer:
        """Raises BrokenError when the file cannot be read; another place is asked then."""
        path = unquote(target)
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("Range", ""))
        try:
            if path != self._path:
                self.close()
                self._descriptor, self._path = os.open(path, os.O_RDONLY | os.O_CLOEXEC), path
            size = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise BrokenError(f"cannot read {path}: {error.strerror}") from error
        self._position, last = (int(match[1]), int(match[2])) if match else (0, size - 1)
        self._end = min(size, last + 1)
        length = max(0, self._end - self._position)
        return Answer(
            206,
            {
                "content-range": f"bytes {self._position}-{self._end - 1}/{size}",
                "content-length": str(length),
            },
        )

    def some(self, view: memoryview) -> int:
        try:
            count = os.preadv(self._descriptor, [view[: self._end - self._position]], self._position)
        except OSError as error:
            raise BrokenError(f"cannot read {self._path}: {error.strerror}") from error
        if not count:
            raise BrokenError(f"{self._path} is shorter than it was")
        with contextlib.suppress(OSError):
            os.posix_fadvise(self._descriptor, self._position, count, os.POSIX_FADV_DONTNEED)
        self._position += count
        return count

    def text(self) -> bytes:
        return b""

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._path = -1, ""


def address(path: Path) -> str:
    """The address of a file for a Source of kind disk."""
    return path.absolute().as_uri()
