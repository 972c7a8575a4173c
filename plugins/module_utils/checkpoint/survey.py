# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at what a node holds of a checkpoint. Reads only."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..host import HostError, read_text
from . import config_edit, journal, row_state
from . import replace as replacement
from .config_edit import CONFIG
from .decide import Disk, OtherRevision, Survey
from .layout import Layout
from .manifest import PARTIAL
from .manifest import parse as parse_manifest
from .receipt import Entry, Receipt, ReceiptError, Stat, parse
from .replacing import Replacing


def look(layout: Layout, revision: str, adopts: bool = False) -> Survey:
    """What there is of this revision and beside it. Raises HostError when the disk cannot be read.

    adopts: as it will be once the staging of a replacement in place that did not end is gone on with for this revision.
    """
    problem = split_problem(layout)
    receipt = replacing = None
    try:
        replacing = replaced_revision(layout)
        receipt = read_receipt(layout, revision)
    except ReceiptError as error:
        problem = str(error)
    directory = layout.revision(revision)
    begun = _begun(layout, revision, replacing) if adopts else revision
    record = journal.parse(read_text(layout.journal(begun)) or "", journal.boot_id())
    if replacing and replacing.old == revision and receipt is None:
        # Back to the one that was being replaced: what is left of it was verified.
        left = {entry.path: entry for entry in replacing.receipt.files if entry.path not in replacing.receipt.derived}
        record = journal.Record({**left, **record.files}, record.begun)
    staging = layout.staging(begun)
    # A run that was killed between its last rename and the receipt left a whole, unrecorded revision.
    staged = staging if staging.is_dir() or receipt else directory
    return Survey(
        disk=disk_of(layout.base),
        receipt=receipt,
        revision_exists=directory.is_dir(),
        present=tree(directory),
        journal=record.files,
        begun=record.begun,
        staged=renamed(tree(staged), record.files) if record.files or staging.is_dir() else {},
        others=tuple(
            _other(layout, other)
            for other in (*receipts(layout), *([replacing.receipt] if replacing else []))
            if other.revision != revision
        ),
        leftovers={name: size for name, size in leftovers(layout).items() if name == revision or name != begun},
        current=current_revision(layout),
        config_text=exact_text(directory / CONFIG) if receipt else None,
        problem=problem,
        replacing=replacing,
    )


def _begun(layout: Layout, revision: str, replacing: Replacing | None) -> str:
    """The revision whose staging this one goes on with: its own, or that of what was to replace the old one before."""
    if replacing is None or revision == replacing.old or layout.staging(revision).exists():
        return revision
    return replacing.new if layout.staging(replacing.new).is_dir() else revision


def _other(layout: Layout, receipt: Receipt) -> OtherRevision:
    held = slices(layout, receipt) if receipt.sliced else {}
    digests = {entry.path: entry.digest for entry in receipt.files}
    digests |= {path: file.digest for path, file in held.items()}
    return OtherRevision(
        receipt,
        tree(layout.revision(receipt.revision)),
        chunks(layout, receipt.revision, digests),
        config=config_as_staged(layout, receipt.revision),
        slices=held,
    )


def replaced_revision(layout: Layout) -> Replacing | None:
    """What is being replaced in place, with what stands in for its config.json. Raises ReceiptError."""
    found = replacement.read(layout)
    return replace(found, receipt=_with_edit(layout, found.receipt)) if found else None


def config_as_staged(layout: Layout, revision: str) -> str | None:
    """config.json as it came, where it was kept because an edit stands in for it."""
    record = config_record(layout, revision)
    text = exact_text(layout.config_original(record.original)) if record else None
    return text if record and text is not None and config_edit.sha256(text) == record.original else None


def slices(layout: Layout, receipt: Receipt) -> dict[str, row_state.Held]:
    """Each slice, by path, that is as it was when its rows had been verified."""
    directory = layout.revision(receipt.revision)
    try:
        state = row_state.parse(read_text(directory / row_state.NAME) or "", "")
    except row_state.RowStateError:
        return {}  # nothing vouches for these rows, so they are brought anew
    found = tree(directory)
    return {
        file.path: file
        for file in state.files
        if file.path in receipt.sliced
        and Entry(file.path, file.size, file.digest, file.mtime_ns).matches(found.get(file.path))
    }


def chunks(layout: Layout, revision: str, digests: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Chunk checksums by path of what this revision was planned from, of files that were planned with these digests."""
    text = read_text(layout.manifest(revision))
    try:
        planned = parse_manifest(json.loads(text)).files if text else ()
    except (ValueError, TypeError):
        return {}  # older states only save a transfer; what cannot be read saves none
    return {file.path: file.chunks for file in planned if file.digest == digests.get(file.path)}


def renamed(found: dict[str, Stat], finished: Mapping[str, Entry]) -> dict[str, Stat]:
    """A file that was finished and lacks nothing but its last rename counts under its own name."""
    for path, entry in finished.items():
        if path not in found and entry.matches(found.get(path + PARTIAL)):
            found[path] = found.pop(path + PARTIAL)
    return found


def read_receipt(layout: Layout, revision: str) -> Receipt | None:
    """The receipt of this revision, or None. Raises ReceiptError when there is one that cannot be read."""
    path = layout.receipt(revision)
    text = read_text(path)
    return None if text is None else _with_edit(layout, parse(text, str(path)))


def _with_edit(layout: Layout, receipt: Receipt) -> Receipt:
    """The receipt, with what stands in for its config.json."""
    record = config_record(layout, receipt.revision)
    if record is None:
        return receipt
    path = layout.revision(receipt.revision) / CONFIG
    found = tree(path.parent).get(CONFIG)
    return replace(receipt, derived=config_edit.standing_in(receipt, record, exact_text(path), found))


def config_record(layout: Layout, revision: str) -> config_edit.Record | None:
    return config_edit.parse(read_text(layout.config_record(revision)))


def exact_text(path: Path) -> str | None:
    """The file's text with its line ends as they are, or None when it is absent or no UTF-8. Raises HostError."""
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error


def receipts(layout: Layout) -> list[Receipt]:
    """Every readable receipt whose revision directory exists, oldest first."""
    found = []
    for path in sorted(layout.receipts.glob("*.json")) if layout.receipts.is_dir() else []:
        try:
            receipt = _with_edit(layout, parse(read_text(path) or "", str(path)))
        except ReceiptError:
            continue
        if layout.revision(receipt.revision).is_dir():
            found.append(receipt)
    return sorted(found, key=lambda receipt: (receipt.created, receipt.revision))


def tree(directory: Path) -> dict[str, Stat]:
    """Every file below the directory by its relative path; symbolic links are not followed and count as files."""
    found = {}
    for place, _directories, names in os.walk(directory):
        for name in names:
            path = Path(place) / name
            try:
                stat = path.lstat()
            except FileNotFoundError:
                continue
            found[path.relative_to(directory).as_posix()] = Stat(
                size=stat.st_size,
                mtime_ns=stat.st_mtime_ns,
                links=stat.st_nlink,
                allocated=stat.st_blocks * 512,
                inode=stat.st_ino,
                device=stat.st_dev,
            )
    return found


def leftovers(layout: Layout) -> dict[str, int]:
    """Bytes allocated in each directory among the stagings: of a revision that was not finished, or not deleted to its end."""
    if not layout.stagings.is_dir():
        return {}
    directories = sorted(path for path in layout.stagings.iterdir() if path.is_dir())
    return {path.name: sum(stat.allocated for stat in tree(path).values() if stat.links == 1) for path in directories}


def current_revision(layout: Layout) -> str:
    """The active revision, or an empty text when there is none or the link is not ours."""
    try:
        target = str(layout.current.readlink())
    except OSError:
        return ""
    revision = target.removeprefix("revisions/")
    return revision if target == layout.link_text(revision) else ""


def disk_of(path: Path) -> Disk:
    """The file system that will hold this path, which need not exist yet."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        figures, device = os.statvfs(place), place.stat().st_dev
    except OSError as error:
        raise HostError(f"cannot read the file system of {place}: {error.strerror}") from error
    return Disk(
        size=figures.f_blocks * figures.f_frsize,
        available=figures.f_bavail * figures.f_frsize,
        reserved=(figures.f_bfree - figures.f_bavail) * figures.f_frsize,
        device=device,
    )


def split_problem(layout: Layout) -> str:
    """Why a revision could not be committed by one rename, or an empty text: its directories lie on several file systems."""
    places = [place for place in (layout.revisions, layout.stagings) if place.exists()]
    if len({place.stat().st_dev for place in places}) < 2:
        return ""
    return (
        f"{layout.revisions} and {layout.stagings} lie on different file systems, so that a finished revision could not "
        f"be renamed into place; mount one file system at {layout.base} or above it"
    )
