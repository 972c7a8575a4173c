# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Digests computed while bytes go by, and of files at rest."""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path
from typing import Protocol

from ..host import open_regular
from .manifest import DIGEST_LENGTH
from .rate import Bucket
from .runtime import AWSCRT, Crc, find_crc

#: Bytes that are read, hashed and written at a time.
BUFFER = 1 << 20
#: Bytes after which pages are dropped from the page cache: on a node with unified memory the cache is the GPU's loss.
WINDOW = 64 << 20


class Hasher(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def digest(self) -> str:
        """``algorithm:hex``."""


class Cyclic:
    """A CRC, by its function of data and the value so far."""

    def __init__(self, algorithm: str, function: Crc) -> None:
        self._algorithm = algorithm
        self._function = function
        self._value = 0

    def update(self, data: memoryview, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> str:
        return f"{self._algorithm}:{self._value:0{DIGEST_LENGTH[self._algorithm]}x}"


class Standard:
    """One of hashlib's, under its own name or that of what it is used for. start: bytes that go before the file's."""

    def __init__(self, algorithm: str, function: str = "", start: bytes = b"") -> None:
        self._algorithm = algorithm
        self._hash = hashlib.new(function or algorithm, start, usedforsecurity=False)

    def update(self, data: memoryview, /) -> None:
        self._hash.update(data)

    def digest(self) -> str:
        return f"{self._algorithm}:{self._hash.hexdigest()}"


class Unchecked:
    """For an object of which the store gives no checksum: agrees with whatever was expected."""

    def __init__(self, expected: str) -> None:
        self._expected = expected

    def update(self, data: memoryview, /) -> None:
        """Nothing to compute."""

    def digest(self) -> str:
        return self._expected


def hasher(expected: str, crc: Crc | None, size: int | None = None) -> Hasher:
    """What computes the digest of the same kind as expected. crc: CRC-64/NVME. size: of the file, which a git blob id needs.

    Raises LookupError when that needs awscrt, which is not there.
    """
    algorithm = expected.partition(":")[0]
    if algorithm in ("sha256", "md5"):
        return Standard(algorithm)
    if algorithm == "gitblob":
        if size is None:
            raise ValueError("a git blob id is computed from the size too")
        return Standard(algorithm, "sha1", b"blob %d\0" % size)
    if algorithm == "crc32":
        return Cyclic(algorithm, zlib.crc32)
    if algorithm in AWSCRT:
        function = crc if algorithm == "crc64nvme" else find_crc(algorithm)
        if function is None:
            raise LookupError(f"{algorithm} needs awscrt, which cannot be imported")
        return Cyclic(algorithm, function)
    return Unchecked(expected)


def file_digest(path: Path, expected: str, crc: Crc | None, bucket: Bucket | None = None) -> str:
    """The digest of a file at rest, of the same kind as expected; its pages do not stay in the page cache. Raises OSError, LookupError."""
    view = memoryview(bytearray(BUFFER))
    descriptor = open_regular(path)
    try:
        computed = hasher(expected, crc, os.fstat(descriptor).st_size)
        done = dropped = 0
        while count := os.readv(descriptor, [view]):
            computed.update(view[:count])
            done += count
            if bucket:
                bucket.took(count)
            if done - dropped >= WINDOW:
                os.posix_fadvise(descriptor, dropped, done - dropped, os.POSIX_FADV_DONTNEED)
                dropped = done
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return computed.digest()
