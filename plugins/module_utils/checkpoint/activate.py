# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which revision the engine opens: whether the link ``current`` may move. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..plan import Change, Plan
from . import units
from .receipt import Receipt, Stat, wrong_files


@dataclass(frozen=True)
class Activation:
    """plan: the move of the link. refusal: why it may not be made, empty when it may."""

    plan: Plan
    refusal: str = ""


@dataclass(frozen=True)
class Link:
    """The link as it is. target: what it points to, empty when absent. foreign: something else than a link is there."""

    target: str = ""
    foreign: bool = False


def activation(
    where: str, link: Link, wanted: str, *, receipt: Receipt | None, found: Mapping[str, Stat], problem: str = ""
) -> Activation:
    """where: path of the link. wanted: the text that it shall hold. problem: why the receipt cannot be read."""
    plan = Plan()
    if link.target != wanted:
        why = f"{receipt.revision} is verified" if receipt else "once it is staged"
        plan = Plan((Change(where, link.target, wanted, why),))
    if link.foreign:
        return Activation(plan, f"{where} is not a symbolic link; move it away: this link belongs to gb10.ring")
    if problem:
        return Activation(plan, problem)
    if receipt is None:
        return Activation(plan, f"{wanted} has no receipt, so it was never verified; stage it first")
    wrong = wrong_files(receipt, found)
    if wrong:
        listed = ", ".join(f"{path} ({what})" for path, what in sorted(wrong.items())[:5])
        return Activation(
            plan,
            f"{wanted} is not as it was verified: {units.files(len(wrong))} of {len(receipt.files)}: {listed}; "
            "stage it again, which fetches those only",
        )
    return Activation(plan)
