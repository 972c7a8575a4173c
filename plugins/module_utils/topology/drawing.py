# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan as an SVG for people: nodes with their ports and addresses, cables with their legs. No scripts, nothing from outside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .layout import Box, Cable, Layout, Point, arrange
from .view import View, ViewEnd, ViewLeg, ViewNode

_MARGIN = 24.0
_PADDING = 14.0
_TEXT = 13.0  # font size of everything but names and the heading
_NAME = 16.0
_HEADING = 20.0
_LINE = 19.0
_WIDEST = 0.62  # of the font size: the widest character of common monospaced fonts
_FONT = "'DejaVu Sans Mono', Menlo, Consolas, monospace"
_INK, _FAINT, _PAPER = "#1a1a1a", "#5a5a5a", "#ffffff"
# Told apart without colours too; the colours are of the set of Okabe and Ito.
_RAILS = (("#0072b2", ""), ("#c04f00", "9 5"))
_FOOT = "P0 is the cage beside the RJ45 socket, P1 the other. Every subnet is a leg: one rail of {cables}."


def svg(view: View) -> str:
    """The whole file."""
    columns = _columns(view)
    card = _card_size(view, columns)
    layout = arrange(view.shape, len(view.nodes), card, _label_size(view))
    shapes = [
        *(_wires(cable, legs) for cable, legs in zip(layout.cables, _legs_by_cable(view), strict=True)),
        *(_node(box, node, view, columns) for box, node in zip(layout.nodes, view.nodes, strict=True)),
        *_signs(view, layout),
        *_labels(view, layout),
    ]
    return _page(view, layout, [line for shape in shapes for line in shape])


def _page(view: View, layout: Layout, shapes: Sequence[str]) -> str:
    heading = _heading(view)
    foot_text = _FOOT.format(cables="all cables" if view.shape == "switch" else "one cable")
    boxes = layout.boxes()
    right = max(box.x + box.width / 2 for box in boxes)
    left = min(box.x - box.width / 2 for box in boxes)
    top = min(box.y - box.height / 2 for box in boxes)
    bottom = max(box.y + box.height / 2 for box in boxes)
    width = max(right - left, len(heading) * _HEADING * _WIDEST, len(foot_text) * _TEXT * _WIDEST) + 2 * _MARGIN
    head, foot = _HEADING + 2 * _MARGIN, 2 * _LINE + 1.5 * _MARGIN
    height = bottom - top + head + foot
    middle = (left + right) / 2
    shift = f"translate({_n(width / 2 - middle)} {_n(head - top)})"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}" '
            f'viewBox="0 0 {_n(width)} {_n(height)}" font-family="{_FONT}" font-size="{_n(_TEXT)}" fill="{_INK}" role="img">',
            f"<title>{escape(heading)}</title>",
            f"<desc>{escape(_description(view))}</desc>",
            f'<rect width="100%" height="100%" fill="{_PAPER}"/>',
            _text((_MARGIN, _MARGIN + _HEADING * 0.8), heading, size=_HEADING, bold=True),
            f'<g transform="{shift}">',
            *shapes,
            "</g>",
            *_legend(height - foot + _MARGIN, foot_text),
            "</svg>\n",
        ]
    )


def _heading(view: View) -> str:
    size = len(view.nodes)
    kind = {"ring": f"ring of {size} nodes", "switch": f"{size} nodes on a switch"}.get(view.shape, view.shape)
    cables = len(_legs_by_cable(view))
    return f"Fabric plan: {kind}, {cables} cable{'' if cables == 1 else 's'}, {len(view.legs)} legs, MTU {view.mtu}"


def _description(view: View) -> str:
    """The legs as sentences, for who can't see the drawing."""
    return " ".join(
        f"Cable {leg.cable}, rail {leg.rail}, {leg.subnet}: "
        + ", ".join(f"{end.plug} {end.netdev} {end.address}" for end in leg.ends)
        + "."
        for leg in view.legs
    )


def _legs_by_cable(view: View) -> list[list[ViewLeg]]:
    """The legs of each cable of the layout; every cable of a switch carries all of them."""
    if view.shape == "switch":
        return [list(view.legs)] * len(view.nodes)
    return [[leg for leg in view.legs if leg.cable == cable] for cable in sorted({leg.cable for leg in view.legs})]


def _columns(view: View) -> tuple[float, float]:
    """Widths of a card's first two columns: port and rail, netdev."""
    netdev = max(len(end.netdev) for leg in view.legs for end in leg.ends)
    return _width("P0 rail 0  "), _width("x" * (netdev + 2))


def _width(text: str, size: float = _TEXT) -> float:
    return len(text) * size * _WIDEST


def _card_size(view: View, columns: tuple[float, float]) -> tuple[float, float]:
    address = max(_width(end.address) for leg in view.legs for end in leg.ends)
    name = max(max(_width(node.name, _NAME), _width(_subtitle(node))) for node in view.nodes)
    ports = max(len(view.ports_of(node.name)) for node in view.nodes)
    return max(name, sum(columns) + address) + 2 * _PADDING, (ports + 2) * _LINE + 2.2 * _PADDING


def _subtitle(node: ViewNode) -> str:
    return f"rank {node.rank}{' (head)' if node.rank == 0 else ''}, {node.management_address}"


def _node(box: Box, node: ViewNode, view: View, columns: tuple[float, float]) -> list[str]:
    left = box.x - box.width / 2 + _PADDING
    line = box.y - box.height / 2 + _PADDING + _NAME * 0.8
    lines = [
        _rectangle(box, "#f4f6f8", _INK, 6),
        _text((left, line), node.name, size=_NAME, bold=True),
        _text((left, line + _LINE), _subtitle(node), colour=_FAINT),
    ]
    line += 2 * _LINE + 6
    for number, (end, leg) in enumerate(view.ports_of(node.name)):
        lines += _port((left, line + number * _LINE), end, leg, columns)
    return lines


def _port(at: Point, end: ViewEnd, leg: ViewLeg, columns: tuple[float, float]) -> list[str]:
    colour, _dashes = _RAILS[leg.rail]
    return [
        _text(at, f"P{end.port} rail {leg.rail}", colour=colour),
        _text((at[0] + columns[0], at[1]), end.netdev),
        _text((at[0] + sum(columns), at[1]), end.address),
    ]


def _wires(cable: Cable, legs: Sequence[ViewLeg]) -> list[str]:
    """A line a rail, side by side; what is inside of a box is drawn over."""
    (x1, y1), (x2, y2) = cable.ends
    length = math.dist(*cable.ends) or 1.0
    lines = []
    for leg in legs:
        aside = (leg.rail - 0.5) * 7
        dx, dy = -aside * (y2 - y1) / length, aside * (x2 - x1) / length
        lines.append(_stroke((x1 + dx, y1 + dy), (x2 + dx, y2 + dy), leg.rail))
    return lines


def _stroke(start: Point, end: Point, rail: int) -> str:
    colour, dashes = _RAILS[rail]
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" stroke="{colour}" stroke-width="3"{dash}/>'


def _signs(view: View, layout: Layout) -> list[list[str]]:
    """A port's name where its cable enters the node."""
    signs = []
    for number, (cable, legs) in enumerate(zip(layout.cables, _legs_by_cable(view), strict=True)):
        ends = [legs[0].ends[number]] if view.shape == "switch" else legs[0].ends
        for end, box in zip(ends, cable.signs, strict=False):
            name = _text((box.x, box.y + _TEXT * 0.36), f"P{end.port}", colour=_PAPER, bold=True, middle=True)
            signs.append([_rectangle(box, _INK, _INK, 4), name])
    return signs


def _label_size(view: View) -> tuple[float, float]:
    lines = [_rail_text(leg) for leg in view.legs]
    return max(map(_width, lines)) + _PADDING, 3 * _LINE + _PADDING / 2


def _rail_text(leg: ViewLeg) -> str:
    return f"rail {leg.rail} {leg.subnet}"


def _labels(view: View, layout: Layout) -> list[list[str]]:
    if layout.hub is not None:
        return [_label(layout.hub, "switch", view.legs)]
    groups = zip(layout.cables, _legs_by_cable(view), strict=True)
    return [_label(cable.label, f"cable {legs[0].cable}", legs) for cable, legs in groups if cable.label]


def _label(box: Box, title: str, legs: Sequence[ViewLeg]) -> list[str]:
    line = box.y - box.height / 2 + _LINE
    return [
        _rectangle(box, _PAPER, "#b0b0b0", 4),
        _text((box.x, line), title, bold=True, middle=True),
        *(
            _text((box.x, line + number * _LINE), _rail_text(leg), colour=_RAILS[leg.rail][0], middle=True)
            for number, leg in enumerate(legs, start=1)
        ),
    ]


def _legend(top: float, foot: str) -> list[str]:
    lines = []
    for rail in range(len(_RAILS)):
        left = _MARGIN + rail * 140
        lines.append(_stroke((left, top), (left + 40, top), rail))
        lines.append(_text((left + 50, top + _TEXT * 0.36), f"rail {rail}", colour=_RAILS[rail][0]))
    return [*lines, _text((_MARGIN, top + 1.5 * _LINE), foot, colour=_FAINT)]


def _rectangle(box: Box, fill: str, stroke: str, radius: float) -> str:
    return (
        f'<rect x="{_n(box.x - box.width / 2)}" y="{_n(box.y - box.height / 2)}" width="{_n(box.width)}" '
        f'height="{_n(box.height)}" rx="{_n(radius)}" fill="{fill}" stroke="{stroke}"/>'
    )


def _text(
    at: Point, text: str, *, size: float = _TEXT, colour: str = _INK, bold: bool = False, middle: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{_n(at[0])}" y="{_n(at[1])}" font-size="{_n(size)}" fill="{colour}"{weight}{anchor}>{escape(text)}</text>'


def _n(value: float) -> str:
    """A number, short and the same on every machine."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")
