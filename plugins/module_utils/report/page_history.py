# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Earlier reports in the HTML report: how each ended, and what has changed since the last one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .document import Earlier, changes
from .markup import Html, el, join
from .page_marks import section, state, table, when

_STATES = {"ok": "ok", "warnings": "warning", "failures": "failed"}


def history(now: Earlier, earlier: Sequence[Earlier]) -> Html:
    """earlier: oldest first, without this one."""
    if not earlier:
        return section("history", "History", el("p", "This is the first report that is kept."))
    reports = [*earlier, now]
    rows = [_row(one, one is now) for one in reversed(reports)]
    heads = ("report", "result", "errors", "warnings", "checks")
    return section(
        "history",
        "History",
        _changes(now, earlier[-1]),
        _strip(reports),
        table("Newest first", heads, rows, numbers=(2, 3, 4)),
    )


def _row(one: Earlier, current: bool) -> tuple[str, str, str, str, str]:
    shown = state(_STATES[one.result], "all good" if one.result == "ok" else one.result)
    numbers = one.counts
    name = f"{when(one.created)}{' (this one)' if current else ''}"
    return name, shown, str(numbers["errors"]), str(numbers["warnings"]), str(numbers["checks"])


def _changes(now: Earlier, before: Earlier) -> Html:
    """A part alone, a node that is gone or a role that could not look leaves checks out: of those nothing is claimed."""
    found = changes(now, before)
    told = [
        ("failed since", found.failed),
        ("failed, without a result then", found.failed_new),
        ("hold again", found.held),
        ("failed then, without a result now", found.failed_gone),
    ]
    said = [el("p", el("strong", f"{words}: "), _listed(pairs)) for words, pairs in told if pairs]
    if said:
        return join([el("p", f"Since the report of {when(before.created)}:"), *said])
    if set(now.looked) == set(before.looked):
        return el("p", f"The same checks hold as in the report of {when(before.created)}.")
    return el("p", f"Of the checks that both have, the same hold as in the report of {when(before.created)}.")


def _listed(pairs: Iterable[tuple[str, str]]) -> Html:
    texts = [el("code", f"{node} {name}") for node, name in pairs]
    return join([texts[0], *(part for text in texts[1:] for part in (", ", text))])


def _strip(reports: Sequence[Earlier]) -> Html:
    """One column a report: how much of it did not hold, in the colour of its result."""
    most = max(1, *(one.counts["errors"] + one.counts["warnings"] for one in reports))
    step = 720 / max(12, len(reports))
    shapes = []
    for at, one in enumerate(reports):
        bad = one.counts["errors"] + one.counts["warnings"]
        height = 6 + 54 * bad / most
        kind = {"ok": "b", "warnings": "d", "failures": "wrong"}[one.result]
        title = el("title", f"{when(one.created)}: {one.result}, {bad} did not hold")
        x, y = f"{at * step + 2:.1f}", f"{62 - height:.1f}"
        shapes.append(el("rect", title, x=x, y=y, width=f"{step - 4:.1f}", height=f"{height:.1f}", class_=kind))
    words = f"Checks that did not hold in each of the last {len(reports)} reports, at most {most}"
    axis = el("line", x1=0, x2=720, y1=63, y2=63, class_="axis")
    return el(
        "svg", el("title", words), *shapes, axis, viewBox="0 0 720 64", class_="plot", role="img", aria_label=words
    )
