# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.activate import Link, activation
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Entry, Receipt, Stat

RECEIPT = Receipt("tiny", "r2", "2026-11-29T22:00:00Z", (Entry("a", 10, "md5:0", 7),))
WHOLE = {"a": Stat(10, 7)}


@pytest.mark.parametrize(
    ("link", "receipt", "found", "changed", "refusal"),
    [
        (Link(), RECEIPT, WHOLE, True, ""),
        (Link("revisions/r1"), RECEIPT, WHOLE, True, ""),
        (Link("revisions/r2"), RECEIPT, WHOLE, False, ""),
        (Link("revisions/r1"), None, {}, True, "no receipt"),
        (Link("revisions/r1"), RECEIPT, {}, True, "a (missing)"),
        (Link("revisions/r2"), RECEIPT, {"a": Stat(9, 7)}, False, "a (9 bytes instead of 10)"),
        (Link(foreign=True), RECEIPT, WHOLE, True, "not a symbolic link"),
    ],
)
def test_activation(link, receipt, found, changed, refusal):
    made = activation("/x/current", link, "revisions/r2", receipt=receipt, found=found)
    assert made.plan.changed is changed
    assert refusal in made.refusal
    assert bool(made.refusal) == bool(refusal)


def test_a_receipt_that_cannot_be_read_is_a_refusal():
    made = activation("/x/current", Link(), "revisions/r2", receipt=None, found={}, problem="r2.json is not a receipt")
    assert made.refusal == "r2.json is not a receipt"


def test_the_diff_is_the_target_of_the_link():
    (diff,) = activation("/x/current", Link("revisions/r1"), "revisions/r2", receipt=RECEIPT, found=WHOLE).plan.diff()
    assert (diff["before"], diff["after"]) == ("revisions/r1\n", "revisions/r2\n")
