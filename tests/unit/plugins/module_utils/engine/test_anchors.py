# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every rate that the page of an engine publishes is what its benchmark is shown beside, or is on a list with the reason why not."""

from __future__ import annotations

import re

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.engine.anchors import PUBLISHED
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import ENGINE, ROLE

PAGES = sorted((ROLE.parents[1] / "docs" / "engines").glob("*.md"))
NUMBER = r"\d[\d,]*(?:\.\d+)?"
# "26.5; 31 to 35; 65 tok/s" or "2,209, 2,262 and 1,740 tok/s": one unit for all numbers before it.
RATES = re.compile(rf"((?:{NUMBER}(?:;|,| and| to)? )+)tok/s")


def figures(text):
    """Of a range, its lower end."""
    for match in RATES.finditer(text):
        low = re.sub(rf"({NUMBER}) to {NUMBER}", r"\1", match[1])
        yield from (float(number.replace(",", "")) for number in re.findall(NUMBER, low))


def reasons():
    return yaml.safe_load((ENGINE / "published" / "no-anchors.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_published_rate_has_an_anchor_or_a_reason(page):
    anchored = [anchor.rate for anchor in PUBLISHED.get(page.stem, ())]
    given = {float(number): reason for number, reason in reasons().get(page.stem, {}).items()}
    found = set(figures(page.read_text(encoding="utf-8")))
    assert found == {*anchored, *given}
    assert not set(anchored) & set(given)
    assert all(len(reason) > 20 for reason in given.values())


def test_the_pages_have_rates_and_the_pattern_finds_all_of_them():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert len(RATES.findall(text)) == text.count("tok/s") > 10
    assert list(figures("26.5; 31 to 35; 65 tok/s and 2,209, 2,262 and 1,740 tok/s")) == [
        26.5,
        31,
        65,
        2209,
        2262,
        1740,
    ]


def test_every_anchor_has_a_source_and_a_known_kind():
    anchors = [anchor for held in PUBLISHED.values() for anchor in held]
    assert {anchor.kind for anchor in anchors} == {"prefill", "decode, prose", "decode, code"}
    assert all(anchor.source and anchor.rate > 0 and anchor.concurrency == 1 for anchor in anchors)
