# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What publishing a directory into a prefix has to do. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..plan import Change, Plan
from . import units
from .manifest import CHUNK
from .published import Digests

#: What S3 allows of the parts of one object.
MOST_PARTS = 10_000
LARGEST_PART = 5 << 30


@dataclass(frozen=True)
class Local:
    """A file to publish. path: below the prefix. place: where its bytes are, links resolved. sha256: known of it, or empty."""

    path: str
    place: str
    size: int
    sha256: str = ""


@dataclass(frozen=True)
class Remote:
    """An object that is there. crc64nvme: of the whole object, empty when the store gives none."""

    size: int
    crc64nvme: str = ""
    etag: str = ""


@dataclass(frozen=True)
class Part:
    number: int
    offset: int
    size: int


@dataclass(frozen=True)
class Item:
    """One file. was: what is wrong with the object that is there, empty when it is equal. digests: set when they are known."""

    local: Local
    was: str = ""
    digests: Digests | None = None


@dataclass(frozen=True)
class Publication:
    """Everything between what the prefix holds and what the directory holds. extra: objects that are in neither list."""

    items: tuple[Item, ...]
    manifest_was: str = ""
    extra: tuple[str, ...] = ()

    @property
    def uploads(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.was)

    @property
    def changed(self) -> bool:
        return bool(self.uploads) or bool(self.manifest_was)

    @property
    def bytes(self) -> int:
        return sum(item.local.size for item in self.items)


def part_size(size: int, wanted: int) -> int:
    """The size of an object's parts: a multiple of CHUNK, the wanted one unless that would make too many of them."""
    least = -(-size // MOST_PARTS)
    return max(CHUNK, -(-max(wanted, least) // CHUNK) * CHUNK)


def parts(size: int, each: int) -> list[Part]:
    """The parts of an object; an empty one has a single, empty part."""
    return [
        Part(number, offset, min(each, size - offset))
        for number, offset in enumerate(range(0, max(size, 1), each), start=1)
    ]


def obvious(local: Local, remote: Remote | None) -> str | None:
    """What is wrong with the object as far as a HEAD can tell: None when only the bytes can tell."""
    if remote is None:
        return "absent"
    if remote.size != local.size:
        return f"{remote.size} bytes"
    return None if remote.crc64nvme or remote.etag else "no checksum"


def judged(local: Local, remote: Remote, digests: Digests, etag: str) -> Item:
    """The file, after its bytes were read. etag: what the store would give it, for one that keeps no checksum."""
    if remote.crc64nvme:
        was = "" if remote.crc64nvme == digests.crc64nvme else f"crc64nvme:{remote.crc64nvme}"
    else:
        was = "" if remote.etag.strip('"') == etag else f"ETag {remote.etag}"
    return Item(local, was, digests)


def usable_parts(listed: Iterable[Mapping[str, object]], wanted: Sequence[Part]) -> dict[int, Mapping[str, object]]:
    """The parts of an unfinished upload by number, nothing when it was cut otherwise and so is of no use."""
    sizes = {part.number: part.size for part in wanted}
    found = {int(str(part["PartNumber"])): part for part in listed}
    fits = all(int(str(part.get("Size", -1))) == sizes.get(number) for number, part in found.items())
    return found if fits else {}


def plan_of(publication: Publication, where: str) -> Plan:
    """The publication as one table. where: the prefix."""
    if not publication.changed:
        return Plan()
    before, after = [], []
    for item in publication.items:
        row = f"{item.local.path:<40} {item.local.size:>15} "
        if item.was != "absent":
            before.append(f"{row}{item.was or 'published'}\n")
        after.append(f"{row}{'upload' if item.was else 'published'}\n")
    return Plan((Change(where, "".join(before), "".join(after), reason(publication)),))


def reason(publication: Publication) -> str:
    uploads = publication.uploads
    size = sum(item.local.size for item in uploads)
    kept = len(publication.items) - len(uploads)
    texts = [f"{units.files(len(uploads))} to upload ({units.human(size)})"] if uploads else []
    texts += [f"{units.files(kept)} equal"] if kept else []
    texts += [f"manifest {publication.manifest_was}"] if publication.manifest_was else []
    return ", ".join(texts)
