# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark in the HTML report: what was measured beside what the profile's authors published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .markup import Html, el
from .page_marks import section, table, when

_ROW = 48
_WIDE = 400

_NUMBER = (int, float)
_FIELDS: Mapping[str, tuple[type, ...]] = {"kind": (str,), "tokens": (int,), "concurrency": (int,), "unit": (str,)}
_FIGURES = ("median", "low", "high", "published")  # each a number or null


def problem(held: Any) -> str:
    """Why this is no benchmark as docs/report.schema.json has it, and cannot be shown; empty when it is one."""
    if (
        not isinstance(held, Mapping)
        or not isinstance(held.get("rows"), list)
        or not {"created", "profile"} <= set(held)
    ):
        return "no created, profile and rows"
    if not isinstance(held["created"], str):
        return "created is no text"
    told = ((number, _row_problem(row)) for number, row in enumerate(held["rows"]))
    return next((f"rows[{number}]: {text}" for number, text in told if text), "")


def _row_problem(row: Any) -> str:
    if not isinstance(row, Mapping):
        return "no measurement"
    bad = [name for name, kinds in _FIELDS.items() if not isinstance(row.get(name), kinds)]
    bad += [name for name in _FIGURES if row.get(name) is not None and not isinstance(row[name], _NUMBER)]
    if "median" not in row:
        bad.append("median")
    if (row.get("low") is None) != (row.get("high") is None):
        bad.append("low and high")
    return f"{', '.join(bad)} missing or wrong" if bad else ""


def benchmark(held: Mapping[str, Any] | None) -> Html:
    """The last benchmark, or how to make one."""
    if held is None:
        return section(
            "benchmark",
            "Benchmark",
            el("p", "There is no benchmark of this group yet: ", el("code", "bench.yml"), " makes one."),
        )
    rows: Sequence[Mapping[str, Any]] = held["rows"]
    kinds = dict.fromkeys(str(row["kind"]) for row in rows)
    plots = [_plot(kind, [row for row in rows if row["kind"] == kind]) for kind in kinds]
    heads = ("measurement", "prompt tokens", "concurrency", "median", "lowest to highest", "published", "source")
    return section(
        "benchmark",
        "Benchmark",
        el(
            "p",
            f"Profile {held['profile']}, {when(held['created'])}. Medians; each prompt began with a nonce of its own. "
            f"Thinking: {_thinking(held)}.",
        ),
        el("div", *plots, class_="cards"),
        table("All measurements", heads, [_cells(row) for row in rows], numbers=(1, 2, 3)),
    )


def _thinking(held: Mapping[str, Any]) -> str:
    conditions = held.get("conditions")
    return str(conditions.get("thinking") or "not stated") if isinstance(conditions, Mapping) else "not stated"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    published = "none" if row.get("published") is None else _rate(row["published"], row)
    return (
        str(row["kind"]),
        f"{row['tokens']:,}",
        str(row["concurrency"]),
        _rate(row["median"], row) if row["median"] is not None else f"none: {row.get('note') or 'no result'}",
        "none" if row.get("low") is None else f"{row['low']:,.1f} to {row['high']:,.1f}",
        published,
        str(row.get("source") or ""),
    )


def _rate(value: float, row: Mapping[str, Any]) -> str:
    return f"{value:,.1f} {row['unit']}"


def _plot(kind: str, rows: Sequence[Mapping[str, Any]]) -> Html:
    """A bar a measurement from zero; a line where the published number is."""
    known = [float(value) for row in rows for value in (row["median"], row.get("published")) if value is not None]
    if not known:
        return Html("")
    scale = _WIDE / max(*known, 1e-9)
    shapes: list[Html] = []
    for at, row in enumerate(rows):
        y = at * _ROW
        name = f"{row['tokens']:,} tokens, {row['concurrency']} at once"
        said = "no result" if row["median"] is None else f"{row['median']:,.1f}"
        shapes.append(el("text", name, x=0, y=y + 14, font_size=12))
        shapes.append(el("text", said, x=_WIDE, y=y + 14, font_size=12, class_="end"))
        length = float(row["median"] or 0) * scale
        shapes.append(el("rect", x=0, y=y + 22, width=f"{length:.1f}", height=14, class_="a"))
        if row.get("published") is not None:
            x = f"{float(row['published']) * scale:.1f}"
            title = el("title", f"published: {_rate(row['published'], row)}")
            shapes.append(el("line", title, x1=x, x2=x, y1=y + 19, y2=y + 39, class_="published"))
    words = f"{kind} in {rows[0]['unit']}; the upright line is the published number"
    picture = el(
        "svg",
        el("title", words),
        *shapes,
        viewBox=f"-2 0 {_WIDE + 4} {len(rows) * _ROW}",
        class_="plot",
        role="img",
        aria_label=words,
    )
    return el("figure", el("figcaption", words, class_="faint"), picture, data_plot=kind)
