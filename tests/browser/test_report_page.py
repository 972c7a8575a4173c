# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTML report in headless Chromium, on telephone and desk widths, in light and dark (`make report-test`)."""

from __future__ import annotations

import itertools
import shutil

import pytest

from ansible_collections.gb10.ring.tests.browser import looks, samples
from ansible_collections.gb10.ring.tests.browser.chromium import Browser

WIDTHS = (390, 768, 1024, 1440)

# Contrast of text with what is behind it, by WCAG 2: the paint of the nearest ancestor that has one.
CONTRAST = """
(() => {
  const parts = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = colour => { const [r, g, b] = parts(colour).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = one => { for (let at = one; at; at = at.parentElement) {
    const paint = getComputedStyle(at).backgroundColor; const [, , , alpha] = parts(paint); if (alpha === undefined || alpha > 0) return paint; }
    return getComputedStyle(document.body).backgroundColor; };
  return [...document.querySelectorAll('body *')].filter(one => one.checkVisibility() && !one.closest('svg')
    && [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())).map(one => {
      const pair = [light(getComputedStyle(one).color), light(behind(one))].sort((a, b) => b - a);
      return {text: one.textContent.trim().slice(0, 40), ratio: (pair[0] + 0.05) / (pair[1] + 0.05)};
    }).filter(one => one.ratio < 4.5);
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = shutil.which("chromium")
    assert program, "chromium is not installed; `make report-test` installs it"
    made = Browser(program, tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The URL of each page by name."""
    directory = tmp_path_factory.mktemp("pages")
    for name in samples.SAMPLES:
        (directory / f"{name}.html").write_text(samples.html(name), encoding="utf-8")
    return {name: (directory / f"{name}.html").as_uri() for name in samples.SAMPLES}


@pytest.mark.parametrize("name", ["healthy", "faulty"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_renders_offline_without_errors_and_fits(browser, pages, name, width):
    looks.offline_and_fitting(browser, pages[name], width)
    assert browser.value("document.compatMode") == "CSS1Compat"
    assert browser.value("getComputedStyle(document.querySelector('h1')).fontSize") == "27.2px"


@pytest.mark.parametrize("width", WIDTHS)
def test_every_text_is_large_enough_and_on_the_page(browser, pages, width):
    browser.open(pages["faulty"], width)
    assert len(looks.readable(browser, width)) > 300


@pytest.mark.parametrize(("width", "drawing"), [(390, "chain"), (768, "chain"), (1024, "ring"), (1440, "ring")])
def test_the_ring_and_the_bars_are_there(browser, pages, width, drawing):
    browser.open(pages["faulty"], width)
    drawn = looks.drawing(browser, drawing)
    words = browser.value(f"{drawn}.textContent")
    for expected in (
        "spark1",
        "spark2",
        "spark3",
        "10.100.0.1",
        "10.100.5.3",
        "MTU 9000",
        "MTU 1500 and 9000",
        "97.3 / 14.2 Gb/s",
    ):
        assert expected in words
    wires = looks.wires(browser, drawing)
    assert sorted(state for state, _colour in wires) == ["failed"] * 2 + ["ok"] * 4
    assert len({colour for _state, colour in wires}) == 2
    # spark3's engine was not looked at
    assert looks.bars(browser, empty=1) == ["disk"] * 3 + ["engram"] * 2 + ["memory"] * 3


@pytest.mark.parametrize(("width", "drawing"), [(390, "chain"), (1440, "ring")])
def test_only_the_legs_of_a_cut_cable_are_drawn_as_failed(browser, pages, width, drawing):
    browser.open(pages["cut"], width)
    assert "Ring of 3 nodes, 2 of 6 legs failed" in browser.value(f"{looks.drawing(browser, drawing)}.textContent")
    wires = looks.wires(browser, drawing)
    assert sorted(state for state, _colour in wires) == ["failed"] * 2 + ["ok"] * 4


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["healthy", "faulty"])
def test_text_stands_out_from_its_background(browser, pages, name, dark):
    browser.open(pages[name], 1440, dark)
    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(16, 20, 24)" if dark else "rgb(255, 255, 255)")
    assert browser.value(CONTRAST) == []


def test_headings_and_landmarks_are_in_order(browser, pages):
    browser.open(pages["faulty"], 1440)
    levels = browser.value("[...document.querySelectorAll('h1, h2, h3, h4')].map(one => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for landmark in ("header", "main", "footer", "nav[aria-label]"):
        assert browser.value(f"document.querySelectorAll('{landmark}').length") == 1
    assert browser.value("document.documentElement.lang") == "en"
    assert browser.value("[...document.querySelectorAll('th')].every(one => one.scope)") is True


def test_it_prints(browser, pages, tmp_path):
    browser.open(pages["faulty"], 1024)
    done = browser.call("Page.printToPDF", printBackground=True)
    assert len(done["data"]) > 20_000
