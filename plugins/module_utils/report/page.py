# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as one HTML file that needs nothing from outside: no script, no font, no network. Sections are in page_*.py; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .checks import failed
from .document import Earlier, Report, summary_of
from .markup import Html, el, join
from .page_bars import disk, engram, memory
from .page_bench import benchmark
from .page_chain import chain
from .page_history import history
from .page_legs import node_state
from .page_marks import facts, section, state, state_of, table, when, worst
from .page_ring import ring
from .page_style import CSS

# Nothing may be loaded or run, whatever a text of a node contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
# What is measured over more than one leg.
_OF_THE_GROUP = ("fabric.allreduce", "fabric.bandwidth_sum", "fabric.cabling")
_VERDICTS = {"ok": "All good", "warnings": "Warnings", "failures": "Failures"}


def page(report: Report, earlier: Sequence[Earlier]) -> str:
    """The whole file. earlier: oldest first, without this report."""
    site = report.site or {"shape": "", "mtu": 0, "legs": [], "nodes": [], "versions": []}
    sections = [
        _todo(report),
        *([_fabric(site, report.checks)] if site["legs"] else []),
        *([_nodes(site)] if site["nodes"] else []),
        *([_versions(site)] if site["versions"] else []),
        _engine(report),
        benchmark(report.benchmark),
        _all_checks(report.checks),
        history(summary_of(report), earlier),
    ]
    title = f"gb10.ring {report.title}: {_VERDICTS[report.result].lower()}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", title),
        el("style", Html(CSS)),
    )
    body = el("body", _header(report), el("main", *sections, id="content"), _footer(report))
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def _header(report: Report) -> Html:
    numbers = report.counts
    words = [f"{numbers['held']} of {numbers['checks']} checks hold"]
    kinds = ("errors", "warnings", "notes")
    words += [f"{numbers[kind]} {kind if numbers[kind] > 1 else kind[:-1]}" for kind in kinds if numbers[kind]]
    links = {
        "todo": "What to do",
        "fabric": "Fabric",
        "nodes": "Nodes",
        "versions": "Versions",
        "engine": "Engine",
        "benchmark": "Benchmark",
        "checks": "All checks",
        "history": "History",
    }
    site = report.site or {}
    absent = {
        name for name, part in (("fabric", "legs"), ("nodes", "nodes"), ("versions", "versions")) if not site.get(part)
    }
    shown = {name: text for name, text in links.items() if name not in absent}
    return el(
        "header",
        el("a", "Skip to the report", href="#content", class_="skip"),
        el("h1", f"gb10.ring: {report.title}"),
        el("p", when(report.created), class_="faint"),
        el(
            "div",
            el("strong", _VERDICTS[report.result]),
            el("span", ", ".join(words)),
            class_=f"verdict {report.result}",
        ),
        el(
            "nav",
            el("ul", *(el("li", el("a", text, href=f"#{name}")) for name, text in shown.items())),
            aria_label="Sections",
        ),
    )


def _footer(report: Report) -> Html:
    return el("footer", f"Made by gb10.ring at {report.created}. The same as data: the JSON file beside this one.")


# --- what to do -------------------------------------------------------------------------------------------------------


def _todo(report: Report) -> Html:
    bad = failed(report.checks)
    if not bad:
        return section("todo", "What to do", el("p", "Nothing: every check holds."))
    return section("todo", "What to do", el("ol", *(_task(same) for same in _grouped(bad)), class_="todo"))


def _grouped(checks: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """What is the same on several nodes is one thing to do."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for check in checks:
        key = tuple(str(check[name]) for name in ("severity", "id", "found", "expected", "cure"))
        groups.setdefault(key, []).append(check)
    return list(groups.values())


def _task(same: Sequence[Mapping[str, Any]]) -> Html:
    check = same[0]
    name = state_of(check)
    word = "to know" if name == "unknown" else ""
    nodes = ", ".join(dict.fromkeys(str(one["node"]) for one in same))
    head = el("h3", el("span", state(name, word)), el("span", nodes), el("code", check["id"]))
    pairs = [("found", check["found"]), ("expected", check["expected"]), ("cure", check["cure"])]
    return el("li", head, facts(pair for pair in pairs if pair[1]), class_=name)


# --- the group --------------------------------------------------------------------------------------------------------


def _fabric(site: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]) -> Html:
    rates = any(end["gbps"] is not None for leg in site["legs"] for end in leg["ends"])
    legend = "Each line is a leg: one rail of one cable. "
    legend += (
        "Gb/s: from the first end of the leg / from the other. "
        if rates
        else "Bandwidth is measured with fabric_bandwidth: true. "
    )
    legend += "P0 is the cage beside the RJ45 socket, P1 the other."
    rows = [
        (
            f"{leg['cable']}, rail {leg['rail']}",
            el("code", end["netdev"]),
            end["node"],
            f"P{end['port']}",
            end["address"],
            _mtu(end),
            _gbps(end),
            _end_state(end),
        )
        for leg in site["legs"]
        for end in leg["ends"]
    ]
    heads = ("cable", "netdev", "node", "port", "address", "MTU", "Gb/s out", "state")
    whole = [check for check in checks if check["id"].startswith(_OF_THE_GROUP)]
    return section(
        "fabric",
        "Fabric",
        el("div", ring(site), class_="drawing wide", tabindex=0, role="region", aria_label="Drawing of the fabric"),
        el("div", chain(site), class_="drawing narrow"),
        el("p", legend, class_="faint legend"),
        el("details", el("summary", "Legs as a table"), table("Both ends of each leg", heads, rows, numbers=(5, 6))),
        _checks_table("Cables and the group as a whole", whole) if whole else "",
    )


def _mtu(end: Mapping[str, Any]) -> str:
    return "not known" if end["mtu"] is None else f"{end['mtu']:.0f}"


def _gbps(end: Mapping[str, Any]) -> str:
    return "not measured" if end["gbps"] is None else f"{end['gbps']:.1f}"


def _end_state(end: Mapping[str, Any]) -> Html:
    return join([state(end["state"]), f" {', '.join(end['problems'])}" if end["problems"] else ""])


def _nodes(site: Mapping[str, Any]) -> Html:
    cards = [_node(node, site) for node in site["nodes"]]
    return section(
        "nodes", "Nodes", el("div", *cards, class_="cards"), el("div", engram(site["nodes"]), class_="engram")
    )


def _node(node: Mapping[str, Any], site: Mapping[str, Any]) -> Html:
    role = f"rank {node['rank']}{' (head)' if node['rank'] == 0 else ''}, {node['management_address']}"
    return el(
        "article",
        el(
            "h3",
            f"{node['name']} ",
            state(node_state(site, node["name"]), "" if site["legs"] else "not looked at"),
            " legs",
        ),
        el("p", role, class_="faint"),
        disk(node["disk"]) if node["disk"] else el("p", "The checkpoint was not looked at.", class_="faint"),
        memory(node["memory"]) if node["memory"] else "",
        class_="card",
    )


def _versions(site: Mapping[str, Any]) -> Html:
    names = [node["name"] for node in site["nodes"]]
    rows = [
        (
            row["name"],
            *(
                ("odd", row["values"].get(name, "not known"))
                if name in row["odd"]
                else row["values"].get(name, "not known")
                for name in names
            ),
        )
        for row in site["versions"]
    ]
    return section("versions", "Versions", table("What should be the same on all nodes", ("what", *names), rows))


# --- checks -----------------------------------------------------------------------------------------------------------


def _engine(report: Report) -> Html:
    own = [check for check in report.checks if check["id"].startswith("engine.")]
    if not own:
        return section("engine", "Engine", el("p", "The engine was not looked at."))
    asked = [check for check in own if "asked" in check]
    rest = [check for check in own if "asked" not in check]
    content = [_checks_table("Unit, health, and what its settings claim", rest)] if rest else []
    if asked:
        heads = ("question", "state", "asked", "answered", "expected")
        rows = [
            (el("code", check["id"]), state(state_of(check)), check["asked"], check["answered"], check["expected"])
            for check in asked
        ]
        content.append(table("Acceptance", heads, rows))
    return section("engine", "Engine", *content)


def _all_checks(checks: Sequence[Mapping[str, Any]]) -> Html:
    subjects = sorted({str(check["id"]).partition(".")[0] for check in checks})
    return section(
        "checks",
        "All checks",
        *(_subject(name, [one for one in checks if one["id"].partition(".")[0] == name]) for name in subjects),
    )


def _subject(name: str, checks: Sequence[Mapping[str, Any]]) -> Html:
    here = worst("ok" if check["severity"] == "info" else state_of(check) for check in checks)
    held = sum(check["ok"] for check in checks)
    summary = el("summary", f"{name}: {held} of {len(checks)} hold ", state(here))
    return el("details", summary, _checks_table(f"Checks of {name}", checks))


def _checks_table(caption: str, checks: Sequence[Mapping[str, Any]]) -> Html:
    ordered = sorted(checks, key=lambda check: (check["ok"], check["id"], check["node"]))
    rows = [
        (el("code", check["id"]), check["node"], state(state_of(check)), check["found"], check["expected"])
        for check in ordered
    ]
    return table(caption, ("check", "node", "state", "found", "expected"), rows)
