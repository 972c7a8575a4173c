# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the boxes and cables of a drawing of the fabric go; lengths in pixels, y downwards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

Point = tuple[float, float]
Size = tuple[float, float]

SIGN: Size = (30.0, 20.0)  # a port's name, outside of its node
_GAP = 56.0  # between any two boxes: room for a sign and some cable
_STEP = 8.0
# Where the first node stands, in degrees from the right, clockwise: at the top, but in a corner where that makes a rectangle.
_FIRST = {2: -180, 4: -135, 8: -135}


@dataclass(frozen=True)
class Box:
    """A rectangle around its centre."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: Box, gap: float = 0.0) -> bool:
        across = abs(self.x - other.x) < (self.width + other.width) / 2 + gap
        return across and abs(self.y - other.y) < (self.height + other.height) / 2 + gap

    def beside(self, start: Point, towards: Point, size: Size) -> Box:
        """A box of ``size`` that touches this one from outside, on the way from a point inside to one outside."""
        along = (towards[0] - start[0], towards[1] - start[1])
        extents = ((self.x, self.width + size[0]), (self.y, self.height + size[1]))
        shares = [
            (centre + math.copysign(extent / 2, along[axis]) - start[axis]) / along[axis]
            for axis, (centre, extent) in enumerate(extents)
            if along[axis]
        ]
        share = min(shares, default=0.0)
        return Box(start[0] + share * along[0], start[1] + share * along[1], *size)


@dataclass(frozen=True)
class Cable:
    """A cable between two boxes. ends: inside of them. signs: beside them. label: the box on its middle, None on a switch."""

    ends: tuple[Point, Point]
    signs: tuple[Box, Box]
    label: Box | None


@dataclass(frozen=True)
class Layout:
    """nodes: by rank. cables: in cable order; on a switch, from each node to the switch. hub: the switch."""

    nodes: tuple[Box, ...]
    cables: tuple[Cable, ...]
    hub: Box | None

    def boxes(self) -> list[Box]:
        labels = [cable.label for cable in self.cables if cable.label]
        return [*self.nodes, *labels, *([self.hub] if self.hub else [])]

    def clear(self) -> bool:
        return not any(one.meets(other, _GAP) for one, other in combinations(self.boxes(), 2))


def arrange(shape: str, size: int, node: Size, label: Size) -> Layout:
    """Nodes clockwise on the sides of a rectangle, as near to each other as leaves every box apart."""
    half = [node[0] / 4, node[1] / 4]
    while not _place(shape, size, node, label, half).clear():
        half = [length * 1.1 for length in half]
    for axis in (0, 1):
        shorter = [length - _STEP * (axis == number) for number, length in enumerate(half)]
        while min(shorter) > 0 and _place(shape, size, node, label, shorter).clear():
            half, shorter = shorter, [length - _STEP * (axis == number) for number, length in enumerate(shorter)]
    return _place(shape, size, node, label, half)


def _place(shape: str, size: int, node: Size, label: Size, half: list[float]) -> Layout:
    """half: half of the rectangle's sides."""
    first = _FIRST.get(size, -90)
    nodes = tuple(_on_rectangle(math.radians(first + 360 * rank / size), half, node) for rank in range(size))
    if shape == "switch":
        hub = Box(0.0, 0.0, *label)
        return Layout(nodes, tuple(_cable(box, hub, None) for box in nodes), hub)
    pairs = [(nodes[rank], nodes[(rank + 1) % size]) for rank in range(size if shape == "ring" else 1)]
    # Two cables between the same two nodes run side by side.
    aside = (label[1] + _GAP) / 2 + 1 if len(pairs) == 2 else 0.0
    return Layout(nodes, tuple(_cable(one, other, label, aside) for one, other in pairs), None)


def _on_rectangle(turn: float, half: list[float], node: Size) -> Box:
    across, down = math.cos(turn), math.sin(turn)
    furthest = max(abs(across), abs(down))
    return Box(half[0] * across / furthest, half[1] * down / furthest, *node)


def _cable(one: Box, other: Box, label: Size | None, aside: float = 0.0) -> Cable:
    """aside: how far to the left of the straight way, as seen from ``one``."""
    length = math.dist((one.x, one.y), (other.x, other.y)) or 1.0
    left = (aside * (other.y - one.y) / length, -aside * (other.x - one.x) / length)
    start = (one.x + left[0], one.y + left[1])
    end = (other.x + left[0], other.y + left[1])
    signs = (one.beside(start, end, SIGN), other.beside(end, start, SIGN))
    middle = ((signs[0].x + signs[1].x) / 2, (signs[0].y + signs[1].y) / 2)
    return Cable((start, end), signs, Box(*middle, *label) if label else None)
