# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check
from ansible_collections.gb10.ring.plugins.module_utils.report.document import Report, summary_of
from ansible_collections.gb10.ring.plugins.module_utils.report.gather import RESULTS, site_checks
from ansible_collections.gb10.ring.plugins.module_utils.report.page import page
from ansible_collections.gb10.ring.plugins.module_utils.report.site import site
from ansible_collections.gb10.ring.tests.unit.fixtures import report_site

_VOID = {"meta", "br"}
NASTY = '<script>alert(1)</script>\x1b[31m\' onload="x" &amp; </style>'


class Tree(HTMLParser):
    """Elements with their attributes, and a complaint when they are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.elements = []
        self.words = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def having(self, name):
        return [attributes[name] for _tag, attributes in self.elements if name in attributes]


def earlier(*checks):
    """What is kept of a report with these checks."""
    return summary_of(Report("verify", "2026-11-29T03:00:00+00:00", [check.to_dict() for check in checks]))


def report(shape="ring", size=3, more=(), **values):
    hostvars = report_site.verified(shape, size)
    checks = [*site_checks(hostvars, hostvars, list(RESULTS)), *(check.to_dict() for check in more)]
    return Report("verify", report_site.CREATED, checks, site(hostvars, hostvars), report_site.benchmark())


def cable_cut(hostvars):
    """Legs that are down, and the others."""
    report_site.cut(hostvars, "spark2", "spark3")
    return 2, 4


def node_off(hostvars):
    report_site.switch_off(hostvars, "spark3")
    return 4, 2


@pytest.mark.parametrize(("shape", "size"), [("ring", 2), ("ring", 3), ("ring", 8), ("pair", 2), ("switch", 3)])
def test_a_healthy_group_is_all_good(shape, size):
    tree = Tree(page(report(shape, size), []))
    words = " ".join(tree.words)
    assert "All good" in words
    assert "Nothing: every check holds." in words
    assert sorted(tree.having("data-drawing")) == ["chain", "ring"]
    assert sorted(tree.having("data-bar")) == sorted(["disk", "memory"] * size + ["engram"])
    assert "failed" not in " ".join(tree.having("class")).split()
    for address in (f"10.100.{leg}.1" for leg in range(2)):
        assert words.count(address) >= 3  # both drawings and the table
    assert "92.6 / 92.6 Gb/s" in words or shape == "switch"
    assert "MTU 9000" in words


def test_nothing_is_loaded_or_run():
    tree = Tree(page(report(), []))
    assert not {"script", "link", "img", "iframe", "object", "form"} & {tag for tag, _attributes in tree.elements}
    assert [one for one in tree.having("href") if not one.startswith("#")] == []
    assert tree.having("src") == []
    assert not [name for _tag, attributes in tree.elements for name in attributes if name.startswith("on")]
    policy = dict(zip(tree.having("http-equiv"), tree.having("content"), strict=False))
    assert policy["Content-Security-Policy"].startswith("default-src 'none'")
    assert "url(" not in page(report(), [])


def test_a_text_of_a_node_never_becomes_markup():
    bad = Check("fabric.mtu", NASTY, False, NASTY, NASTY, NASTY)
    held = report(more=[bad, replace(bad, severity="info")])
    versions = [{"name": NASTY, "values": {"spark1": NASTY}, "odd": ["spark1"]}]
    site_of = {**held.site, "versions": versions}
    rows = [{**row, "source": NASTY, "note": NASTY} for row in held.benchmark["rows"]]
    text = page(replace(held, site=site_of, benchmark={**held.benchmark, "profile": NASTY, "rows": rows}), [])
    tree = Tree(text)
    assert "script" not in [tag for tag, _attributes in tree.elements]
    assert "onload" not in [name for _tag, attributes in tree.elements for name in attributes]
    assert text.count("</style>") == 1
    assert "\x1b" not in text
    assert "".join(tree.words).count("<script>alert(1)</script>") >= 9


def test_what_failed_is_first_with_its_cure():
    bad = [
        Check("memory.sysctl", "spark1", False, "60", "10", "run the memory role", "warning"),
        Check("fabric.mtu", "spark2", False, "1500 bytes", "9000 bytes", "run the fabric role"),
    ]
    words = "\n".join(Tree(page(report(more=bad), [])).words)
    assert re.search(r"Failures\n.*1 error, 1 warning", words)
    todo = words[words.index("What to do") :]
    assert todo.index("run the fabric role") < todo.index("run the memory role") < todo.index("Each line is a leg")


def test_what_is_the_same_on_several_nodes_is_told_once():
    bad = [Check("memory.swap", node, False, "on", "off", "run the memory role") for node in ("spark1", "spark3")]
    other = Check("memory.swap", "spark2", False, "/swap.img", "off", "run the memory role")
    words = Tree(page(report(more=[*bad, other]), [])).words
    assert words.count("run the memory role") == 2
    assert "spark1, spark3" in words


def test_the_group_as_a_whole_is_beside_the_drawing():
    more = [Check("fabric.allreduce_bandwidth", "spark1", True, "23.2 GB/s", "at least 18 GB/s")]
    words = " ".join(Tree(page(report(more=more), [])).words)
    assert words.index("Cables and the group as a whole") < words.index("23.2 GB/s") < words.index("Disk")


def test_at_a_switch_a_fault_is_shown_on_the_cable_of_its_node():
    held = report("switch", 4)
    end = held.site["legs"][0]["ends"][2]
    end.update(state="failed", gbps=14.2)
    wires = [one for one in Tree(page(held, [])).having("class") if str(one).startswith("wire")]
    assert sorted(wires) == sorted(["wire failed"] * 2 + ["wire ok"] * 14)  # in both drawings
    assert "14.2 to 92.6 Gb/s" in page(held, [])


@pytest.mark.parametrize("happens", [cable_cut, node_off])
def test_only_the_legs_that_are_down_are_drawn_as_failed(happens):
    hostvars = report_site.verified()
    bad, good = happens(hostvars)
    held = Report(
        "verify", report_site.CREATED, site_checks(hostvars, hostvars, list(RESULTS)), site(hostvars, hostvars)
    )
    tree = Tree(page(held, []))
    wires = [one for one in tree.having("class") if str(one).startswith("wire")]
    assert sorted(wires) == sorted(["wire failed"] * bad * 2 + ["wire ok"] * good * 2)  # in both drawings
    assert f"{bad} of 6 legs failed" in " ".join(tree.words)


def test_links_lead_to_sections():
    tree = Tree(page(report(), []))
    assert {one[1:] for one in tree.having("href")} <= set(tree.having("id"))
    bare = Tree(page(Report("fabric", report_site.CREATED, []), []))
    assert {one[1:] for one in bare.having("href")} <= set(bare.having("id"))
    assert "The engine was not looked at." in bare.words
    assert len(set(tree.having("id"))) == len(tree.having("id"))


def test_pictures_have_words():
    tree = Tree(page(report(), []))
    pictures = [attributes for tag, attributes in tree.elements if tag == "svg" and "aria-hidden" not in attributes]
    assert {one.get("role") for one in pictures} == {"img"}
    words = " ".join(tree.words)
    assert (
        "Cable 1, rail 0, 10.100.0.0/24, ok, MTU 9000, 92.6 / 92.6 Gb/s: spark1 port 0 enp1s0f0np0 10.100.0.1" in words
    )


def test_a_gap_in_the_engram_rows_is_named():
    held = report()
    held.site["nodes"][1]["engram"]["ranges"]["1"] = [200000000, 256004112]
    words = " ".join(Tree(page(held, [])).words)
    assert "no node holds 128,002,056 to 200,000,000" in words


def test_rows_that_two_nodes_hold_are_named():
    held = report()
    held.site["nodes"][1]["engram"]["ranges"]["14"][0] -= 1000
    assert "1,000 of them twice" in " ".join(Tree(page(held, [])).words)


def test_the_odd_version_is_marked():
    held = report()
    held.site["versions"][1].update(values={"spark1": "7.0", "spark2": "6.17", "spark3": "6.17"}, odd=["spark1"])
    odd = [attributes for tag, attributes in Tree(page(held, [])).elements if "odd" in str(attributes.get("class"))]
    assert [one["data-label"] for one in odd] == ["spark1"]


def test_acceptance_has_what_was_asked_and_answered():
    words = Tree(page(report(), [])).words
    assert "engine.acceptance_arithmetic" in words
    asked = next(word for word in words if word.startswith("17*19, "))
    assert asked.endswith("the number only")
    assert any(word.startswith("17*19 = '323'; ") for word in words)
    assert "Repeat this word exactly, without anything else: harbourabc" in words


def test_history_says_what_changed():
    now = [
        Check("fabric.mtu", "spark2", False, "1500 bytes", "9000 bytes", "x"),
        Check("memory.swap", "spark3", True, "off", "off"),
    ]
    before = earlier(
        Check("fabric.mtu", "spark2", True, "9000 bytes", "9000 bytes"),
        Check("memory.swap", "spark3", False, "on", "off", "x"),
    )
    words = "".join(Tree(page(report(more=now), [before])).words)
    assert "failed since: spark2 fabric.mtu" in words
    assert "hold again: spark3 memory.swap" in words
    assert "2026-11-29 03:00 UTC" in words
    assert "2026-11-30 03:00 UTC (this one)" in words
    assert "This is the first report that is kept." in Tree(page(report(), [])).words


DEAD = Check("engine.unit", "spark1", False, "failed", "active", "run the engine role")
WELL = Check("fabric.mtu", "spark1", True, "9000 bytes", "9000 bytes")


def test_history_claims_nothing_of_what_was_not_looked_at():
    """A whole run in which the engine is dead, a part of it, and the whole again."""

    def words(now, before):
        held = Report("verify", report_site.CREATED, [check.to_dict() for check in now])
        return "".join(Tree(page(held, [earlier(*before)])).words)

    part, whole = words([WELL], [WELL, DEAD]), words([WELL, DEAD], [WELL])
    assert "failed then, without a result now: spark1 engine.unit" in part
    assert "failed, without a result then: spark1 engine.unit" in whole
    for text in (part, whole, words([WELL], [WELL, replace(DEAD, ok=True)])):
        assert "hold again" not in text
        assert "failed since" not in text
    assert "The same checks hold as in" in words([WELL, DEAD], [WELL, DEAD])
    assert "Of the checks that both have, the same hold as in" in words([WELL], [WELL, replace(DEAD, ok=True)])


def test_the_benchmark_stands_beside_what_was_published():
    tree = Tree(page(report(), []))
    words = " ".join(tree.words)
    assert tree.having("data-plot") == ["prefill", "decode"]
    assert "2,195.4 tok/s" in words
    assert "2,209.0 tok/s" in words
    assert "none: longer than the context" in words
    assert "Thinking: off." in words
    for untold in ({}, {"conditions": None}, {"conditions": {"thinking": ""}}):
        held = {**report().benchmark, "conditions": {}, **untold}
        assert "Thinking: not stated." in " ".join(Tree(page(replace(report(), benchmark=held), [])).words)
    assert "There is no benchmark" in " ".join(Tree(page(replace(report(), benchmark=None), [])).words)
