# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a checkpoint lies below the root. Only paths; nothing is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: The root that every node uses unless told otherwise.
DEFAULT_ROOT = "/var/lib/gb10-ring/checkpoints"
#: Where awscrt is unpacked on a node.
DEFAULT_PYTHON_PATH = "/var/lib/gb10-ring/python"
#: What the directory of a revision that is being deleted is called among the stagings, before its name.
TRASH = ".pruned-"


def left_in_staging(name: str) -> str:
    """What a directory among the stagings is, for a person."""
    if name.startswith(TRASH):
        return f"half-deleted revision {name.removeprefix(TRASH)}"
    return f"unfinished staging of {name}"


@dataclass(frozen=True)
class Layout:
    root: str
    name: str

    @property
    def base(self) -> Path:
        return Path(self.root) / self.name

    @property
    def revisions(self) -> Path:
        return self.base / "revisions"

    @property
    def receipts(self) -> Path:
        return self.base / "receipts"

    @property
    def manifests(self) -> Path:
        return self.base / "manifests"

    @property
    def switch(self) -> Path:
        """Where this node is in a switch of the group."""
        return self.base / "switch.json"

    @property
    def replacing(self) -> Path:
        """There while a revision is being replaced in place."""
        return self.base / "replacing.json"

    @property
    def stagings(self) -> Path:
        return self.base / "staging"

    @property
    def current(self) -> Path:
        return self.base / "current"

    @property
    def lock(self) -> Path:
        return self.stagings / ".lock"

    def revision(self, revision: str) -> Path:
        return self.revisions / revision

    def receipt(self, revision: str) -> Path:
        return self.receipts / f"{revision}.json"

    def manifest(self, revision: str) -> Path:
        return self.manifests / f"{revision}.json"

    @property
    def config_records(self) -> Path:
        return self.base / "config" / "records"

    @property
    def config_originals(self) -> Path:
        return self.base / "config" / "originals"

    def config_record(self, revision: str) -> Path:
        """What stands in for config.json of this revision, where something does."""
        return self.config_records / f"{revision}.json"

    def config_original(self, sha256: str) -> Path:
        """The text that it stands in for, by its digest in hexadecimal."""
        return self.config_originals / f"{sha256}.json"

    def staging(self, revision: str) -> Path:
        return self.stagings / revision

    def journal(self, revision: str) -> Path:
        return self.stagings / f"{revision}.journal"

    def progress(self, revision: str) -> Path:
        return self.stagings / f"{revision}.progress"

    def lease(self, revision: str) -> Path:
        return self.stagings / f"{revision}.lease"

    @staticmethod
    def link_text(revision: str) -> str:
        """What ``current`` points to: relative, so that the root may be mounted elsewhere."""
        return f"revisions/{revision}"
