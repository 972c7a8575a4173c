# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The header of a safetensors file, from bytes that nobody vouches for.

What a header may be is narrower here than in JSON: the rules are those of the safetensors library (offsets that cover the file without
gap or overlap, sizes that follow from shape and dtype), and a cap that keeps what parsing takes below 64 MiB.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import units

#: Bytes of the length field that a file begins with.
LENGTH_FIELD = 8
#: Bytes that the JSON of a header may have. The largest published one of these checkpoints, of a shard with 384 experts, has 0.5 MB.
HEADER_LIMIT = 1 << 20
#: Bits of an element. A dtype that is not here is taken as it is, with its size unchecked.
DTYPE_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}
_METADATA = "__metadata__"
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}
_NUMBER_LIMIT = 1 << 63


class HeaderError(ValueError):
    """A header that cannot be right; the text names the file and is the message for the user."""


@dataclass(frozen=True)
class Tensor:
    """offset: of its first byte in the file. size: bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True)
class Header:
    """path, file_size: of the file it begins. size: bytes of length field and JSON. tensors: in the order of their offsets."""

    path: str
    file_size: int
    size: int
    tensors: tuple[Tensor, ...]

    def by_name(self) -> dict[str, Tensor]:
        return {tensor.name: tensor for tensor in self.tensors}


def header_size(start: bytes, file_size: int, path: str) -> int:
    """Bytes that the whole header takes, from the first eight of the file. Raises HeaderError."""
    if file_size < LENGTH_FIELD or len(start) < LENGTH_FIELD:
        raise HeaderError(f"{path}: {file_size} bytes are too few for a safetensors file")
    length = int.from_bytes(start[:LENGTH_FIELD], "little")
    if length > HEADER_LIMIT:
        raise HeaderError(
            f"{path}: its first 8 bytes stand for a header of {length} bytes, expected at most {HEADER_LIMIT}: "
            "this is no safetensors file, or a damaged one"
        )
    if length < 2 or LENGTH_FIELD + length > file_size:
        raise HeaderError(
            f"{path}: its first 8 bytes stand for a header of {length} bytes in a file of {file_size}: it is damaged or cut off"
        )
    return LENGTH_FIELD + length


def parse(data: bytes, file_size: int, path: str) -> Header:
    """The header in data, which holds the first header_size bytes of the file, or more. Raises HeaderError."""
    size = header_size(data, file_size, path)
    if len(data) < size:
        raise HeaderError(f"{path}: {len(data)} bytes of a header of {size} were read")
    values = _json(data[LENGTH_FIELD:size], path)
    _metadata(values.pop(_METADATA, {}), path)
    tensors = tuple(sorted((_tensor(name, item, size, path) for name, item in values.items()), key=_place))
    _covered(tensors, size, file_size, path)
    return Header(path, file_size, size, tensors)


def _place(tensor: Tensor) -> tuple[int, int, str]:
    return tensor.offset, tensor.end, tensor.name


class _RefusedError(ValueError):
    """Something that JSON allows and a header does not."""


def _json(data: bytes, path: str) -> dict[str, Any]:
    if data[:1] != b"{":
        raise HeaderError(f"{path}: the header begins with {data[:1]!r}, expected an opening brace")
    try:
        values = json.loads(
            data.decode(), object_pairs_hook=_object, parse_int=_number, parse_float=_refuse, parse_constant=_refuse
        )
    except RecursionError:
        raise HeaderError(f"{path}: the header is nested too deeply") from None
    except ValueError as error:  # of decode and loads too
        raise HeaderError(
            f"{path}: the header is not as safetensors writes it: {units.printable(str(error), 120)}"
        ) from None
    if not isinstance(values, dict):
        raise HeaderError(f"{path}: the header is a {type(values).__name__}, expected an object")
    return values


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise _RefusedError(f"{units.printable(name)!r} is in it twice")
        result[name] = value
    return result


def _number(text: str) -> int:
    if len(text) > len(str(_NUMBER_LIMIT)) or not 0 <= int(text) < _NUMBER_LIMIT:
        raise _RefusedError(f"{units.printable(text)} is no size")
    return int(text)


def _refuse(text: str) -> Any:
    raise _RefusedError(f"{units.printable(text)} is no whole number")


def _metadata(value: Any, path: str) -> None:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise HeaderError(f"{path}: {_METADATA} is no mapping of text to text")


def _tensor(name: str, item: Any, data_at: int, path: str) -> Tensor:
    where = f"{path}: tensor {units.printable(name)!r}"
    if not isinstance(item, dict) or set(item) != _ENTRY_KEYS:
        raise HeaderError(f"{where} has no dtype, shape and data_offsets, or more than those")
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(dtype, str) or not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise HeaderError(f"{where}: dtype, shape or data_offsets are not a text, sizes and two sizes")
    start, end = offsets
    if end < start:
        raise HeaderError(f"{where}: its data_offsets end at {end} before they begin at {start}")
    expected = _bytes(dtype, shape)
    if expected is not None and expected != end - start:
        raise HeaderError(
            f"{where}: {units.printable(dtype)} {units.printable(str(shape))} takes {expected} bytes, its data_offsets {end - start}"
        )
    return Tensor(name, dtype, tuple(shape), data_at + start, end - start)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value)


def _bytes(dtype: str, shape: Sequence[int]) -> int | None:
    """Bytes that the elements take, None for a dtype that is not known. Stops at what no file can hold."""
    bits = DTYPE_BITS.get(dtype)
    if bits is None:
        return None
    if 0 in shape:
        return 0
    count = 1
    for extent in shape:
        count *= extent
        if count >= _NUMBER_LIMIT:
            return count
    return math.ceil(count * bits / 8) if bits % 8 else count * (bits // 8)


def _covered(tensors: Sequence[Tensor], data_at: int, file_size: int, path: str) -> None:
    """Raises HeaderError unless the tensors follow each other from the header to the end of the file."""
    end, before = data_at, "the header"
    for tensor in tensors:
        name = repr(units.printable(tensor.name))
        if tensor.offset != end:
            what = "overlaps" if tensor.offset < end else "leaves a gap behind"
            raise HeaderError(f"{path}: tensor {name} at byte {tensor.offset} {what} {before}, which ends at {end}")
        end, before = tensor.end, name
    if end != file_size:
        raise HeaderError(
            f"{path}: the header stands for {end} bytes, the file has {file_size}: it is cut off, or the header is from another one"
        )


def names_in_several(headers: Mapping[str, Header]) -> dict[str, list[str]]:
    """Tensors that more than one of these files has, with the files' paths."""
    found: dict[str, list[str]] = {}
    for path, header in headers.items():
        for tensor in header.tensors:
            found.setdefault(tensor.name, []).append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}
