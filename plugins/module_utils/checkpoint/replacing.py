# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node remembers of a revision that it is replacing in place, until the new one is complete."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .receipt import Receipt, ReceiptError
from .receipt import parse as parse_receipt
from .receipt import render as render_receipt


@dataclass(frozen=True)
class Replacing:
    """receipt: of the old revision, which has none of its own any more: what is left of its files was verified."""

    new: str
    receipt: Receipt

    @property
    def old(self) -> str:
        return self.receipt.revision


def render(replacing: Replacing) -> str:
    return json.dumps({"new": replacing.new, "receipt": json.loads(render_receipt(replacing.receipt))}) + "\n"


def parse(text: str | None, where: str) -> Replacing | None:
    """The record in this text, or None when there is none. Raises ReceiptError."""
    if not text:
        return None
    try:
        data = json.loads(text)
        new, receipt = str(data["new"]), json.dumps(data["receipt"])
    except (ValueError, KeyError, TypeError) as error:
        raise ReceiptError(
            f"{where} is not a record of gb10.ring ({type(error).__name__}: {error}); move it away and stage again"
        ) from error
    return Replacing(new, parse_receipt(receipt, where))
