# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What both drawings of the ring say of a leg, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .markup import Html, el
from .page_marks import STATES, worst

FONT = 13.0
LINE = 19.0
_WIDEST = 0.62  # of the font size: the widest character of common monospaced fonts

Leg = Mapping[str, Any]
End = Mapping[str, Any]


def width(text: str, font: float = FONT) -> float:
    return len(text) * font * _WIDEST


def state(leg: Leg) -> str:
    return worst(end["state"] for end in leg["ends"])


def mtu(leg: Leg, planned: int) -> str:
    """The MTU that the ends have; the planned one where nobody looked."""
    seen = sorted({int(end["mtu"]) for end in leg["ends"] if end["mtu"] is not None})
    return f"MTU {' and '.join(map(str, seen))}" if seen else f"MTU {planned} planned"


def rate(leg: Leg) -> str:
    """Gb/s from the first end, and from the other; of more ends, the lowest and the highest."""
    given = [end["gbps"] for end in leg["ends"]]
    known = [value for value in given if value is not None]
    if not known:
        return "not measured"
    if len(given) > 2:
        return f"{min(known):.1f} to {max(known):.1f} Gb/s"
    return " / ".join("-" if value is None else f"{value:.1f}" for value in given) + " Gb/s"


def marked(name: str) -> str:
    return STATES[name][0]


def text(x: float, y: float, words: str, *kinds: str, middle: bool = False, size: float = FONT) -> Html:
    classes = " ".join(kinds) or None
    return el(
        "text", words, x=n(x), y=n(y), font_size=n(size), class_=classes, text_anchor="middle" if middle else None
    )


def n(value: float) -> str:
    """A number, short and the same on every machine."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def describe(site: Mapping[str, Any]) -> str:
    """All legs as sentences, for who can't see a drawing."""
    return " ".join(
        f"Cable {leg['cable']}, rail {leg['rail']}, {leg['subnet']}, {STATES[state(leg)][1]}, {mtu(leg, site['mtu'])}, {rate(leg)}: "
        + ", ".join(f"{end['node']} port {end['port']} {end['netdev']} {end['address']}" for end in leg["ends"])
        + "."
        for leg in site["legs"]
    )


def by_cable(site: Mapping[str, Any]) -> list[list[Leg]]:
    """The legs of each cable; those of a switch carry all of them, each with its own end."""
    if site["shape"] == "switch":
        return [[_own(leg, node["name"]) for leg in site["legs"]] for node in site["nodes"]]
    return [
        [leg for leg in site["legs"] if leg["cable"] == cable]
        for cable in sorted({leg["cable"] for leg in site["legs"]})
    ]


def _own(leg: Leg, node: str) -> Leg:
    """The leg with this node's end alone."""
    return {**leg, "ends": [end for end in leg["ends"] if end["node"] == node]}


def ends_of(site: Mapping[str, Any], node: str) -> list[tuple[End, Leg]]:
    """A node's ends with their legs, by port and rail."""
    own = [(end, leg) for leg in site["legs"] for end in leg["ends"] if end["node"] == node]
    return sorted(own, key=lambda pair: (pair[0]["port"], pair[1]["rail"]))


def subtitle(node: Mapping[str, Any]) -> str:
    return f"rank {node['rank']}{' (head)' if node['rank'] == 0 else ''}, {node['management_address']}"


def heading(site: Mapping[str, Any]) -> str:
    count = len(site["nodes"])
    kinds = {"ring": f"Ring of {count} nodes", "switch": f"{count} nodes on a switch", "pair": "Pair of nodes"}
    bad = sum(state(leg) == "failed" for leg in site["legs"])
    verdict = f"{bad} of {len(site['legs'])} legs failed" if bad else f"{len(site['legs'])} legs"
    return f"{kinds.get(site['shape'], site['shape'])}, {verdict}"


def node_state(site: Mapping[str, Any], node: str) -> str:
    return worst(end["state"] for end, _leg in ends_of(site, node))


def cable_title(legs: Sequence[Leg]) -> str:
    """Empty at a switch, whose cables have no numbers."""
    return f"cable {legs[0]['cable']}" if len(legs[0]["ends"]) > 1 else ""
