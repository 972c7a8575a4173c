# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What engram-local.json says of the rows on a node, and what a new plan keeps, fetches and gives up of them.

Readers of the file: vLLM's patched engram.py and SGLang's overlay look at ``layers`` only, the launcher of tsw2k's slices also at ``rank``,
``tp_size`` and ``revision``. The keys beyond those are ours; all three ignore what they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .row_plan import Placement
from .spans import Span

#: The file that says which rows are there. It is written last and removed first.
NAME = "engram-local.json"


@dataclass(frozen=True)
class Held:
    """A sparse file as it was when its rows had been verified.

    digest: of the whole object that it is a slice of, ``algorithm:hex`` from the checkpoint's plan. header: sha256 of its header bytes.
    spans: its bytes that are not a hole. mtime_ns: 0 when it is not known.
    """

    path: str
    size: int
    digest: str
    header: str
    spans: tuple[Span, ...]
    mtime_ns: int = 0


@dataclass(frozen=True)
class RowState:
    """layers: [lo, hi) by layer number as text. digests: ``algorithm:hex`` of each extent, by Extent.key. created: UTC, ISO 8601."""

    source: str
    layers: Mapping[str, tuple[int, int]]
    rank: int
    tp_size: int
    rule: str
    revision: str
    placement: Placement
    created: str
    files: tuple[Held, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    note: str = "sparse copy: only these rows exist; gb10.ring"


@dataclass(frozen=True)
class Work:
    """What one target needs. keep: verified bytes that stay. fetch: bytes to bring. punch: bytes to give back to the file system.

    fresh: the file is made anew, nothing of what lies there under its name stays. why: one clause.
    """

    path: str
    size: int
    keep: tuple[Span, ...] = ()
    fetch: tuple[Span, ...] = ()
    punch: tuple[Span, ...] = ()
    fresh: bool = False
    why: str = ""
