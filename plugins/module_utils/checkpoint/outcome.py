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

    stays: why it did not go back, where it said so. running: why its engine could not be stopped, which may run on.
    """

    node: str
    reason: str = ""
    back: bool = False
    done: bool = False
    stays: str = ""
    running: str = ""

    @property
    def lost(self) -> bool:
        """Whether nothing was heard of it on the way back."""
        return not (self.back or self.stays)


def all_back(ended: Sequence[Ended]) -> bool:
    """Whether the old revision may be started."""
    return all(one.back and not one.running for one in ended)


def text(ended: Sequence[Ended], revision: str, origin: str, started: bool = True) -> str:
    """Reasons of all nodes first, then where they are now and what to do. started: whether the group was stopped already, or was to be."""
    reasons = [f"- {one.node}: {one.reason}" for one in ended if one.reason]
    reasons += [f"- {one.node}: its engine could not be stopped: {one.running}" for one in ended if one.running]
    reasons += [f"- {one.node}: {one.stays}" for one in ended if one.stays]
    if not _nobody_asked(ended):
        reasons += [
            f"- {one.node}: it does not answer" for one in ended if one.lost and not (one.reason or one.running)
        ]
    return "\n".join(
        [f"the switch to revision {revision} failed:", *reasons, _state(ended, origin) if started else _NOTHING]
    )


_NOTHING = (
    "Nothing was stopped or moved: the group goes on as it was. Cure what is said above and run the same playbook again"
)


def _nobody_asked(ended: Sequence[Ended]) -> bool:
    """One node at least is there to say this: where all are lost, none was asked."""
    return all(one.lost for one in ended)


def _state(ended: Sequence[Ended], origin: str) -> str:
    running = ", ".join(one.node for one in ended if one.running)
    if running:
        return (
            f"On {running} the engine could not be stopped and may still run, so nothing was started. {_links(ended, origin)}. "
            "Cure what is said above, so that no rank runs any more, and run restage.yml or rollback.yml"
        )
    return _links(ended, origin) + _group(ended, origin)


def _group(ended: Sequence[Ended], origin: str) -> str:
    """What that means for the group, and what to do."""
    if _nobody_asked(ended):
        return ", and nothing was started. verify.yml says where each is; run restage.yml or rollback.yml then"
    if not origin:
        return ", and the group is stopped. Cure what is said above and run the same playbook again, or stage another revision with restage.yml"
    if any(one.stays for one in ended):
        return (
            ", so nothing was started and the group is stopped. Cure what is said above and run restage.yml, from a prefix that holds the "
            "revision to be served, or rollback.yml to one that all nodes hold (checkpoint_rollback_revision)"
        )
    if any(one.lost for one in ended):
        return ". The group is stopped, and serves again when it is back and the same playbook has run"
    if all(one.done for one in ended):
        return " and were accepted with it"
    return (
        ", but the group did not come up with it: see above. Cure that and run the same playbook again, or rollback.yml to another "
        "revision (checkpoint_rollback_revision)"
    )


def _links(ended: Sequence[Ended], origin: str) -> str:
    """Where the nodes are."""
    lost = ", ".join(one.node for one in ended if one.lost)
    stay = ", ".join(one.node for one in ended if one.stays)
    if _nobody_asked(ended):
        return "No node was asked to go back"
    if not origin:
        return "There was no revision to go back to on all nodes"
    if stay:
        return f"{stay} cannot go back to revision {origin}"
    if lost:
        return f"All other nodes are back at revision {origin}; {lost} did not answer"
    return f"All nodes are back at revision {origin}"
