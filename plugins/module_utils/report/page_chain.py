# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ring as a drawing for narrow screens: the nodes under each other, the first one again below the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .markup import Html, el
from .page_legs import LINE, Leg, by_cable, cable_title, describe, heading, marked, mtu, n, rate, state, subtitle, text

_WIDE = 340.0
_BOX = 58.0
_GAP = 7 * LINE
_WIRES = (16.0, 186.0)  # where the two rails run


def chain(site: Mapping[str, Any]) -> Html:
    """The drawing as an SVG element."""
    shapes: list[Html] = []
    y = 4.0
    for upper, legs, lower in _steps(site):
        shapes += _node(y, upper, "box")
        shapes += _cable(y + _BOX, legs, site, upper["name"])
        y += _BOX + _GAP
        if lower is not None:
            shapes += _node(y, lower, "ghost" if lower.get("again") else "box")
            y += _BOX + 12 * (site["shape"] == "switch")
    return el(
        "svg",
        el("title", heading(site)),
        el("desc", describe(site)),
        *shapes,
        viewBox=f"0 0 {n(_WIDE)} {n(y + 4)}",
        style=f"max-width:{n(_WIDE * 1.25)}px",
        role="img",
        data_drawing="chain",
    )


def _steps(site: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[Leg], Mapping[str, Any] | None]]:
    """Node, the legs below it, and what ends the drawing there."""
    nodes: Sequence[Mapping[str, Any]] = site["nodes"]
    cables = by_cable(site)
    if site["shape"] == "switch":
        hub = {"name": "switch", "again": True}
        return [(node, legs, hub) for node, legs in zip(nodes, cables, strict=True)]
    if site["shape"] == "pair":
        return [(nodes[0], cables[0], nodes[1])]
    last = len(nodes) - 1
    return [(node, cables[at], {**nodes[0], "again": True} if at == last else None) for at, node in enumerate(nodes)]


def _node(y: float, node: Mapping[str, Any], kind: str) -> list[Html]:
    again = " (again)" if kind == "ghost" and "rank" in node else ""
    shapes = [
        el("rect", x=1, y=n(y), width=n(_WIDE - 2), height=n(_BOX), rx=8, class_=kind),
        text(16, y + 24, f"{node['name']}{again}", "bold", size=16),
    ]
    return [*shapes, text(16, y + 45, subtitle(node), "faint")] if "rank" in node else shapes


def _cable(y: float, legs: Sequence[Leg], site: Mapping[str, Any], upper: str) -> list[Html]:
    shapes: list[Html] = []
    for x, leg in zip(_WIRES, legs, strict=False):
        here = state(leg)
        shapes.append(el("line", x1=n(x), y1=n(y), x2=n(x), y2=n(y + _GAP), class_=f"wire {here}"))
        ends = sorted(leg["ends"], key=lambda end: end["node"] != upper)
        first, last = ends[0], ends[-1]
        lines = [
            (f"P{first['port']} {first['address']}",),
            (f"{marked(here)} rail {leg['rail']}", here, "bold"),
            (leg["subnet"], "faint"),
            (mtu(leg, site["mtu"]),),
            (rate(leg),),
            *([(f"P{last['port']} {last['address']}",)] if last is not first else []),
        ]
        shapes += [text(x + 12, y + (number + 1) * LINE, words, *kinds) for number, (words, *kinds) in enumerate(lines)]
    title = cable_title(legs)
    return [*shapes, text(_WIDE - 16, y - 13, f"{title} \N{DOWNWARDS ARROW}", "faint", "end")] if title else shapes
