# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mark-up built from parts, so that a text of a node can never become mark-up: what is not Html is escaped on its way in."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = ("br", "circle", "line", "meta", "path", "rect", "use")


class Html(str):
    """Text that is mark-up already."""

    __slots__ = ()


def el(tag: str, *children: str, **attributes: object) -> Html:
    """An element. class_ becomes class, other underscores hyphens; an attribute that is None or False is left out."""
    given = "".join(
        _attribute(name, value) for name, value in attributes.items() if value is not None and value is not False
    )
    if tag in _VOID and not children:
        return Html(f"<{tag}{given}/>")
    return Html(f"<{tag}{given}>{join(children)}</{tag}>")


def join(parts: Iterable[str]) -> Html:
    """The parts one after another; plain text among them is escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(_printable(part)) for part in parts))


def _attribute(name: str, value: object) -> str:
    shown = name if name == "viewBox" else name.rstrip("_").replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{escape(_printable(str(value)))}"'


def _printable(text: str) -> str:
    """Control characters other than line ends and tabs have no place in HTML or XML."""
    return "".join(letter if letter >= " " or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text)
