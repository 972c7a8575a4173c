# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the stand-in sees of a picture: the colours of its upright stripes, from the pixels."""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .faults import planted

_START = b"\x89PNG\r\n\x1a\n"
_URL = "data:image/png;base64,"
_PIXELS = 1 << 22
_NAMES = {
    "red": (255, 0, 0),
    "green": (0, 160, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "white": (255, 255, 255),
    "black": (0, 0, 0),
}
_BLIND = {"red": "green", "green": "red"}


class PictureError(ValueError):
    """What keeps a picture from being seen."""


def seen(parts: Any, limit: int) -> str:
    """What the pictures among the parts of a message show, as text for the prompt; empty without pictures. Raises PictureError."""
    urls = list(_urls(parts)) if isinstance(parts, list) else []
    if len(urls) > limit:
        raise PictureError(f"At most {limit} image(s) may be provided in one prompt.")
    return "".join(f"\n[picture: {', '.join(_named(stripes(_bytes(url))))}]" for url in urls)


def _urls(parts: Sequence[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "image_url":
            held = part.get("image_url")
            yield str(held.get("url") if isinstance(held, dict) else held)


def _bytes(url: str) -> bytes:
    if not url.startswith(_URL):
        raise PictureError(f"the lab's stand-in sees pictures given as {_URL}... only")
    try:
        return base64.b64decode(url.removeprefix(_URL), validate=True)
    except ValueError as error:
        raise PictureError(f"the picture is not base64: {error}") from error


def _named(colours: Sequence[str]) -> list[str]:
    return [_BLIND.get(colour, colour) for colour in colours] if planted("colour-blind") else list(colours)


def stripes(png: bytes) -> list[str]:
    """Names of the colours along the middle row, each run of one colour once. Raises PictureError."""
    held: dict[bytes, bytes] = {}
    for kind, data in _chunks(png):
        held[kind] = held.get(kind, b"") + data
    row = _middle_row(held)
    pixels = (_name((row[at], row[at + 1], row[at + 2])) for at in range(0, len(row), 3))
    return [name for name, _run in itertools.groupby(pixels)]


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not png.startswith(_START):
        raise PictureError("the picture is no PNG")
    at = len(_START)
    while at < len(png):
        if len(png) < at + 12:
            raise PictureError("the picture ends within a chunk")
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        data, check = png[at + 8 : at + 8 + length], png[at + 8 + length : at + 12 + length]
        if len(data) < length or check != struct.pack(">I", zlib.crc32(kind + data)):
            raise PictureError(f"chunk {kind.decode('ascii', 'replace')} of the picture is damaged")
        yield kind, data
        at += 12 + length


def _middle_row(held: Mapping[bytes, bytes]) -> bytes:
    header = held.get(b"IHDR", b"")
    if len(header) != 13:
        raise PictureError("the picture has no header")
    width, height, depth, colour, _packing, _filters, woven = struct.unpack(">IIBBBBB", header)
    if (depth, colour, woven) != (8, 2, 0) or not 0 < width * height <= _PIXELS:
        raise PictureError("the lab's stand-in sees pictures of 8 bits a colour, without alpha, up to 4 million pixels")
    size = 1 + 3 * width
    try:
        rows = zlib.decompressobj().decompress(held.get(b"IDAT", b""), size * height)
    except zlib.error as error:
        raise PictureError(f"the picture's pixels are damaged: {error}") from error
    row = rows[height // 2 * size :][:size]
    if len(row) < size or row[0]:
        raise PictureError("the lab's stand-in sees rows without a filter only, all of them")
    return row[1:]


def _name(pixel: tuple[int, int, int]) -> str:
    def distance(name: str) -> int:
        return sum((one - other) ** 2 for one, other in zip(pixel, _NAMES[name], strict=True))

    return min(_NAMES, key=distance)
