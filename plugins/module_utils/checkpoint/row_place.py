# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a rank's Engram rows lie on a node. Only paths; no file is read."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from .layout import Layout
from .manifest import PARTIAL
from .row_plan import Placement
from .row_state import NAME

#: Directory below that of the checkpoint that holds the slices of placement ``directory``, unless another one is named.
SLICES = "engram"


@dataclass(frozen=True)
class RowPlace:
    """directory: what holds the slices and engram-local.json."""

    layout: Layout
    directory: Path

    @property
    def usual(self) -> bool:
        """Whether it is the directory for slices below that of the checkpoint, which is ours as a whole."""
        return self.directory == self.layout.base / SLICES

    @property
    def record(self) -> Path:
        return self.directory / NAME

    @property
    def journal(self) -> Path:
        """One for each directory: a run for another revision or placement ends none of what it says."""
        place = hashlib.sha256(str(self.directory).encode()).hexdigest()[:12]
        return self.layout.stagings / f".engram-{place}.journal"

    @property
    def lease(self) -> Path:
        return self.layout.stagings / ".engram.lease"

    @property
    def progress(self) -> Path:
        return self.layout.stagings / ".engram.progress"

    def target(self, path: str) -> Path:
        return self.directory / path

    def partial(self, path: str) -> Path:
        return self.directory / (path + PARTIAL)


def directory_problem(layout: Layout, directory: str) -> str:
    """Why slices cannot lie in this directory that somebody named, or an empty text. Links are followed.

    In a revision they would be taken for its shards, of which they lack all that belongs to no table.
    """
    if not directory:
        return ""
    if not os.path.isabs(directory):
        return f"directory (checkpoint_engram_directory) is {directory}, allowed is an absolute path"
    path, root = Path(os.path.realpath(directory)), Path(os.path.realpath(layout.base.parent))
    inside = path.relative_to(root).parts if root in path.parents else ()
    ours = [place.name for place in (layout.revisions, layout.stagings, layout.receipts, layout.manifests)]
    if len(inside) < 2 or inside[1] not in ours:
        return ""
    if inside[0] != layout.base.name and not (root / inside[0] / layout.revisions.name).is_dir():
        return ""  # no checkpoint
    return (
        f"directory (checkpoint_engram_directory) is {directory}, which lies in {layout.base.parent / inside[0] / inside[1]}; allowed is a "
        "directory of its own, or with rows in the revision itself placement shard (checkpoint_engram_placement)"
    )


def place_of(layout: Layout, revision: str, placement: Placement, directory: str = "") -> RowPlace:
    """With placement ``shard`` the slices are files of the revision itself."""
    if placement == "shard":
        return RowPlace(layout, layout.revision(revision))
    return RowPlace(layout, Path(directory) if directory else layout.base / SLICES)
