# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a file once for everything that is to be known of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.crc64 import combine_all
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.hashing import WINDOW
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.publish import Local, Part
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.published import Digests
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.runtime import Crc, find_crc
from ansible_collections.gb10.ring.plugins.plugin_utils.local_files import LocalError


@dataclass(frozen=True)
class Piece:
    """The bytes of one part and their CRC-64/NVME."""

    part: Part
    data: bytes
    crc64nvme: int

    def md5(self) -> bytes:
        return hashlib.md5(self.data, usedforsecurity=False).digest()


@dataclass
class Reading:
    """One pass over a file, part after part; afterwards its digests."""

    local: Local
    _chunks: list[tuple[int, int]] = field(default_factory=list)
    _sha256: Any = field(default_factory=hashlib.sha256)

    def pieces(self, parts: list[Part]) -> Iterator[Piece]:
        """The parts in order. Raises LocalError when the file changes meanwhile."""
        crc = find_crc("crc64nvme")
        if crc is None:
            raise LocalError(
                "awscrt cannot be imported by the controller's Python; install it there: pip install awscrt"
            )
        try:
            with Path(self.local.place).open("rb") as handle:
                before = os.fstat(handle.fileno())
                for part in parts:
                    data = handle.read(part.size)
                    if len(data) < part.size:
                        raise EOFError(f"it ends {part.size - len(data)} bytes early")
                    yield Piece(part, data, self._digest(memoryview(data), crc))
                    _forget(handle.fileno(), part)
                after = os.fstat(handle.fileno())
        except (OSError, EOFError) as error:
            raise LocalError(f"{self.local.path}: cannot read {self.local.place}: {error}") from error
        if (before.st_size, before.st_mtime_ns) != (
            after.st_size,
            after.st_mtime_ns,
        ) or after.st_size != self.local.size:
            raise LocalError(f"{self.local.path}: {self.local.place} was changed while it was read; run again")

    def _digest(self, data: memoryview, crc: Crc) -> int:
        self._sha256.update(data)
        pieces = [
            (crc(data[start : start + CHUNK], 0), min(CHUNK, len(data) - start)) for start in range(0, len(data), CHUNK)
        ]
        self._chunks += pieces
        return combine_all(pieces)

    def digests(self) -> Digests:
        """Of the whole file, when all its pieces were read. Raises LocalError when it is not what its name in the cache says."""
        sha256 = self._sha256.hexdigest()
        if self.local.sha256 and self.local.sha256 != sha256:
            raise LocalError(
                f"{self.local.path}: the cache says that {self.local.place} has the SHA-256 of its name, it has {sha256}; "
                "delete it and download it again"
            )
        chunks = tuple(f"{crc:016x}" for crc, _length in self._chunks)
        return Digests(self.local.path, self.local.size, sha256, f"{combine_all(self._chunks):016x}", chunks)


def _forget(descriptor: int, part: Part) -> None:
    """The page cache of the controller is somebody's too."""
    if part.size >= WINDOW // 4:
        os.posix_fadvise(descriptor, part.offset, part.size, os.POSIX_FADV_DONTNEED)


def store_etag(md5s: list[bytes]) -> str:
    """The ETag that S3 gives an object of these parts."""
    if len(md5s) == 1:
        return md5s[0].hex()
    return f"{hashlib.md5(b''.join(md5s), usedforsecurity=False).hexdigest()}-{len(md5s)}"
