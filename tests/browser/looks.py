# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to hold of a report in the browser, whoever wrote it: the samples of these tests, or verify.yml on the lab."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.ring.tests.browser.chromium import Browser

# Text that is drawn, with the size at which it is seen: that of a drawing shrinks with the drawing.
SEEN = """
[...document.querySelectorAll('body *')].filter(one => one.checkVisibility() && !one.closest('.skip, thead')
  && [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())).map(one => {
    const box = one.getBoundingClientRect(), drawing = one.closest('svg');
    const scale = drawing && drawing.viewBox.baseVal ? drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width : 1;
    const scroller = one.closest('.wide');
    return {text: one.textContent.trim().slice(0, 60), size: parseFloat(getComputedStyle(one).fontSize) * scale,
            left: box.left, right: box.right, scrolled: scroller !== null, tag: one.tagName};
  }).filter(one => !['title', 'desc', 'style'].includes(one.tag.toLowerCase()) && one.right > one.left)
"""

# Names that are broken in the middle: ids of checks, heads of columns, nodes and states in tables.
BROKEN = """
[...document.querySelectorAll('table.stack th code, table.stack thead th, td[data-label=node], td[data-label=state]')]
  .filter(one => one.checkVisibility() && getComputedStyle(one.closest('tr')).display === 'table-row').filter(one => {
    const range = document.createRange(); range.selectNodeContents(one);
    return new Set([...range.getClientRects()].map(box => Math.round(box.bottom / 12))).size > 1 && !one.textContent.trim().includes(' ');
  }).map(one => one.textContent)
"""

BARS = """
[...document.querySelectorAll('[data-bar] .bar')].map(one => { const box = one.getBoundingClientRect();
  return [one.closest('[data-bar]').dataset.bar, box.width, box.height, one.querySelectorAll('rect').length]; })
"""


def offline_and_fitting(browser: Browser, url: str, width: int) -> None:
    """Open it: no error, nothing else loaded, and no wider than the window."""
    browser.open(url, width)
    complaints = [
        event for event in browser.events if event.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")
    ]
    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    assert complaints == []
    assert asked == [url]
    assert browser.value("document.documentElement.scrollWidth") == width


def readable(browser: Browser, width: int) -> list[dict[str, Any]]:
    """Every text, with all that can be opened open: large enough, on the page, and in tables no name broken."""
    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    seen: list[dict[str, Any]] = browser.value(SEEN)
    assert [one for one in seen if one["size"] < 10] == []
    assert [one for one in seen if not one["scrolled"] and (one["left"] < 0 or one["right"] > width + 0.5)] == []
    assert browser.value(BROKEN) == []
    return seen


def drawing(browser: Browser, name: str) -> str:
    """The fabric as JavaScript finds it; it has to be this drawing that is shown, and no other."""
    shown = browser.value(
        "[...document.querySelectorAll('[data-drawing]')].filter(one => one.checkVisibility()).map(one => one.dataset.drawing)"
    )
    assert shown == [name]
    return f"document.querySelector('[data-drawing={name}]')"


def wires(browser: Browser, name: str) -> list[tuple[str, str]]:
    """State and colour of each leg in a drawing."""
    found = browser.value(
        f"[...document.querySelector('[data-drawing={name}]').querySelectorAll('.wire')]"
        ".map(one => [one.classList[1], getComputedStyle(one).stroke])"
    )
    return [(one[0], one[1]) for one in found]


def bars(browser: Browser, empty: int = 0) -> list[str]:
    """What the bars are of, sorted; each large enough and, but for so many empty ones, of several parts."""
    found = browser.value(BARS)
    assert all(across > 200 and down > 20 for _name, across, down, _parts in found), found
    assert [parts for *_rest, parts in found if parts < 3] == [1] * empty, found
    return sorted(name for name, *_rest in found)
