# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads Engram rows as the published engines do, from nothing but the description of the formats: it shares no code with the collection.

A directory holds `model.safetensors.index.json`, which names the shard of each tensor, shards with a safetensors header (8 bytes
little-endian length, then JSON with dtype, shape and data_offsets), and `engram-local.json`, whose `layers` says which rows are there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

INDEX = "model.safetensors.index.json"
RECORD = "engram-local.json"
WIDTHS = {"weight": 256, "scale": 8}


class Tables:
    """The tables of one directory. whole: every row is there, no record is asked for."""

    def __init__(self, directory, index=None, whole=False):
        self.directory = Path(directory)
        self.places = json.loads((Path(index or self.directory) / INDEX).read_text())["weight_map"]
        self.record = {} if whole else json.loads((self.directory / RECORD).read_text())

    @property
    def layers(self):
        return sorted({int(name.split(".")[1]) for name in self.places if name.endswith(".engram.embed.weight")})

    def owned(self, layer):
        first, end = self.record["layers"][str(layer)]
        return first, end

    def table(self, layer, part):
        """Path, offset of row 0, bytes of a row and number of rows of one tensor of a table."""
        name = f"layers.{layer}.engram.embed.{part}"
        path = self.directory / self.places[name]
        with path.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            entry = json.loads(handle.read(length))[name]
        rows, width = entry["shape"]
        if width != WIDTHS[part]:
            raise ValueError(f"{name} has {width} columns")
        return path, 8 + length + entry["data_offsets"][0], width, rows

    def bytes(self, layer, part, first=0, end=None):
        """The bytes of these rows."""
        path, start, width, rows = self.table(layer, part)
        end = rows if end is None else end
        with path.open("rb") as handle:
            handle.seek(start + first * width)
            return handle.read((end - first) * width)

    def owned_bytes(self, layer, part):
        return self.bytes(layer, part, *self.owned(layer))

    def owned_spans(self, layers):
        """By shard with tables: the runs of bytes that a rank with these rows has of it, in order: all but the rows of others."""
        others = {}
        for layer in self.layers:
            for part in WIDTHS:
                path, start, width, rows = self.table(layer, part)
                first, end = layers[str(layer)]
                gaps = [(start, start + first * width), (start + end * width, start + rows * width)]
                others.setdefault(path, []).extend(gaps)
        return {path.name: _between(path.stat().st_size, sorted(gaps)) for path, gaps in others.items()}

    def row_spans(self, layers):
        """The same of a directory that has nothing but headers and rows."""
        found = {}
        for layer in self.layers:
            for part in WIDTHS:
                path, start, width, _rows = self.table(layer, part)
                first, end = layers[str(layer)]
                with path.open("rb") as handle:
                    header = 8 + int.from_bytes(handle.read(8), "little")
                found.setdefault(path.name, {(0, header)}).add((start + first * width, start + end * width))
        return {name: sorted(spans) for name, spans in found.items()}

    def others_are_holes(self, layer, part):
        """Whether every byte of every other row reads as zero, and takes no block that lies wholly outside of what is there."""
        first, end = self.owned(layer)
        path, start, width, rows = self.table(layer, part)
        zero = not any(self.bytes(layer, part, 0, first)) and not any(self.bytes(layer, part, end, rows))
        outside = [(start, start + first * width), (start + end * width, start + rows * width)]
        return zero and not any(_has_data(path, low, high) for low, high in outside)


def _between(size, gaps):
    """What is left of a file without these gaps."""
    spans, at = [], 0
    for low, high in [*((low, high) for low, high in gaps if low < high), (size, size)]:
        if at < low:
            spans.append((at, low))
        at = high
    return spans


def _has_data(path, low, high, block=4096):
    """Whether a whole block of [low, high) is allocated."""
    low, high = -(-low // block) * block, high // block * block
    if low >= high:
        return False
    with Path(path).open("rb") as handle:
        try:
            return os.lseek(handle.fileno(), low, os.SEEK_DATA) < high
        except OSError:  # no data up to the end of the file
            return False


def problems(directory, source, index=None):
    """What is wrong with the slices in a directory, compared with whole shards in another one. Every row of both tables."""
    mine, theirs = Tables(directory, index), Tables(source, whole=True)
    found = []
    for layer in theirs.layers:
        for part in WIDTHS:
            if mine.owned_bytes(layer, part) != theirs.bytes(layer, part, *mine.owned(layer)):
                found.append(f"layer {layer} {part}: rows {mine.owned(layer)} are not those of the source")
            if not mine.others_are_holes(layer, part):
                found.append(f"layer {layer} {part}: rows outside of {mine.owned(layer)} are there")
    return found


def tile(records, rows):
    """Whether the ranges of all ranks, in any order, are every row of every table once."""
    for layer, count in rows.items():
        end = 0
        for first, last in sorted(record["layers"][str(layer)] for record in records):
            if first != end:
                return False
            end = last
        if end != count:
            return False
    return True
