# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads rows that a node holds once more, and holds them to what was recorded of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Set
from pathlib import Path

from ..host import HostError
from . import safetensors
from .hashing import Cyclic
from .parts import Part
from .piece import BUFFER
from .rate import Bucket
from .row_state import RowState
from .row_survey import Slices, damaged_key
from .runtime import Crc, absent_text, load_crc64


def reader(python_path: str) -> Crc:
    """What computes the digests of rows. Raises HostError where awscrt cannot be imported."""
    crc = load_crc64(python_path)
    if crc is None:
        raise HostError(absent_text(python_path))
    return crc


def damaged(directory: Path, state: RowState, crc: Crc, bucket: Bucket, only: Iterable[str] = ()) -> dict[str, str]:
    """Every extent whose bytes are not those that were verified, by its name in engram-local.json; a file that cannot be read by its path.

    only: paths of the files to read, all of the record unless given.
    """
    wanted, found = set(only), {}
    for file in state.files:
        if wanted and file.path not in wanted:
            continue
        keys = {key: digest for key, digest in state.digests.items() if key.startswith(f"{file.path}:")}
        try:
            with (directory / file.path).open("rb") as handle:
                for key, part in _places(handle.fileno(), file.path, keys).items():
                    digest = _digest(handle.fileno(), part, crc, bucket)
                    if digest != keys[key]:
                        found[key] = f"digest {digest} instead of {keys[key]}"
        except (OSError, safetensors.HeaderError) as error:
            found[file.path] = f"cannot be read again: {error}"
    return found


def damaged_rows(
    holders: Iterable[Slices], files: Set[tuple[Path, str]], python_path: str, rate_limit: int
) -> dict[str, str]:
    """Of these files, each a directory and a path, what is not as recorded, by damaged_key. Raises HostError without awscrt.

    rate_limit: bytes a second, 0 for none.
    """
    crc, bucket = reader(python_path), Bucket(rate_limit)
    found: dict[str, str] = {}
    for slices in holders:
        for path in sorted(path for directory, path in files if directory == slices.directory):
            state = slices.of(path)
            wrong = damaged(slices.directory, state, crc, bucket, [path]) if state else {}
            found |= {damaged_key(slices.directory, key): text for key, text in wrong.items()}
    return found


def _places(descriptor: int, path: str, keys: Iterable[str]) -> dict[str, Part]:
    """Where the extents lie, by the file's own header."""
    own = header(descriptor, os.fstat(descriptor).st_size, path)
    length, tensors, found = own.size, own.by_name(), {}
    for key in keys:
        name, _bracket, rows = key.removeprefix(f"{path}:").partition("[")
        if name == "header":
            found[key] = Part(0, length)
        elif name in tensors and rows:
            low, high = (int(number) for number in rows.rstrip("]").split(":"))
            width = tensors[name].size // tensors[name].shape[0]
            found[key] = Part(tensors[name].offset + low * width, (high - low) * width)
        elif name in tensors:
            found[key] = Part(tensors[name].offset, tensors[name].size)
        else:
            raise safetensors.HeaderError(f"{path}: no tensor {name}")
    return found


def header(descriptor: int, size: int, path: str) -> safetensors.Header:
    """Of an open file. size: its length in bytes. Raises HeaderError."""
    length = safetensors.header_size(os.pread(descriptor, safetensors.LENGTH_FIELD, 0), size, path)
    return safetensors.parse(os.pread(descriptor, length, 0), size, path)


def _digest(descriptor: int, part: Part, crc: Crc, bucket: Bucket) -> str:
    computed, view = Cyclic("crc64nvme", crc), memoryview(bytearray(BUFFER))
    position = part.offset
    while position < part.end:
        count = os.preadv(descriptor, [view[: part.end - position]], position)
        if not count:
            break
        computed.update(view[:count])
        bucket.took(count)
        os.posix_fadvise(descriptor, position, count, os.POSIX_FADV_DONTNEED)
        position += count
    return computed.digest()
