# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts what an older state of a file has into the partial file of the new one: by reference where the file system can.

Nothing here is trusted: the mover reads every chunk back and compares it with its checksum before it counts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from .parts import Part
from .sink import Sink

#: ioctl(2): make this file share all blocks of another one (linux/fs.h, FICLONE). File systems without it refuse.
FICLONE = 0x40049409
_NO_COPY = (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
_WINDOW = 64 << 20


def seed(source: Path, partial: Path, size: int, parts: Iterable[Part]) -> str:
    """Bring these parts of source into the partial file, which gets its full size. Says how: ``shared`` or ``copied``.

    Raises OSError.
    """
    partial.parent.mkdir(parents=True, exist_ok=True)
    fresh = not partial.exists()
    with contextlib.closing(_Reading(source)) as reading:
        if fresh and _clone(reading.descriptor, partial):
            Sink(partial, size).close()
            return "shared"
        sink = Sink(partial, size, direct=False)
        try:
            descriptor = os.open(partial, os.O_RDWR)
            try:
                for part in parts:
                    _copy(reading.descriptor, descriptor, part, sink)
            finally:
                os.close(descriptor)
        finally:
            sink.close()
    return "copied"


class _Reading:
    """A file to read, whose pages do not stay in the page cache."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def close(self) -> None:
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(self.descriptor)


def _clone(source: int, partial: Path) -> bool:
    """Whether the partial file could be made of the source's blocks."""
    descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    try:
        fcntl.ioctl(descriptor, FICLONE, source)
    except OSError:
        partial.unlink()
        return False
    finally:
        os.close(descriptor)
    return True


def _copy(source: int, target: int, part: Part, sink: Sink) -> None:
    """Copy one part inside the kernel, or through this process where the file system cannot; then let its pages go."""
    offset = part.offset
    while offset < part.end:
        count = min(_WINDOW, part.end - offset)
        try:
            done = os.copy_file_range(source, target, count, offset, offset)
        except OSError as error:
            if error.errno not in _NO_COPY:
                raise
            done = os.pwrite(target, os.pread(source, min(count, 4 << 20), offset), offset)
        if not done:
            return  # the source is shorter than it was: the chunk will not have its checksum
        offset += done
    sink.release(part.offset, part.length)
    os.posix_fadvise(source, part.offset, part.length, os.POSIX_FADV_DONTNEED)
