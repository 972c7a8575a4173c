# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fits config.json of a staged revision to the number of ranks, on this node."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from ..host import HostError, write_text
from . import config_edit
from .config_edit import CONFIG, Edit, Found
from .hashing import file_digest
from .layout import Layout
from .receipt import Entry, Receipt, ReceiptError
from .runtime import load_crc64
from .stage import locked
from .survey import config_record, exact_text, read_receipt, tree


@dataclass(frozen=True)
class Request:
    """tp: number of ranks, 0 for the file as staged. planned: text of config.json as it will be staged, empty when it is not known."""

    layout: Layout
    revision: str
    tp: int
    python_path: str
    planned: str = ""

    @property
    def path(self) -> Path:
        return self.layout.revision(self.revision) / CONFIG


def run(request: Request, dry: bool) -> Edit:
    """Decide, and unless dry do it. Raises HostError."""
    with contextlib.nullcontext() if dry else locked(request.layout):
        receipt = _receipt(request)
        edit = config_edit.decide(_found(request, receipt), request.tp, str(request.path)) if receipt else Edit()
        if dry and (receipt is None or edit.problem):
            edit = _expected(request, edit)
        if edit.problem:
            raise HostError(edit.problem)
        if not dry:
            if receipt is None:
                raise HostError(
                    f"revision {request.revision} of {request.layout.name} is not staged on this node; stage it first"
                )
            _apply(request, receipt, edit)
    return edit


def _expected(request: Request, edit: Edit) -> Edit:
    """What there would be to do behind the staging that a dry run leaves out, which brings or repairs the file."""
    if request.planned:
        return config_edit.decide(Found(request.planned, staged=True), request.tp, str(request.path))
    return edit if request.tp else Edit()


def _receipt(request: Request) -> Receipt | None:
    try:
        return read_receipt(request.layout, request.revision)
    except ReceiptError as error:
        raise HostError(str(error)) from error


def _found(request: Request, receipt: Receipt) -> Found:
    record = config_record(request.layout, request.revision)
    return Found(
        text=exact_text(request.path),
        staged=_as_staged(request, _entry(receipt)),
        record=record,
        kept=exact_text(request.layout.config_original(record.original)) if record else None,
    )


def _entry(receipt: Receipt) -> Entry | None:
    return next((entry for entry in receipt.files if entry.path == CONFIG), None)


def _as_staged(request: Request, entry: Entry | None) -> bool:
    """Whether the file is the one of the receipt: by size and time, and by its digest where that can be computed."""
    if entry is None or not entry.matches(tree(request.path.parent).get(CONFIG)):
        return False
    try:
        return file_digest(request.path, entry.digest, load_crc64(request.python_path)) == entry.digest
    except LookupError:
        return True
    except OSError as error:
        raise HostError(f"cannot read {request.path}: {error.strerror}") from error


def _apply(request: Request, receipt: Receipt, edit: Edit) -> None:
    """The original first, then what will stand in for it, then the file: after a crash the file is one of the two that are known."""
    if not edit.plan.changed:
        return
    record_path = request.layout.config_record(request.revision)
    if edit.record is not None:
        kept = request.layout.config_original(edit.record.original)
        if exact_text(kept) != edit.original:
            write_text(kept, edit.original)
        write_text(record_path, config_edit.render(edit.record))
        write_text(request.path, edit.text)
        return
    entry = _entry(receipt)
    # With the time of the receipt it is, again, the file that was verified.
    write_text(request.path, edit.text, mtime_ns=entry.mtime_ns if entry else None)
    record_path.unlink(missing_ok=True)
