# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to say of a switch that failed. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    """A node after it. reason: what failed there. back: whether its link went back. done: whether all of the way back was done.

    stays: why it did not go back, where it said so.
    """

    node: str
    reason: str = ""
    back: bool = False
    done: bool = False
    stays: str = ""


def all_back(ended: Sequence[Ended]) -> bool:
    return all(one.back for one in ended)


def text(ended: Sequence[Ended], revision: str, origin: str, started: bool = True) -> str:
    """Reasons of all nodes first, then where they are now and what to do. started: whether the group was stopped already."""
    reasons = [f"- {one.node}: {one.reason}" for one in ended if one.reason]
    reasons += [f"- {one.node}: {one.stays}" for one in ended if one.stays]
    reasons += [f"- {one.node}: it does not answer" for one in ended if not (one.reason or one.back or one.stays)]
    return "\n".join(
        [f"the switch to revision {revision} failed:", *reasons, _state(ended, origin) if started else _NOTHING]
    )


_NOTHING = (
    "Nothing was stopped or moved: the group goes on as it was. Cure what is said above and run restage.yml again"
)


def _state(ended: Sequence[Ended], origin: str) -> str:
    lost = [one.node for one in ended if not one.back]
    stay = [one.node for one in ended if one.stays]
    if not origin:
        return (
            "There was no revision to go back to on all nodes, and the group is stopped. Cure what is said above, or stage another "
            "revision, and run restage.yml again"
        )
    if stay:
        return (
            f"{', '.join(stay)} cannot go back to revision {origin}, so nothing was started and the group is stopped. Cure what is said "
            "above and run restage.yml again, from a prefix that holds the revision to be served"
        )
    if lost:
        return (
            f"All other nodes are back at revision {origin}; {', '.join(lost)} did not answer. The group is stopped, and serves "
            "again when it is back and restage.yml or rollback.yml has run"
        )
    if all(one.done for one in ended):
        return f"All nodes are back at revision {origin} and were accepted with it"
    return f"All nodes are back at revision {origin}, but the group did not come up with it: see above, then run rollback.yml"
