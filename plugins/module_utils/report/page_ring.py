# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ring as a drawing for wide screens: nodes on a circle with their ports, cables with what was measured on each leg."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..topology.layout import Box, Cable, Layout, arrange
from .markup import Html, el
from .page_legs import (
    FONT,
    LINE,
    Leg,
    by_cable,
    cable_title,
    describe,
    ends_of,
    heading,
    marked,
    mtu,
    n,
    rate,
    state,
    subtitle,
    text,
    width,
)

_NAME = 16.0
_PADDING = 14.0
_MARGIN = 16.0
_SMALLEST = 0.8  # of its natural size; a drawing that is wider than the page is scrolled


def ring(site: Mapping[str, Any]) -> Html:
    """The drawing as an SVG element."""
    cables = by_cable(site)
    layout = arrange(site["shape"], len(site["nodes"]), _card_size(site), _label_size(site))
    shapes = [
        *(shape for cable, legs in zip(layout.cables, cables, strict=True) for shape in _wires(cable, legs)),
        *(shape for box, node in zip(layout.nodes, site["nodes"], strict=True) for shape in _node(box, node, site)),
        *_plugs(layout, cables),
        *_labels(site, layout, cables),
    ]
    boxes = layout.boxes()
    left = min(box.x - box.width / 2 for box in boxes) - _MARGIN
    top = min(box.y - box.height / 2 for box in boxes) - _MARGIN
    across = max(box.x + box.width / 2 for box in boxes) + _MARGIN - left
    down = max(box.y + box.height / 2 for box in boxes) + _MARGIN - top
    return el(
        "svg",
        el("title", heading(site)),
        el("desc", describe(site)),
        *shapes,
        viewBox=f"{n(left)} {n(top)} {n(across)} {n(down)}",
        style=f"max-width:{n(across)}px;min-width:{n(across * _SMALLEST)}px",
        role="img",
        data_drawing="ring",
    )


def _columns(site: Mapping[str, Any]) -> tuple[float, float, float]:
    """Where a card's columns begin: port and rail, netdev, address."""
    netdev = max(len(end["netdev"]) for leg in site["legs"] for end in leg["ends"])
    return 0.0, width("P0 rail 0  "), width("P0 rail 0  ") + width("x" * (netdev + 2))


def _card_size(site: Mapping[str, Any]) -> tuple[float, float]:
    address = max(width(f"{end['address']}  x") for leg in site["legs"] for end in leg["ends"])
    title = max(max(width(node["name"], _NAME), width(subtitle(node))) for node in site["nodes"])
    ports = max(len(ends_of(site, node["name"])) for node in site["nodes"])
    return max(title, _columns(site)[2] + address) + 2 * _PADDING, (ports + 2) * LINE + 2.2 * _PADDING


def _node(box: Box, node: Mapping[str, Any], site: Mapping[str, Any]) -> list[Html]:
    left, right = box.x - box.width / 2 + _PADDING, box.x + box.width / 2 - _PADDING
    line = box.y - box.height / 2 + _PADDING + _NAME * 0.8
    shapes = [
        _rectangle(box, "box", 8),
        text(left, line, node["name"], "bold", size=_NAME),
        text(left, line + LINE, subtitle(node), "faint"),
    ]
    columns = _columns(site)
    for number, (end, leg) in enumerate(ends_of(site, node["name"])):
        at = line + 6 + (number + 2) * LINE
        words = (f"P{end['port']} rail {leg['rail']}", end["netdev"], end["address"])
        shapes += [text(left + column, at, word) for column, word in zip(columns, words, strict=True)]
        shapes.append(text(right - FONT * 0.5, at, marked(end["state"]), end["state"], "bold", middle=True))
    return shapes


def _wires(cable: Cable, legs: list[Leg]) -> list[Html]:
    """A line a rail, side by side; what is inside of a box is drawn over."""
    (x1, y1), (x2, y2) = cable.ends
    length = math.dist(*cable.ends) or 1.0
    lines = []
    for leg in legs:
        aside = (leg["rail"] - 0.5) * 10
        dx, dy = -aside * (y2 - y1) / length, aside * (x2 - x1) / length
        lines.append(
            el("line", x1=n(x1 + dx), y1=n(y1 + dy), x2=n(x2 + dx), y2=n(y2 + dy), class_=f"wire {state(leg)}")
        )
    return lines


def _plugs(layout: Layout, cables: list[list[Leg]]) -> list[Html]:
    """A port's name where its cable enters the node."""
    shapes = []
    for cable, legs in zip(layout.cables, cables, strict=True):
        for end, box in zip(legs[0]["ends"], cable.signs, strict=False):
            shapes.append(_rectangle(box, "plug", 4))
            shapes.append(text(box.x, box.y + FONT * 0.36, f"P{end['port']}", "in-plug", middle=True))
    return shapes


def _lines(leg: Leg, site: Mapping[str, Any]) -> tuple[str, str]:
    return f"{marked(state(leg))} rail {leg['rail']}  {leg['subnet']}", f"{mtu(leg, site['mtu'])}, {rate(leg)}"


def _label_size(site: Mapping[str, Any]) -> tuple[float, float]:
    lines = [line for leg in site["legs"] for line in _lines(leg, site)]
    rails = max(len(legs) for legs in by_cable(site))
    return max(map(width, lines)) + 2 * _PADDING, (2 * rails + 1) * LINE + _PADDING


def _labels(site: Mapping[str, Any], layout: Layout, cables: list[list[Leg]]) -> list[Html]:
    if layout.hub is not None:
        return _label(layout.hub, "switch", list(site["legs"]), site)
    pairs = zip(layout.cables, cables, strict=True)
    return [
        shape for cable, legs in pairs if cable.label for shape in _label(cable.label, cable_title(legs), legs, site)
    ]


def _label(box: Box, title: str, legs: list[Leg], site: Mapping[str, Any]) -> list[Html]:
    line = box.y - box.height / 2 + LINE
    shapes = [_rectangle(box, "box", 6), text(box.x, line, title, "bold", middle=True)]
    for number, leg in enumerate(legs):
        first, second = _lines(leg, site)
        shapes.append(text(box.x, line + (2 * number + 1) * LINE, first, state(leg), "bold", middle=True))
        shapes.append(text(box.x, line + (2 * number + 2) * LINE, second, middle=True))
    return shapes


def _rectangle(box: Box, kind: str, radius: float) -> Html:
    return el(
        "rect",
        x=n(box.x - box.width / 2),
        y=n(box.y - box.height / 2),
        width=n(box.width),
        height=n(box.height),
        rx=n(radius),
        class_=kind,
    )
