# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Byte counts as a person reads them."""

from __future__ import annotations


def human(count: int) -> str:
    """A byte count in decimal units, as disks and object stores are sold: ``460.1 GB``."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.95:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} TB"


def files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def shown(value: object, most: int = 120) -> str:
    """A value that somebody else wrote, for a message. Python refuses to write down huge numbers and deep lists."""
    try:
        return printable(repr(value), most)
    except (ValueError, RecursionError):
        return "something too large to show"


def printable(text: str, most: int = 60) -> str:
    """What somebody else wrote, for a message: one line of it that a terminal can show."""
    line = "".join(char if char.isprintable() else "?" for char in text[:most])
    return line + ("..." if len(text) > most else "")
