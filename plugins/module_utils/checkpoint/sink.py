# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file that parts are written into: preallocated, past the page cache where the file system allows it.

On a node with unified memory the page cache is the GPU's loss, so nothing that was written may stay in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import units
from .answers import MoveError
from .parts import Part
from .stretches import without

#: What direct writes have to be aligned to; every block device in use has blocks of 512 or 4096 bytes.
ALIGN = 4096
_PUNCH = 3  # fallocate(2): take the blocks away, the size stays
_WRITE, _WAIT = 2, 7  # sync_file_range(2): start writing; write and wait for what was started before and now


def buffer(size: int) -> memoryview:
    """Memory that direct writes can come from."""
    return memoryview(mmap.mmap(-1, size))


class Sink:
    """A partial file. direct: whether writes bypass the page cache, decided by the file system at the first one.

    keep: the only bytes that are wanted, for a slice: everything else of it is a hole, also what was there.
    """

    def __init__(self, path: Path, size: int, direct: bool = True, keep: Sequence[Part] | None = None) -> None:
        self.path, self.size, self.direct, self.keep = path, size, direct, keep
        self._buffered = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        self._direct = -1
        try:
            os.fchmod(self._buffered, 0o644)
            self._reserve()
            if direct:
                self._direct = self._open_direct()
        except OSError:
            self.close()
            raise

    def _reserve(self) -> None:
        """Take the room now: a full disk is better known before the bytes are fetched."""
        if os.fstat(self._buffered).st_size > self.size:
            os.ftruncate(self._buffered, self.size)
        if self.keep is not None:
            return self._reserve_stretches(self.keep)
        if self.size:
            os.posix_fallocate(self._buffered, 0, self.size)
        return None

    def _reserve_stretches(self, keep: Sequence[Part]) -> None:
        if os.fstat(self._buffered).st_blocks:
            for gap in without([Part(0, self.size)], keep):
                punch(self._buffered, gap)
        os.ftruncate(self._buffered, self.size)
        for part in keep:
            os.posix_fallocate(self._buffered, part.offset, part.length)

    def _open_direct(self) -> int:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_DIRECT)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            self.direct = False
            return -1

    def write(self, view: memoryview, count: int, offset: int) -> None:
        """Write count bytes of an aligned buffer; only the last ones of the file may be no multiple of a block."""
        if self.keep is not None:
            return self._write_within(view, count, offset)
        if self.direct:
            try:
                return self._write_direct(view, count, offset)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self.direct = False
        _write_all(self._buffered, view[:count], offset)
        _sync_range(self._buffered, offset, count, _WRITE)
        return None

    def _write_within(self, view: memoryview, count: int, offset: int) -> None:
        """Write into a slice, where not one byte may be written beside: whole blocks directly, edges through the page cache."""
        start = min(offset + count, -(-offset // ALIGN) * ALIGN)
        end = max(start, (offset + count) // ALIGN * ALIGN)
        aligned = self.direct and view_address(view[start - offset :]) % ALIGN == 0
        if not aligned or start == end:
            start = end = offset + count
        for low, high in ((offset, start), (end, offset + count)):
            _write_all(self._buffered, view[low - offset : high - offset], low)
        if start < end:
            self._write_blocks(view[start - offset : end - offset], start)

    def _write_blocks(self, view: memoryview, offset: int) -> None:
        try:
            _write_all(self._direct, view, offset)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.direct = False
            _write_all(self._buffered, view, offset)

    def _write_direct(self, view: memoryview, count: int, offset: int) -> None:
        whole = -(-count // ALIGN) * ALIGN
        if whole != count:
            view[count:whole] = bytes(whole - count)  # beyond the file's end, cut off by finish()
        _write_all(self._direct, view[:whole], offset)

    def release(self, offset: int, length: int) -> None:
        """Let go of the pages of a part: written out first, as dirty pages cannot be dropped."""
        if not self.direct or self.keep is not None:
            _sync_range(self._buffered, offset, length, _WAIT)
        os.posix_fadvise(self._buffered, offset, length, os.POSIX_FADV_DONTNEED)

    def pieces(self, view: memoryview, offset: int, length: int) -> Iterator[memoryview]:
        """The bytes of a part, as much at a time as the view has room for; less than all where the file is shorter."""
        end = offset + length
        while offset < end:
            count = os.preadv(self._buffered, [view[: end - offset]], offset)
            if not count:
                return
            yield view[:count]
            offset += count

    def finish(self) -> None:
        """Exact size, durable, out of the page cache."""
        if os.fstat(self._buffered).st_size != self.size:
            os.ftruncate(self._buffered, self.size)
        os.fsync(self._buffered)
        os.posix_fadvise(self._buffered, 0, 0, os.POSIX_FADV_DONTNEED)

    def mtime_ns(self) -> int:
        return os.fstat(self._buffered).st_mtime_ns

    def close(self) -> None:
        for descriptor in (self._direct, self._buffered):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._direct = self._buffered = -1


def disk_error(path: Path, size: int, error: OSError) -> MoveError:
    """What to tell of a disk that refused; a full one ends the other files too."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    cure = f"; the file has {units.human(size)}. What came is kept: free space and run again" if full else ""
    return MoveError(f"cannot write {path}: {error.strerror}{cure}", disk_full=full)


def _write_all(descriptor: int, view: memoryview, offset: int) -> None:
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)


def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    library.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return library


_LIBC = _libc()


def _sync_range(descriptor: int, offset: int, length: int, flags: int) -> None:
    """sync_file_range(2). It is a hint here: fsync says whether the bytes are safe, so what it cannot do is left to that."""
    _LIBC.sync_file_range(descriptor, offset, length, flags)


def punch(descriptor: int, part: Part) -> None:
    """Make this part of a file a hole, to the byte: of a block that is not wholly in it only the bytes that are become zero.

    Raises OSError; EOPNOTSUPP where the file system cannot.
    """
    while _LIBC.fallocate(descriptor, _PUNCH, part.offset, part.length):
        number = ctypes.get_errno()
        if number == errno.EOPNOTSUPP:
            raise OSError(
                number,
                "its file system cannot make holes in a file; delete the file and run again, which makes it anew",
            )
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


def view_address(view: memoryview) -> int:
    """Where the bytes of a view lie in memory; 1, which is aligned to nothing, for an empty one."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else 1
