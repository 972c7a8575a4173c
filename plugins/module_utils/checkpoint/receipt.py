# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node remembers of the files it holds: the receipt of a complete revision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


class ReceiptError(ValueError):
    """A receipt or journal that cannot be read; its text is the message for the user."""


@dataclass(frozen=True)
class Stat:
    """What the file system says of a file: bytes, modification time in ns, number of names, bytes allocated.

    inode, device: 0 when they are not known.
    """

    size: int
    mtime_ns: int
    links: int = 1
    allocated: int = 0
    inode: int = 0
    device: int = 0


@dataclass(frozen=True)
class Entry:
    """A file that was verified when it had this size and modification time."""

    path: str
    size: int
    digest: str
    mtime_ns: int

    def matches(self, stat: Stat | None) -> bool:
        return stat is not None and (stat.size, stat.mtime_ns) == (self.size, self.mtime_ns)


@dataclass(frozen=True)
class Derived:
    """A file that stands in for the one of the plan. rule: how it was made. digest: of the text on disk (sha256)."""

    rule: str
    source_digest: str
    digest: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Receipt:
    """created: UTC, ISO 8601. files: as planned. derived: by path what stands in for a file, which no receipt says (config_edit).

    sliced: paths of files that the revision has in slices, of which engram-local.json in it says what is there.
    """

    name: str
    revision: str
    created: str
    files: tuple[Entry, ...]
    derived: Mapping[str, Derived] = field(default_factory=dict)
    sliced: tuple[str, ...] = ()

    def on_disk(self) -> dict[str, Entry]:
        """Every file with the size and time it has on disk: those of the derived text where there is one."""
        entries = {}
        for entry in self.files:
            derived = self.derived.get(entry.path)
            entries[entry.path] = (
                Entry(entry.path, derived.size, derived.digest, derived.mtime_ns) if derived else entry
            )
        return entries

    def contents(self) -> frozenset[tuple[str, int, str]]:
        """What the revision is, without when and where."""
        return frozenset((entry.path, entry.size, entry.digest) for entry in self.files)

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.files)


def wrong_files(receipt: Receipt, found: Mapping[str, Stat]) -> dict[str, str]:
    """Path and finding of every file that is not as the receipt has it."""
    wrong = {}
    for path, entry in receipt.on_disk().items():
        stat = found.get(path)
        if stat is None:
            wrong[path] = "missing"
        elif stat.size != entry.size:
            wrong[path] = f"{stat.size} bytes instead of {entry.size}"
        elif stat.mtime_ns != entry.mtime_ns:
            wrong[path] = "modified since it was verified"
    return wrong


def wrong_text(wrong: Mapping[str, str], most: int = 5) -> str:
    """What ``wrong_files`` found, for a person; empty when it found nothing."""
    listed = [f"{path} ({what})" for path, what in sorted(wrong.items())]
    return ", ".join([*listed[:most], *([f"{len(listed) - most} more"] if len(listed) > most else [])])


def render(receipt: Receipt) -> str:
    values = {name: value for name, value in asdict(receipt).items() if name != "derived"}
    return json.dumps(values, indent=1) + "\n"


def parse(text: str, where: str) -> Receipt:
    """The receipt in this text; where: its path, for the error."""
    try:
        data = json.loads(text)
        return Receipt(
            name=str(data["name"]),
            revision=str(data["revision"]),
            created=str(data["created"]),
            files=tuple(_entry(item) for item in data["files"]),
            sliced=tuple(str(path) for path in data.get("sliced", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReceiptError(
            f"{where} is not a receipt of gb10.ring ({type(error).__name__}: {error}); "
            "move it away and stage the revision again, which keeps nothing of it"
        ) from error


def _entry(item: Mapping[str, Any]) -> Entry:
    return Entry(str(item["path"]), int(item["size"]), str(item["digest"]), int(item["mtime_ns"]))
