# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a revision can be served with the Engram rows that this node has for it: what the engine would read as zeros is told here.

Reads only. A revision was cut for the group as it was then; the group may have fewer nodes now, or its engine another placement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import row_place, row_survey
from .layout import Layout
from .receipt import Receipt
from .row_plan import Placement
from .row_state import RowState

_CURE = "bring its rows for this group first: restage.yml, from a prefix that holds this revision"


@dataclass(frozen=True)
class Rows:
    """What the engine of this node reads. directory: for placement ``directory``, empty for the usual one."""

    placement: Placement
    rule: str
    tp: int
    rank: int
    directory: str = ""

    @classmethod
    def from_options(cls, given: Mapping[str, Any] | None) -> Rows | None:
        """None where nobody says what the engine reads."""
        if not given:
            return None
        ranks = given["tensor_parallel"], given["rank"]
        return cls(given["placement"], given["rule"] or "", *ranks, given["directory"] or "")

    def text(self) -> str:
        return _layout(self.rule, self.tp, self.rank)


def _layout(rule: str, tp: int, rank: int) -> str:
    return f"rank {rank} of {tp} by rule {rule or 'none'}"


def unsafe(layout: Layout, receipt: Receipt, wanted: Rows | None) -> str:
    """Why an engine would read holes or rows of another state with this revision, or an empty text."""
    problem = slices_problem(layout, receipt) if receipt.sliced else ""
    if problem or wanted is None:
        return problem
    if wanted.placement == "directory":
        return _shared_problem(layout, receipt, wanted)
    if not receipt.sliced:
        return ""
    place = row_place.place_of(layout, receipt.revision, "shard")
    if wanted.placement == "full":
        return (
            f"revisions/{receipt.revision} has slices of {', '.join(receipt.sliced)}, and the placement is full: rows of other ranks "
            f"would be read as zeros; {_CURE}"
        )
    return _other_rows(f"revisions/{receipt.revision}", row_survey.read_state(place)[0], wanted)


def unfit(layout: Layout, receipt: Receipt, wanted: Rows | None) -> str:
    """Why this revision is not as the placement has it, or an empty text; also where its engine would find its rows elsewhere."""
    problem = unsafe(layout, receipt, wanted)
    if problem or wanted is None or wanted.placement == "full":
        return problem
    name = f"revisions/{receipt.revision}"
    if wanted.placement == "shard":
        return "" if receipt.sliced else f"{name} has whole shards, and the placement is shard; {_CURE}"
    if receipt.sliced:
        return f"{name} has slices of {', '.join(receipt.sliced)}, and the placement is directory; {_CURE}"
    place = row_place.place_of(layout, receipt.revision, "directory", wanted.directory)
    state, problem = row_survey.read_state(place)
    return problem or ("" if state else f"nothing says that rows are in {place.directory}; {_CURE}")


def slices_problem(layout: Layout, receipt: Receipt) -> str:
    """Why the slices of a revision are not there, or an empty text."""
    place = row_place.place_of(layout, receipt.revision, "shard")
    state, problem = row_survey.read_state(place)
    if problem:
        return problem
    held = {file.path: (file.size, file.mtime_ns) for file in state.files} if state else {}
    stats = {path: row_survey.stat_of(place.target(path)) for path in receipt.sliced}
    wrong = [path for path, stat in stats.items() if stat is None or held.get(path) != (stat.size, stat.mtime_ns)]
    if not wrong:
        return ""
    return (
        f"revisions/{receipt.revision} is to have slices of {', '.join(wrong)}, and nothing says that their rows are there; bring "
        "them (gb10.ring.engram_rows with placement shard, or the playbook that stages the checkpoint)"
    )


def _other_rows(where: str, state: RowState | None, wanted: Rows) -> str:
    """Why these are the rows of another rank, or an empty text."""
    if state is None or (state.rule, state.tp_size, state.rank) == (wanted.rule, wanted.tp, wanted.rank):
        return ""
    found = _layout(state.rule, state.tp_size, state.rank)
    return (
        f"{where} has the Engram rows of {found}, the engine reads those of {wanted.text()} and holes as zeros; {_CURE}"
    )


def _shared_problem(layout: Layout, receipt: Receipt, wanted: Rows) -> str:
    """Why the rows in a directory that all revisions share are not those of this one, or an empty text."""
    place = row_place.place_of(layout, receipt.revision, "directory", wanted.directory)
    state, _problem = row_survey.read_state(place)
    if state is None:
        return ""
    digests = {entry.path: entry.digest for entry in receipt.files}
    wrong = [file.path for file in state.files if file.path in digests and file.digest != digests[file.path]]
    if not wrong:
        return _other_rows(str(place.directory), state, wanted)
    return (
        f"{place.directory} holds Engram rows of {', '.join(wrong)} as revision {state.revision} has them, not as {receipt.revision} "
        "does; bring those of this revision first (restage.yml), or let each revision have its own (checkpoint_engram_placement: shard)"
    )
