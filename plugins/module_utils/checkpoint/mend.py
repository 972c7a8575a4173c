# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After files of a revision were repaired: the same for revisions that shared them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..host import sync_directory
from .config_edit import CONFIG
from .decide import Survey
from .layout import Layout
from .receipt import Receipt, Stat


def mend_others(layout: Layout, survey: Survey, receipt: Receipt, swapped: Iterable[str]) -> None:
    """Other revisions that shared a file which had gone wrong get the right one: a link, no second transfer."""
    names = set(swapped) - {CONFIG}  # it may be edited, so no revision shares it
    right = {(entry.digest, entry.mtime_ns): entry.path for entry in receipt.files if entry.path in names}
    for other in survey.others:
        for entry in other.receipt.files:
            path = right.get((entry.digest, entry.mtime_ns))
            if path is None:
                continue
            if _shared(survey.present.get(path), other.found.get(entry.path)):
                _relink(layout.revision(receipt.revision) / path, layout.revision(other.receipt.revision) / entry.path)


def _shared(one: Stat | None, other: Stat | None) -> bool:
    """Whether both names were one file, or both are gone."""
    return (one is None and other is None) or (one is not None and other is not None and 0 != one.inode == other.inode)


def _relink(source: Path, target: Path) -> None:
    fresh = target.with_name(f".{target.name}.mended")
    fresh.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.link(source, fresh)
    fresh.replace(target)
    sync_directory(target.parent)
