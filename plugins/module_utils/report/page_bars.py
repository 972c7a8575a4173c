# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bars of a node in the HTML report: disk against its ceiling, memory, and which rows of the Engram tables it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .markup import Html, el
from .page_marks import gib, size

Part = tuple[str, str, float]  # class of its colour, text of the key, amount


def stacked(label: str, whole: float, parts: Sequence[Part], limit: float | None = None) -> Html:
    """Parts from the left, side by side, of a whole; limit: where a line stands."""
    shapes, at = [], 0.0
    for kind, _text, amount in parts:
        width = _share(amount, whole)
        shapes.append(el("rect", x=_n(at), y=0, width=_n(width), height=10, class_=kind))
        at += width
    shapes.append(el("rect", x=0, y=0, width=100, height=10, fill_opacity=0, class_="rail"))
    if limit is not None:
        there = _n(_share(limit, whole))
        shapes.append(el("line", x1=there, x2=there, y1=0, y2=10, class_="limit"))
    return el(
        "svg",
        el("title", label),
        *shapes,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        class_="bar",
        role="img",
        aria_label=label,
    )


def key(parts: Sequence[Part]) -> Html:
    """What the colours stand for."""
    patch = [
        el("svg", el("rect", width=12, height=12, class_=kind), aria_hidden="true") for kind, _text, _amount in parts
    ]
    return el("ul", *(el("li", patch[at], text) for at, (_kind, text, _amount) in enumerate(parts)), class_="key")


def disk(held: Mapping[str, Any]) -> Html:
    """Revisions by what they take, the rest that is used, and the line that a stage may not cross."""
    shown: list[Part] = []
    left = float(held["used"])
    for one in sorted(held["revisions"], key=lambda one: not one["active"]):
        taken = min(left, float(one["allocated"]))  # files that revisions share are counted with the active one
        left -= taken
        name = f"{'active' if one['active'] else 'older'} {one['revision'][:12]}{'' if one['complete'] else ' (incomplete)'}"
        kind = "wrong" if not one["complete"] else "a" if one["active"] else "d"
        shown.append((kind, f"{name}: {one['files']} files, {size(one['bytes'])}", taken))
    unfinished = min(left, float(held["unfinished"]))
    if unfinished:
        left -= unfinished
        shown.append(("wrong", f"unfinished staging: {size(unfinished)}", unfinished))
    shown.append(("c", f"everything else: {size(left)}", left))
    label = f"{size(held['used'])} of {size(held['size'])} used, ceiling {size(held['ceiling'])}"
    return el(
        "div",
        el("h4", "Disk"),
        el("p", label, class_="faint"),
        stacked(f"Disk: {label}", held["size"], shown, held["ceiling"]),
        key(shown),
        data_bar="disk",
    )


def memory(held: Mapping[str, Any]) -> Html:
    """Weights and KV cache as the engine told them, what else is used, and what is available."""
    total = float(held["total"])
    shown: list[Part] = []
    for kind, name, part in (("a", "weights", held["weights"]), ("b", "KV cache", held["kv"])):
        if part is not None:
            shown.append((kind, f"{name}: {gib(part)}", float(part)))
    known = sum(amount for _kind, _text, amount in shown)
    if held["available"] is None:
        label = f"{gib(total)} in all; what is in use was not looked at"
    else:
        available = float(held["available"])
        rest = max(0.0, total - available - known)
        shown += [("c", f"everything else: {gib(rest)}", rest), ("none", f"available: {gib(available)}", available)]
        label = f"{gib(available)} of {gib(total)} available"
    return el(
        "div",
        el("h4", "Memory"),
        el("p", label, class_="faint"),
        stacked(f"Memory: {label}", total, shown),
        key(shown),
        data_bar="memory",
    )


def engram(nodes: Sequence[Mapping[str, Any]]) -> Html:
    """One strip a table with every node's rows where they lie, gaps in the colour of a fault; empty when no node holds rows."""
    held = [(node["name"], node["engram"]) for node in nodes if node["engram"]]
    if not held:
        return Html("")
    tables = {layer: rows for _name, one in held for layer, rows in one["tables"].items()}
    strips = [_strip(layer, rows, held) for layer, rows in sorted(tables.items(), key=lambda pair: int(pair[0]))]
    rules = ", ".join(sorted({one["rule"] for _name, one in held}))
    return el("div", el("h3", f"Engram rows (rule {rules})"), *strips, class_="card", data_bar="engram")


def _strip(layer: str, rows: int, held: Sequence[tuple[str, Mapping[str, Any]]]) -> Html:
    ranges = sorted((*one["ranges"][layer], at, name) for at, (name, one) in enumerate(held) if layer in one["ranges"])
    shown: list[Part] = []
    reached = 0
    for first, after, at, name in ranges:
        if first > reached:
            shown.append(("wrong", f"no node holds {reached:,} to {first:,}", first - reached))
        overlap = f", {reached - first:,} of them twice" if first < reached else ""
        shown.append(("abd"[at % 3], f"{name}: {first:,} to {after:,}{overlap}", max(0, after - max(first, reached))))
        reached = max(reached, after)
    if reached < rows:
        shown.append(("wrong", f"no node holds {reached:,} to {rows:,}", rows - reached))
    return el(
        "div",
        el("h4", f"Layer {layer}: {rows:,} rows"),
        stacked(f"Rows of layer {layer} by node", rows, shown),
        key(shown),
    )


def _share(amount: float, whole: float) -> float:
    return min(100.0, max(0.0, 100.0 * amount / whole)) if whole else 0.0


def _n(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")
