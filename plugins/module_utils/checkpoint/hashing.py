# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Digests computed while bytes go by, and of files at rest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Protocol

from .runtime import Crc

#: Bytes that are read, hashed and written at a time.
BUFFER = 1 << 20
#: Bytes after which pages are dropped from the page cache: on a node with unified memory the cache is the GPU's loss.
WINDOW = 64 << 20


class Hasher(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def digest(self) -> str:
        """``algorithm:hex``."""


class Crc64:
    def __init__(self, function: Crc) -> None:
        self._function = function
        self._value = 0

    def update(self, data: memoryview, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> str:
        return f"crc64nvme:{self._value:016x}"


class Standard:
    """One of hashlib's."""

    def __init__(self, algorithm: str) -> None:
        self._algorithm = algorithm
        self._hash = hashlib.new(algorithm, usedforsecurity=False)

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


def hasher(expected: str, crc: Crc | None) -> Hasher:
    """What computes the digest of the same kind as expected. Raises LookupError when that needs awscrt."""
    algorithm = expected.partition(":")[0]
    if algorithm == "crc64nvme":
        if crc is None:
            raise LookupError("CRC-64/NVME needs awscrt, which cannot be imported")
        return Crc64(crc)
    return Standard(algorithm) if algorithm in ("sha256", "md5") else Unchecked(expected)


def file_digest(path: Path, expected: str, crc: Crc | None) -> str:
    """The digest of a file at rest, of the same kind as expected; its pages do not stay in the page cache."""
    computed = hasher(expected, crc)
    view = memoryview(bytearray(BUFFER))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        done = dropped = 0
        while count := os.readv(descriptor, [view]):
            computed.update(view[:count])
            done += count
            if done - dropped >= WINDOW:
                os.posix_fadvise(descriptor, dropped, done - dropped, os.POSIX_FADV_DONTNEED)
                dropped = done
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return computed.digest()
