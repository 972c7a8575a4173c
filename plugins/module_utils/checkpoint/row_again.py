# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads rows that a node holds once more, and holds them to what was recorded of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..host import HostError, open_regular
from . import row_measure, safetensors, spans, units
from .hashing import Cyclic
from .parts import Part
from .piece import BUFFER
from .rate import Bucket
from .row_plan import Target
from .row_state import Held, RowState
from .row_survey import Slices, damaged_key
from .runtime import Crc, absent_text, load_crc64

_ROWS = re.compile(r"(.+)\[([0-9]{1,19}):([0-9]{1,19})\]")


def reader(python_path: str) -> Crc:
    """What computes the digests of rows. Raises HostError where awscrt cannot be imported."""
    crc = load_crc64(python_path)
    if crc is None:
        raise HostError(absent_text(python_path))
    return crc


def damaged(directory: Path, state: RowState, crc: Crc, bucket: Bucket) -> dict[str, str]:
    """Every extent whose bytes are not those that were verified, by its name in engram-local.json; a file that cannot be read by its path."""
    found: dict[str, str] = {}
    for file in state.files:
        keys = {key: digest for key, digest in state.digests.items() if key.startswith(f"{file.path}:")}
        try:
            with os.fdopen(open_regular(directory / file.path), "rb") as handle:
                found |= _wrong(handle.fileno(), file, keys, crc, bucket)
        except (OSError, safetensors.HeaderError) as error:
            found[file.path] = f"cannot be read again: {error}"
    return found


def _wrong(descriptor: int, file: Held, keys: Mapping[str, str], crc: Crc, bucket: Bucket) -> dict[str, str]:
    """The same of one open file. keys: what was recorded of it. Raises OSError, HeaderError."""
    places = _places(descriptor, file.path, keys)
    found: dict[str, str] = {}
    for key, expected in keys.items():
        part = places.get(key)
        if part is None:
            found[key] = "the file has no such rows or tensor"
            continue
        digest = _digest(descriptor, part, crc, bucket)
        if digest != expected:
            found[key] = f"digest {digest} instead of {units.printable(expected)}"
    untold = spans.without(file.spans, ((part.offset, part.end) for part in places.values()))
    if untold:
        found[file.path] = f"{spans.total(untold)} bytes of it have no digest"
    return found


def damaged_rows(
    holders: Iterable[Slices], files: Mapping[tuple[Path, str], Target], python_path: str, rate_limit: int
) -> dict[str, str]:
    """What is not as recorded of these files, each a directory and a path, by damaged_key. Raises HostError without awscrt.

    files: with where their rows lie, whatever their headers say by now. rate_limit: bytes a second, 0 for none.
    """
    crc, bucket = reader(python_path), Bucket(rate_limit)
    found: dict[str, str] = {}
    for slices in holders:
        for path, target in sorted(
            (path, target) for (place, path), target in files.items() if place == slices.directory
        ):
            state = slices.of(path)
            wrong = _not_recorded(slices.directory / path, target, state.digests, crc, bucket) if state else {}
            found |= {damaged_key(slices.directory, key): text for key, text in wrong.items()}
    return found


def _not_recorded(path: Path, target: Target, digests: Mapping[str, str], crc: Crc, bucket: Bucket) -> dict[str, str]:
    """Extents of one file that are not as recorded; what nothing was recorded of is not told."""
    found: dict[str, str] = {}
    try:
        with os.fdopen(open_regular(path), "rb") as handle:
            for key, expected in digests.items():
                for run in row_measure.runs(target, {key: expected}):
                    digest = _digest(handle.fileno(), run.part, crc, bucket)
                    if digest != expected:
                        found[key] = f"digest {digest} instead of {units.printable(expected)}"
    except OSError as error:
        return {target.path: f"cannot be read again: {error}"}
    return found


def _places(descriptor: int, path: str, keys: Iterable[str]) -> dict[str, Part]:
    """Where the extents lie, by the file's own header; without those that it does not have."""
    own = header(descriptor, os.fstat(descriptor).st_size, path)
    tensors = own.by_name()
    found = {key: _place(own, tensors, key.removeprefix(f"{path}:")) for key in keys}
    return {key: part for key, part in found.items() if part}


def _place(own: safetensors.Header, tensors: Mapping[str, safetensors.Tensor], name: str) -> Part | None:
    """name: as in Extent.key behind the path."""
    if name == "header":
        return Part(0, own.size)
    if name in tensors:
        return Part(tensors[name].offset, tensors[name].size)
    match = _ROWS.fullmatch(name)
    tensor = tensors.get(match[1]) if match else None
    if match is None or tensor is None or not tensor.shape:
        return None
    low, high, rows = int(match[2]), int(match[3]), tensor.shape[0]
    if not 0 <= low < high <= rows:
        return None
    width = tensor.size // rows
    return Part(tensor.offset + low * width, (high - low) * width)


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
