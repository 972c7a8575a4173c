# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small parts that every section of the HTML report uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .markup import Html, el, join

# State -> mark and word; the marks differ in shape.
STATES: Mapping[str, tuple[str, str]] = {
    "ok": ("\N{CHECK MARK}", "ok"),
    "warning": ("\N{WARNING SIGN}", "warning"),
    "failed": ("\N{MULTIPLICATION X}", "failed"),
    "unknown": ("?", "not known"),
}
_WORST = ("failed", "warning", "unknown", "ok")
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def state_of(check: Mapping[str, Any]) -> str:
    """The state that a check is shown with; one of severity info is never a failure."""
    if check["ok"]:
        return "ok"
    return {"error": "failed", "warning": "warning"}.get(str(check["severity"]), "unknown")


def worst(states: Iterable[str]) -> str:
    """The worst of them, unknown when there are none."""
    given = set(states)
    return next((state for state in _WORST if state in given), "unknown")


def state(name: str, word: str = "") -> Html:
    mark, usual = STATES[name]
    return el("span", f"{mark} {word or usual}", class_=f"state {name}")


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str | tuple[str, str]]], numbers: Sequence[int] = ()
) -> Html:
    """A table that becomes a list of records on a narrow screen. A cell may be (class, content). numbers: columns set to the right."""
    top = el(
        "tr",
        *(el("th", head, scope="col", class_="number" if at in numbers else None) for at, head in enumerate(heads)),
    )
    body = [el("tr", *(_cell(heads[at], cell, at, numbers) for at, cell in enumerate(row))) for row in rows]
    return el("table", el("caption", caption), el("thead", top), el("tbody", *body), class_="stack")


def _cell(head: str, cell: str | tuple[str, str], at: int, numbers: Sequence[int]) -> Html:
    kind, content = cell if isinstance(cell, tuple) else ("", cell)
    kinds = " ".join(filter(None, [kind, "number" if at in numbers else ""])) or None
    if at == 0:
        return el("th", content, scope="row", class_=kinds)
    return el("td", content, data_label=head, class_=kinds)


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Names and values under each other."""
    return el("dl", *(join([el("dt", name), el("dd", value)]) for name, value in pairs), class_="facts")


def section(name: str, title: str, *content: str) -> Html:
    return el("section", el("h2", title, id=f"{name}-title"), *content, id=name, aria_labelledby=f"{name}-title")


def size(count: float) -> str:
    """Bytes for a person, in powers of 1000 as disks are sold."""
    for unit in _UNITS:
        if abs(count) < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise ValueError(count)


def gib(count: float) -> str:
    """Bytes of memory, as the engine's settings count them."""
    return f"{count / (1 << 30):.1f} GiB"


def when(created: str) -> str:
    """An ISO time in UTC without its noise."""
    return f"{created[:10]} {created[11:16]} UTC" if created[10:11] == "T" else created
