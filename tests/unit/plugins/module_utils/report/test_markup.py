# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.report.markup import Html, el, join


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (el("p", 'a < b & "c"'), "<p>a &lt; b &amp; &quot;c&quot;</p>"),
        (el("p", Html("<b>x</b>"), "<b>"), "<p><b>x</b>&lt;b&gt;</p>"),
        (el("td", "x", class_="odd", data_label='a"b'), '<td class="odd" data-label="a&quot;b">x</td>'),
        (el("details", open=True, class_=None), "<details open></details>"),
        (el("details", open=False), "<details></details>"),
        (el("rect", x=0, fill_opacity=0), '<rect x="0" fill-opacity="0"/>'),
        (el("svg", viewBox="0 0 1 1"), '<svg viewBox="0 0 1 1"></svg>'),
        (el("line", el("title", "t"), x1=1), '<line x1="1"><title>t</title></line>'),
        (join(["a\x00\x1b[31m", Html("<br/>"), "\tb\n"]), "a\ufffd\ufffd[31m<br/>\tb\n"),
    ],
)
def test_only_what_is_markup_stays_markup(made, expected):
    assert made == expected
